"""A topic whose disk fails at each call of a publish, a roll, an unload, a load.

In each case, all acknowledged messages can be read immediately, on the failed disk; the next
publish succeeds; and a restart finds everything in order. While a disk stays full, no useless write
is attempted, and readers are not affected.
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

# Together with the existing ones, more than a ledger holds.
ENTRIES = 5


class Setting:
    """A lab with a topic of several ledgers, and the acknowledged messages."""

    def __init__(self) -> None:
        self.lab = BrokerLab()
        self.acknowledged: list[bytes] = []
        self.tried = 0
        for _ in range(2):
            self.publish(ENTRIES)

    def publish(self, count: int = 1) -> None:
        """Publishes one by one. Raises the broker's error."""
        for _ in range(count):
            value = b"%d" % self.tried
            self.tried += 1
            self.lab.publish([([Message(b"k", value)], False)])
            self.acknowledged.append(value)

    def unload(self) -> None:
        self.lab.run(self.lab.broker.unload_topic(TOPIC))

    def readable(self) -> list[bytes]:
        """Returns everything that can be read. It contains all acknowledged messages, in order."""
        self.lab.settle()
        found = [read.message.value for read in self.lab.read(EARLIEST, read_compacted=False)]
        assert [value for value in found if value in self.acknowledged] == self.acknowledged
        assert found == sorted(found, key=int)
        return found

    def check(self, *, crashes: bool = False) -> None:
        self.readable()
        # Writes the topic's record in the broker's current state.
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
    """Publishes enough for a roll."""
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
    """All other calls succeed; or the power fails after the next one."""
    setting = prepared(action)
    setting.lab.files.fail_at(number, error=errno.ENOSPC)
    with suppress(LedgerfoldError):
        action(setting)
    setting.check(crashes=crashes)


def test_a_full_disk_refuses_publishers_and_not_readers() -> None:
    """Publishers get the error at once, readers are not affected, until there is room."""
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
