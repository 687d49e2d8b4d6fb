"""Tests the figures of raw ledgers that are kept without traversing them."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from ledgerfold.broker.compaction.history import CompactionStats
from ledgerfold.broker.log.backlog import LedgerSums
from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.broker.policies.retention import Hold, Holds, kept_by, ledgers_to_trim
from ledgerfold.broker.stats.topic import topic_stats
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.storage import ledger as ledger_module
from ledgerfold.storage.entry import EARLIEST, LATEST, Position
from ledgerfold.storage.ledger import LedgerReader
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_CLOSED,
    LEDGER_STATE_OPEN,
    LedgerRecord,
    Policies,
)
from ledgerfold.v1.records_pb2 import Position as PositionRecord
from tests.model.broker_lab import STORE, BrokerLab
from tests.model.log_model import Message
from tests.support.property_tests import examples

LEDGERS = 40
READERS_MAX = 8


class Counts:
    """Counts the objects created and read."""

    readers = records = 0

    def reset(self) -> None:
        self.readers = self.records = 0


@pytest.fixture
def counts(monkeypatch: pytest.MonkeyPatch) -> Counts:
    """With far fewer readers than ledgers."""
    counts = Counts()
    make, get = LedgerReader.__init__, MetadataStore.ledger

    def counted_make(self: LedgerReader, *arguments: object) -> None:
        counts.readers += 1
        make(self, *arguments)  # type: ignore[arg-type]

    def counted_get(self: MetadataStore, ledger_id: int) -> LedgerRecord | None:
        counts.records += 1
        return get(self, ledger_id)

    monkeypatch.setattr(ledger_module, "READERS_MAX", READERS_MAX)
    monkeypatch.setattr(LedgerReader, "__init__", counted_make)
    monkeypatch.setattr(MetadataStore, "ledger", counted_get)
    return counts


@pytest.fixture
def lab(counts: Counts) -> Iterator[BrokerLab]:
    """With `LEDGERS` closed ledgers, kept, and a subscription that has had nothing."""
    lab = BrokerLab()
    keep = Policies(retention_ms=-1, retention_bytes=-1, compaction_threshold_bytes=1 << 40)
    lab.topic.record.policies.CopyFrom(keep)
    lab.run(create_subscription(lab.topic, "s", StartPosition(earliest=True)))
    fill(lab, LEDGERS)
    counts.reset()
    yield lab
    lab.stop()


def fill(lab: BrokerLab, ledgers: int) -> None:
    """Publishes so many whole ledgers, one after the other."""
    for _ in range(ledgers):
        lab.publish([([Message(b"k", b"v")], False)] * STORE.ledger_entries_max)
    lab.settle()


def test_publishing_and_rolling_read_no_other_ledger(lab: BrokerLab, counts: Counts) -> None:
    """Trimming and the threshold look after each roll; each closed ledger is read in once."""
    assert len(lab.topic.log.ledgers.ids) >= LEDGERS
    lab.topic.subscriptions["s"].pass_over(lab.topic.log.positions.last())
    fill(lab, 5)
    assert counts.readers == 0
    assert counts.records <= 5


def test_reading_creates_one_reader_per_ledger_and_reads_no_record(
    lab: BrokerLab, counts: Counts
) -> None:
    """However often, and however few readers are kept."""
    for _ in range(2):
        counts.reset()
        entries = LEDGERS * STORE.ledger_entries_max
        assert len(lab.read(EARLIEST, read_compacted=False)) == entries
        assert counts.readers <= LEDGERS + 1
        assert counts.records <= 1
    counts.reset()
    assert len(lab.consume(entries, read_compacted=False)) == entries
    assert counts.readers <= LEDGERS + 1
    assert counts.records <= 1


def test_metrics_of_a_topic_need_neither_readers_nor_records(
    lab: BrokerLab, counts: Counts
) -> None:
    topic = lab.topic
    entries = LEDGERS * STORE.ledger_entries_max
    topic.log.ledgers.records()
    counts.reset()
    stats = topic_stats(topic, CompactionStats())
    assert stats["subscriptions"]["s"]["msgBacklog"] == entries
    assert stats["storageSize"] == topic.compaction_backlog_bytes() > 0
    assert topic.subscriptions["s"].backlog_entries() == entries
    assert topic.log.ledgers.entries_between(EARLIEST, LATEST) == entries
    assert lab.run(topic.trim()) == 0
    far = lab.clock.now_ms() + 60_000
    assert lab.run(topic.log.search.first_published_since(far)) > topic.log.positions.last()
    assert (counts.readers, counts.records) == (0, 0)


def test_a_restart_finds_the_same_figures(lab: BrokerLab, counts: Counts) -> None:
    """The load reads each record once; trimmed ledgers are forgotten."""
    before = [each.ledger_id for each in lab.topic.log.ledgers.records() if each.segments]
    sums = lab.topic.log.ledgers.sums()
    lab.restart()
    counts.reset()
    log = lab.topic.log
    assert counts.readers == 0
    assert [each.ledger_id for each in log.ledgers.records() if each.segments] == before
    assert log.ledgers.sums().size_bytes == sums.size_bytes
    lab.run(log.drop_ledgers(lambda: before[:5], hides_compacted=False))
    assert list(log.ledgers.ids)[: LEDGERS - 5] == before[5:]
    assert not any(each in log.ledgers for each in before[:5])
    entries = (LEDGERS - 5) * STORE.ledger_entries_max
    assert log.ledgers.entries_between(EARLIEST, LATEST) == entries
    assert log.positions.first() == Position(before[5], 0)
    assert len(lab.read(EARLIEST, read_compacted=False)) == entries


# -- against going through them all -------------------------------------------------------------


def made(rng: random.Random, ledger_id: int, *, is_closed: bool) -> LedgerRecord:
    """Builds a log of up to three segments, and perhaps of entries that a repair gave up."""
    record = LedgerRecord(
        ledger_id=ledger_id,
        state=LEDGER_STATE_CLOSED if is_closed else LEDGER_STATE_OPEN,
        closed_ms=ledger_id * 10,
    )
    entry_id = 0
    for _ in range(rng.randint(0, 3)):
        if is_closed and rng.random() < 0.2:
            record.lost.add(first_entry_id=entry_id, last_entry_id=entry_id)
            entry_id += 1
        count = rng.randint(1, 3)
        record.segments.add(
            entries=count,
            size_bytes=10 * count,
            first=PositionRecord(ledger_id=ledger_id, entry_id=entry_id),
            last=PositionRecord(ledger_id=ledger_id, entry_id=entry_id + count - 1),
            sealed=True,
        )
        entry_id += count
    return record


def positions_of(record: LedgerRecord) -> list[Position]:
    return [
        Position(record.ledger_id, entry_id)
        for each in record.segments
        for entry_id in range(each.first.entry_id, each.last.entry_id + 1)
    ]


def trimmed(
    records: list[LedgerRecord], passed: list[Position], policies: Policies, held: list[int]
) -> list[int]:
    """By size alone, one ledger after the other."""
    candidates = []
    for record in records[:-1]:
        last = last_entry(record)
        if record.state != LEDGER_STATE_CLOSED or (last is not None and last > min(passed)):
            break
        if record.ledger_id in held:
            break
        candidates.append(record)
    sizes = [sum(each.size_bytes for each in record.segments) for record in candidates]
    deletable = []
    for at, record in enumerate(candidates):
        if sum(sizes[at:]) <= policies.retention_bytes:
            break
        deletable.append(record.ledger_id)
    return deletable


def test_cached_figures_equal_traversed_ones() -> None:
    """Ledgers are added, closed and trimmed: counts, bytes, trimming."""
    rng = random.Random(11)
    for _ in range(examples(150)):
        stored: dict[int, LedgerRecord] = {}
        ledgers = RawLedgers([], stored.__getitem__)
        next_id = 0
        for _ in range(12):
            step = rng.random()
            if step < 0.6 or not stored:
                next_id += rng.randint(1, 3)
                stored[next_id] = made(rng, next_id, is_closed=False)
                ledgers.append(next_id)
            elif step < 0.85:
                opened = [x for x, each in stored.items() if each.state == LEDGER_STATE_OPEN]
                if opened:
                    stored[opened[0]] = made(rng, opened[0], is_closed=True)
            else:
                gone = list(stored)[: rng.randint(1, len(stored))]
                ledgers.drop_oldest(gone)
                for each in gone:
                    del stored[each]
            check(rng, ledgers, list(stored.values()), next_id)


def check(
    rng: random.Random, ledgers: RawLedgers, records: list[LedgerRecord], last_id: int
) -> None:
    there = [each for record in records for each in positions_of(record)]
    assert ledgers.records() == records

    def any_position() -> Position:
        return Position(rng.randint(-1, last_id + 1), rng.randint(-1, 9))

    for _ in range(4):
        after, upto = any_position(), any_position()
        expected = sum(after < each <= upto for each in there)
        assert ledgers.entries_between(after, upto) == expected
        assert ledgers.sums().entries_between(after, upto) == expected
        assert ledgers.sums().entries_in([(after, upto)]) == expected
        behind = LedgerSums(records).estimated_bytes_after(after)
        assert ledgers.estimated_bytes_after(after) == behind
        segments = [each for record in records for each in record.segments]
        assert ledgers.bytes_after(after) == sum(
            each.size_bytes
            for each in segments
            if Position(each.last.ledger_id, each.last.entry_id) > after
        )
        if records:
            held = [each for each in range(last_id) if rng.random() < 0.1]
            policies = Policies(retention_bytes=rng.choice([0, 30, 90]), retention_ms=-1)
            holds = Holds([Hold("a", after), Hold("b", upto)], damaged=held)
            found = ledgers_to_trim(ledgers, holds, policies, 0)
            assert found == trimmed(records, [after, upto], policies, held)
            kept = kept_by(ledgers, holds, policies, 0)
            assert [each for each, by in kept.items() if not by] == found
            assert list(kept) == ledgers.ids
