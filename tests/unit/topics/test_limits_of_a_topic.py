"""A topic's counts at their limits (docs/FORMATS.md, "Limits")."""

from __future__ import annotations

import asyncio
import functools

import pytest

from ledgerfold.broker.compaction.snapshot import check_coverage
from ledgerfold.broker.log.record_writes import RecordWrites
from ledgerfold.broker.log.stored_topic import StoredTopic
from ledgerfold.broker.topics.deduplication import Deduplication
from ledgerfold.storage import limits
from ledgerfold.storage import writer as writing
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import LimitExceeded
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.limits import PRODUCERS_MAX
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_CLOSED,
    RUN_STATE_ERROR,
    LedgerRecord,
    SegmentRecord,
    TopicRecord,
)
from tests.model.broker_lab import BrokerLab
from tests.model.log_model import Message
from tests.support.inline_executor import InlineExecutor
from tests.support.work import calls_of


def test_the_last_producer_number() -> None:
    """A producer gets it; another name is refused, a known one is not."""
    metadata = MetadataStore(MemoryKeyValue())
    record = TopicRecord(name="t", last_producer_number=PRODUCERS_MAX - 1)
    producers = Deduplication(StoredTopic(record, RecordWrites(metadata, InlineExecutor)), [])
    last = asyncio.run(producers.register("last", lambda: None))
    assert last.number == PRODUCERS_MAX
    with pytest.raises(LimitExceeded, match="another topic"):
        asyncio.run(producers.register("one more", lambda: None))
    assert asyncio.run(producers.register("last", lambda: None)) == last
    assert [each.name for each in metadata.producers("t")] == ["last"]


def test_a_ledger_rolls_at_its_limit_of_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing fails: the next entries are in another ledger."""
    monkeypatch.setattr(writing, "LEDGER_SEGMENTS_MAX", 2)
    lab = BrokerLab()
    try:
        for number in range(12):
            lab.publish([([Message(b"k%d" % number, b"x" * 700)], False)])
        assert max(len(each.segments) for each in lab.metadata.ledgers()) == 2
        assert len(lab.metadata.ledgers()) > 4
    finally:
        lab.stop()


def test_a_run_of_too_many_segments_fails_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is written; the topic is served as before."""
    lab = BrokerLab()
    try:
        for number in range(12):
            lab.publish([([Message(b"k%d" % number, b"x" * 700)], False)])
        monkeypatch.setattr(limits, "RUN_SEGMENTS_MAX", 3)
        run = lab.compact()
        assert run is not None
        assert (run.state, run.error_reason) == (RUN_STATE_ERROR, "LIMIT_EXCEEDED")
        assert "--segment-size" in run.error_message
        monkeypatch.undo()
        again = lab.compact()
        assert again is not None
        assert lab.succeeded(again)
    finally:
        lab.stop()


def test_coverage_of_many_ledgers_is_computed_quickly() -> None:
    """A billion messages, an entry each, are 20,000 ledgers: each is looked at once."""
    ledgers = [
        LedgerRecord(
            ledger_id=number,
            state=LEDGER_STATE_CLOSED,
            segments=[
                SegmentRecord(
                    sealed=True,
                    entries=50_000,
                    first={"ledger_id": number, "entry_id": 0},
                    last={"ledger_id": number, "entry_id": 49_999},
                )
            ],
        )
        for number in range(1, 2_001)
    ]
    segments = [each.segments[0] for each in ledgers]
    through = Position(len(ledgers), 49_999)
    check = functools.partial(check_coverage, ledgers, segments, after=EARLIEST, through=through)
    assert calls_of(check) < 50 * len(ledgers)
