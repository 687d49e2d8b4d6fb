"""A raw ledger with entries that a repair gave up: reads skip the gap, nothing waits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgerfold.broker.subscriptions.cursor_operations import nth_after, skip_messages
from ledgerfold.broker.subscriptions.lifecycle import create_subscription, seek_subscription
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.ledger import StoreSettings
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import MessageId
from tests.model import broker_lab
from tests.model.broker_lab import DATA, BrokerLab
from tests.model.log_model import Message
from tests.support.lossy_files import LossyFiles
from tests.support.offline import Offline

ENTRIES = 12
# Of the first ledger: in the middle of a segment, and the last of all.
LOST = (3, 4, 7, 11)


def value(number: int) -> bytes:
    return b"value %d" % number


def damage_entry(files: LossyFiles, path: Path, number: int) -> None:
    """Changes the value of an entry, which states its number."""

    def change(data: bytes) -> bytes:
        assert data.count(value(number)) == 1
        return data.replace(value(number), value(number).upper())

    files.damage(path, change)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> Iterator[BrokerLab]:
    """Twelve entries in one ledger, four of them lost; and a topic that was published to since."""
    settings = StoreSettings(segment_bytes_max=1000, ledger_entries_max=ENTRIES)
    monkeypatch.setattr(broker_lab, "STORE", settings)
    lab = BrokerLab()
    lab.run(create_subscription(lab.topic, "s", StartPosition(earliest=True)))
    lab.publish([([Message(b"key", value(each))], False) for each in range(ENTRIES)])
    lab.stop()
    folder = DATA / "ledgers" / "1"
    for number in LOST:
        for name in lab.files.listdir(folder):
            if value(number) in bytes(lab.files.open_read(folder / name).pread(1 << 20, 0)):
                damage_entry(lab.files, folder / name, number)
    Offline(DATA, lab._pairs, lab.files).repair()
    lab.open()
    lab.publish([([Message(b"key", value(ENTRIES + each))], False) for each in range(2)])
    yield lab
    lab.stop()


def good() -> list[int]:
    return [each for each in range(ENTRIES + 2) if each not in LOST]


def read(lab: BrokerLab, start: Position = EARLIEST, *, compacted: bool = False) -> list[bytes]:
    return [each.message.value for each in lab.read(start, read_compacted=compacted)]


def test_the_ledger_has_the_lost_entries_that_the_test_expects(lab: BrokerLab) -> None:
    record = lab.metadata.ledger(1)
    assert record is not None
    assert [(each.first_entry_id, each.last_entry_id) for each in record.lost] == [
        (3, 4),
        (7, 7),
        (11, 11),
    ]
    assert len(record.segments) > 3


def test_every_intact_entry_is_read_and_has_more_is_correct(lab: BrokerLab) -> None:
    """From the beginning, and from each position, lost or not. (`read` checks "has more".)"""
    assert read(lab) == [value(each) for each in good()]
    for start in range(ENTRIES):
        expected = [value(each) for each in good() if each >= start]
        assert read(lab, Position(1, start)) == expected


def test_a_subscription_has_no_backlog_after_the_existing_entries(lab: BrokerLab) -> None:
    """Lost entries cannot be acknowledged: the backlog excludes them, and mark-delete skips
    them.
    """
    subscription = lab.topic.subscriptions["s"]
    assert subscription.backlog_entries() == len(good())
    received = lab.consume(5, read_compacted=False)
    assert [each.message.value for each in received] == [value(each) for each in good()[:5]]
    assert subscription.cursor.mark_delete == Position(1, 6)
    assert subscription.backlog_entries() == len(good()) - 5
    lab.consume(len(good()) - 5, read_compacted=False)
    assert subscription.backlog_entries() == 0
    assert subscription.cursor.mark_delete == lab.topic.log.positions.last()


def test_lost_entries_are_not_counted(lab: BrokerLab) -> None:
    """Wherever the range begins and ends."""
    log = lab.topic.log
    assert log.ledgers.entries_between(Position(1, 2), Position(1, 5)) == 1
    assert log.ledgers.entries_between(Position(1, 2), Position(1, 4)) == 0
    assert log.ledgers.entries_between(Position(1, 3), Position(1, 7)) == 2
    assert log.ledgers.entries_between(EARLIEST, log.positions.last()) == len(good())


def test_skipping_counts_entries_that_exist(lab: BrokerLab) -> None:
    """The n-th entry behind a position is one that can be read."""
    log = lab.topic.log
    positions = [Position(1, each) for each in good() if each < ENTRIES]
    for count, expected in enumerate(positions, 1):
        assert nth_after(log, Position(1, -1), [], count) == expected
    subscription = lab.topic.subscriptions["s"]
    assert lab.run(skip_messages(lab.topic, subscription, 4)) == 4
    assert subscription.cursor.mark_delete == Position(1, 5)


def test_a_seek_into_a_gap_continues_after_it(lab: BrokerLab) -> None:
    """By id, and by the id behind it."""
    for wanted in (3, 4, 5):
        at = MessageId(ledger_id=1, entry_id=wanted, batch_index=-1)
        start = StartPosition(message_id=at, inclusive=True)
        lab.run(seek_subscription(lab.topic, "s", start))
        (first,) = lab.consume(1, read_compacted=False)
        assert first.message.value == value(5)


def test_a_seek_to_the_next_ledger_leaves_no_entry_before_it(lab: BrokerLab) -> None:
    """Its mark-delete is the last entry that exists of the ledger before (entry 10)."""
    next_ledger = lab.topic.log.positions.last().ledger_id
    at = MessageId(ledger_id=next_ledger, entry_id=0, batch_index=-1)
    lab.run(seek_subscription(lab.topic, "s", StartPosition(message_id=at, inclusive=True)))
    subscription = lab.topic.subscriptions["s"]
    assert subscription.cursor.mark_delete == Position(1, 10)
    assert subscription.backlog_entries() == 2


def test_a_compaction_succeeds_over_the_gap(lab: BrokerLab) -> None:
    """Twice: the second one begins behind the first one's horizon."""
    run = lab.compact()
    assert run is not None
    assert lab.succeeded(run)
    assert read(lab, compacted=True) == [value(ENTRIES + 1)]
    lab.publish([([Message(b"key", b"last")], False)])
    run = lab.compact()
    assert run is not None
    assert lab.succeeded(run)
    assert read(lab, compacted=True) == [b"last"]


def test_a_restart_changes_nothing(lab: BrokerLab) -> None:
    """The record of lost entries stays, and a second repair finds nothing to do."""
    lab.consume(5, read_compacted=False)
    lab.restart()
    assert read(lab) == [value(each) for each in good()]
    assert lab.topic.subscriptions["s"].backlog_entries() == len(good()) - 5
    lab.stop()
    assert Offline(DATA, lab._pairs, lab.files).plan().steps == []
    lab.open()
