"""A topic whose disk fails at every single call of a publish, a roll, an unload, a load.

Whatever it was: all that was acknowledged can be read at once, on the disk as it is; the next
publish succeeds; and a restart finds everything in order. With a disk that stays full, nothing is
tried in vain and nobody who reads is disturbed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from itertools import chain

import pytest

from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import DiskFailure, LedgerfoldError
from tests.model.broker_lab import DATA, TOPIC, BrokerLab
from tests.model.log_model import Message

# With those that are there before, more than a ledger takes.
ENTRIES = 5


class Setting:
    """A lab with a topic of several ledgers, and what the broker acknowledged."""

    def __init__(self) -> None:
        self.lab = BrokerLab()
        self.acknowledged: list[bytes] = []
        self.tried = 0
        for _ in range(2):
            self.publish(ENTRIES)

    def publish(self, count: int = 1) -> None:
        """One by one. Raises what the broker answers."""
        for _ in range(count):
            value = b"%d" % self.tried
            self.tried += 1
            self.lab.publish([([Message(b"k", value)], False)])
            self.acknowledged.append(value)

    def unload(self) -> None:
        self.lab.run(self.lab.broker.unload_topic(TOPIC))

    def readable(self) -> list[bytes]:
        """Everything that is. It holds all that was acknowledged, in order."""
        self.lab.settle()
        found = [read.message.value for read in self.lab.read(EARLIEST, read_compacted=False)]
        assert [value for value in found if value in self.acknowledged] == self.acknowledged
        assert found == sorted(found, key=int)
        return found

    def check(self, *, crashes: bool = False) -> None:
        self.readable()
        # Writes the topic's record as the broker has it now.
        self.lab.run(self.lab.topic.enable_compaction_cursor())
        if crashes:
            self.lab.crash()
            self.readable()
        self.publish()
        found = self.readable()
        self.lab.restart()
        assert self.readable() == found, "A reader that goes on sees the same sequence."
        self.check_files()
        self.lab.stop()

    def check_files(self) -> None:
        files, ledgers = self.lab.files, DATA / "ledgers"
        named = set(map(str, self.lab.topic.record.ledger_ids))
        there = {folder for folder in files.listdir(ledgers) if files.listdir(ledgers / folder)}
        assert there <= named


def publish_some(setting: Setting) -> None:
    """Enough for a roll."""
    setting.publish(ENTRIES)


def load(setting: Setting) -> None:
    setting.lab.run(setting.lab.broker.topic(TOPIC))


ACTIONS = [publish_some, Setting.unload, load]


def prepared(action: Callable[[Setting], None]) -> Setting:
    setting = Setting()
    if action is load:
        setting.lab.restart()
    return setting


def calls_of(action: Callable[[Setting], None]) -> range:
    setting = prepared(action)
    before = len(setting.lab.files.calls)
    action(setting)
    setting.lab.settle()
    calls = len(setting.lab.files.calls) - before
    setting.lab.stop()
    return range(1, calls + 1)


CASES = list(chain.from_iterable(((act, number) for number in calls_of(act)) for act in ACTIONS))


@pytest.mark.parametrize("crashes", [False, True])
@pytest.mark.parametrize(("action", "number"), CASES)
def test_the_nth_call_fails(action: Callable[[Setting], None], number: int, crashes: bool) -> None:
    """And all others go well; or the power goes after the next one."""
    setting = prepared(action)
    setting.lab.files.fail_at(number, error=errno.ENOSPC)
    with suppress(LedgerfoldError):
        action(setting)
    setting.check(crashes=crashes)


def test_a_full_disk_is_left_alone() -> None:
    """Publishers hear of it at once, readers not at all, until there is room."""
    setting = Setting()
    topic = setting.lab.topic
    reader = setting.lab.reader(EARLIEST, read_compacted=False)
    setting.lab.files.fail_at(1, error=errno.ENOSPC)
    setting.lab.files.free = 0
    for _ in range(3):
        calls = len(setting.lab.files.calls)
        with pytest.raises(DiskFailure):
            setting.publish()
    assert len(setting.lab.files.calls) == calls
    assert setting.lab.topic is topic
    assert [read.message.value for read in reader.rest()] == setting.acknowledged
    reader.close()
    setting.lab.files.free = 1 << 30
    setting.publish()
    assert setting.lab.topic is not topic
    setting.check()
