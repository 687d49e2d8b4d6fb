"""A compaction on a disk that fails, or loses data, at each of its calls.

One history, a first compaction, more history, a second compaction; each time, another disk or
metadata call during the second one fails. In each case the view is the old one or the new one
(FLT-06: the old ledger is deleted after the new one is durable); no unreferenced file remains; and
the next compaction succeeds.
"""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import LedgerfoldError
from tests.model.broker_lab import DATA, BrokerLab
from tests.model.log_model import LogModel, Message
from tests.support.lossy_files import TAILS, Tail

FIRST = [([Message(b"a", b"1"), Message(b"b", b"1")], True), ([Message(b"c", b"1")], False)]
SECOND = [([Message(b"a", b"2"), Message(b"b", b"")], True), ([Message(b"d", b"1")], False)]


class History:
    """A lab after one compaction, with new data for a second one."""

    def __init__(self) -> None:
        self.lab = BrokerLab()
        self.model = LogModel()
        self.publish(FIRST)
        self.compact()
        self.publish(SECOND)
        self.lab.settle()

    def publish(self, entries: list[tuple[list[Message], bool]]) -> None:
        for position, (messages, is_batch) in zip(self.lab.publish(entries), entries, strict=True):
            self.model.publish(position, messages, is_batch=is_batch)

    def compact(self) -> None:
        run = self.lab.compact()
        assert run is not None
        assert self.lab.succeeded(run), run.error_message
        self.model.compact(Position(run.horizon.ledger_id, run.horizon.entry_id))

    def check(self) -> None:
        """Checks for the old or the new view, no leftovers, and a successful run; then again after
        a restart.
        """
        self.check_view()
        self.check_files()
        if self.lab.compact() is not None:
            self.model.compact(self.model.entries[-1].position)
        self.check_view()
        self.lab.restart()
        self.check_view()
        self.check_files()
        self.lab.stop()

    def check_view(self) -> None:
        horizon = self.lab.topic.log.views.horizon
        assert horizon in (self.model.horizon, self.model.entries[-1].position)
        assert horizon is not None
        self.model.compact(horizon)
        self.lab.settle()
        self.model.ledgers &= set(self.lab.topic.log.ledgers.ids)
        for read_compacted in (True, False):
            found = self.lab.read(EARLIEST, read_compacted=read_compacted)
            assert found == self.model.view(EARLIEST, read_compacted=read_compacted)

    def check_files(self) -> None:
        files, ledgers = self.lab.files, DATA / "ledgers"
        record = self.lab.topic.record
        used = {str(each) for each in (*record.ledger_ids, record.compacted.ledger_id)}
        there = {folder for folder in files.listdir(ledgers) if files.listdir(ledgers / folder)}
        assert there <= used


def calls_of_a_compaction() -> int:
    history = History()
    before = len(history.lab.files.calls)
    history.compact()
    calls = len(history.lab.files.calls) - before
    history.lab.stop()
    return calls


CALLS = calls_of_a_compaction()


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
def test_the_nth_call_fails(number: int, code: int) -> None:
    """The broker continues, or its topic must be reloaded; a restart finds everything in order."""
    history = History()
    history.lab.files.fail_at(number, error=code)
    with suppress(LedgerfoldError):
        history.lab.compact()
    history.lab.restart()
    history.check()


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize("number", range(1, CALLS + 1))
def test_the_power_fails_after_the_nth_call(number: int, tail: Tail) -> None:
    history = History()
    history.lab.files.crash_at(number)
    history.lab.run_until_crash(history.lab.compaction())
    history.lab.crash(tail)
    history.check()
