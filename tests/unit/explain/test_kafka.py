"""`explain` on Kafka topics: the reasons, and the log from which they follow."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgerfold.broker.explain.kafka import (
    Batch,
    Marker,
    NextRound,
    Record,
    explain,
    explain_marker,
    explain_missing,
)
from ledgerfold.broker.explain.kafka_scan import KafkaExplainer
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.kafka.cleanable import Limit
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import MessageId
from tests.support.kafka_lab import KafkaLab

ROUND = NextRound(
    first_dirty=40, bound=90, map_end=90, active_base=100, now_ms=5000, log_start=5, log_end=120
)
A_DAY_LATER = "1970-01-02T00:00:05.000Z"


def record(offset: int, value: bytes | None = b"v", **batch: object) -> Record:
    return Record(offset, 1000, b"k", value, Batch(offset, offset, **batch))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given", "mapped", "what", "then"),
    [
        (
            record(3),
            3,
            "below the log start offset",
            "kept: latest of its key below the clean point",
        ),
        (record(41), 41, "dirty: not cleaned", "kept: latest of its key up to the bound"),
        (
            record(10),
            41,
            "below the clean point 40",
            "removed by the next cleaning: superseded by 41",
        ),
        (
            record(41, None),
            41,
            "dirty",
            f"stays: tombstone; a cleaning now would set its delete horizon at {A_DAY_LATER}",
        ),
        (
            record(41, None, horizon_ms=5001),
            41,
            "dirty",
            "stays: tombstone, delete horizon at 1970-01-01T00:00:05.001Z, removed by the first "
            "cleaning after it",
        ),
        (
            record(41, None, horizon_ms=5000),
            None,
            "dirty",
            "removed by the next cleaning: tombstone, its delete horizon "
            "1970-01-01T00:00:05.000Z has passed",
        ),
        (
            record(41, is_aborted=True, last_of_producer=7),
            41,
            "dirty",
            "removed by the next cleaning: aborted transaction; last batch of producer 7: "
            "its header is kept",
        ),
        (record(105), 41, "in the active segment", "stays until its segment is rolled"),
        (
            record(95),
            41,
            "at or above the last stable",
            "stays until the open transaction has ended",
        ),
    ],
)
def test_the_reason_for_each_record(
    given: Record, mapped: int | None, what: str, then: str
) -> None:
    told = explain(given, ROUND, mapped=mapped)
    assert told.description.startswith(what)
    assert told.next == then
    assert told.by == (41 if "superseded" in then else None)


def test_a_record_without_a_key() -> None:
    told = explain(Record(50, 1, None, b"v", Batch(50, 50)), ROUND, mapped=None)
    assert told.next == "removed by the next cleaning: it has no key"


def test_records_after_a_full_map_are_kept() -> None:
    full = NextRound(40, 90, map_end=60, active_base=90, now_ms=0, keys_max=5_033_164)
    assert explain(record(59), full, mapped=59).next.startswith("kept")
    assert explain(record(60), full, mapped=59).next == (
        "stays: map full at 5,033,164 keys: next cleaning"
    )


def test_records_that_are_too_recent_for_cleaning() -> None:
    young = NextRound(40, 50, 50, active_base=90, now_ms=0, limit=Limit.MIN_COMPACTION_LAG)
    told = explain(record(60), young, mapped=None, newer=70)
    assert told.description == "below min.compaction.lag"
    assert told.next.endswith("superseded by 70, which no cleaning maps yet")


def test_nothing_to_clean() -> None:
    """Names the offset from which the log is dirty; no test read the sentence as a whole."""
    idle = NextRound(90, 90, 90, active_base=90, now_ms=10)
    told = explain(record(20, None, horizon_ms=5), idle, mapped=None)
    assert told.next == (
        "stays: the cleaner skips the log, which is clean below offset 90; tombstone, delete "
        "horizon at 1970-01-01T00:00:00.005Z"
    )
    assert explain(record(21), idle, mapped=None).next == (
        "stays: the cleaner skips the log, which is clean below offset 90"
    )


def test_a_horizon_beyond_the_calendar() -> None:
    for_ever = NextRound(0, 90, 90, 90, now_ms=1, delete_retention_ms=2**63 - 2)
    assert explain(record(1, None), for_ever, mapped=1).next.endswith(f"{2**63 - 1} ms")


def test_a_tombstone_that_gets_no_delete_horizon() -> None:
    """Its sum with the present exceeds 64 bits, which no retention of a test had done."""
    for_ever = NextRound(0, 90, 90, 90, now_ms=1, delete_retention_ms=2**63 - 1)
    assert explain(record(1, None), for_ever, mapped=1).next == (
        "stays: tombstone; with this delete.retention.ms it gets no delete horizon"
    )


@pytest.mark.parametrize(
    ("marker", "then"),
    [
        (Marker(50, 1, 7, True, True, Batch(50, 50)), "stays: batches of its transaction remain"),
        (
            Marker(50, 1, 7, False, False, Batch(50, 50, horizon_ms=1, last_of_producer=7)),
            "removed by the next cleaning: marker of an empty transaction, its delete horizon "
            "1970-01-01T00:00:00.001Z has passed; last batch of producer 7: its header is kept",
        ),
        (
            Marker(50, 1, 7, None, False, Batch(50, 50)),
            "removed by the next cleaning: no longer needed",
        ),
    ],
)
def test_markers(marker: Marker, then: str) -> None:
    assert explain_marker(marker, ROUND).next == then


def test_missing_messages() -> None:
    assert explain_missing(130, ROUND, None).description == "not written yet"
    assert explain_missing(2, ROUND, None).description == "deleted: below the log start offset"
    assert explain_missing(50, ROUND, None).description == "removed by a cleaning"
    assert "its batch, 48 to 52" in explain_missing(50, ROUND, Batch(48, 52)).next


@pytest.fixture
def lab() -> Iterator[KafkaLab]:
    lab = KafkaLab({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    yield lab
    lab.close()


def ask(lab: KafkaLab, key: bytes | None = None, offset: int | None = None) -> pb.ExplainResponse:
    request = pb.ExplainRequest(topic="any", key=key)
    if offset is not None:
        request.message_id.CopyFrom(MessageId(entry_id=offset))
    return lab.run(KafkaExplainer(lab.broker).explain([lab.kafka], request))


def test_a_key_and_its_offsets(lab: KafkaLab) -> None:
    lab.add([(b"a", b"1"), (b"b", b"1")], [(b"a", b"22")])
    lab.run(lab.kafka.roll())
    lab.add([(b"b", None)])
    told = ask(lab, b"a")
    assert [(each.id.entry_id, each.value_bytes, each.next) for each in told.versions] == [
        (0, 1, "removed by the next cleaning: superseded by 2"),
        (2, 2, "kept: latest of its key up to the bound"),
    ]
    assert told.versions[0].next_by.entry_id == 2
    first, last = ask(lab, b"b").versions
    assert first.next == "kept: latest of its key up to the bound"
    assert (last.what, last.next) == ("in the active segment", "stays until its segment is rolled")
    assert ask(lab, offset=0).versions == told.versions[:1]
    assert ask(lab, offset=9).versions[0].what == "not written yet"
    assert told.notes == ["A cleaning now would map offsets 0 to 2; its bound: active segment."]


def test_transactions(lab: KafkaLab) -> None:
    lab.add([(b"a", b"1")])
    lab.add([(b"a", b"2")], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    lab.run(lab.kafka.end_transaction(7, 0, commit=False, timestamp_ms=5))
    lab.run(lab.kafka.roll())
    first, second = ask(lab, b"a").versions
    assert first.next == "kept: latest of its key up to the bound"
    assert second.next == (
        "removed by the next cleaning: aborted transaction; last batch of producer 7: its header "
        "is kept"
    )
    (marker,) = ask(lab, offset=2).versions
    assert marker.what == "abort marker of producer 7, dirty: not cleaned yet"
    assert marker.next == "stays: batches of its transaction remain"


def test_a_full_map(lab: KafkaLab, monkeypatch: pytest.MonkeyPatch) -> None:
    config = type(lab.broker.kafka_config)
    monkeypatch.setattr(config, "map_keys_max", property(lambda _: 2))
    lab.add([(b"a", b"1")], [(b"b", b"1")], [(b"a", b"2")], [(b"b", b"2")])
    lab.run(lab.kafka.roll())
    told = ask(lab, b"b")
    # The map stops at the first record that finds it full, also of a key that it has.
    assert [each.next for each in told.versions] == [
        "kept: latest of its key up to the bound",
        "stays: map full at 2 keys: next cleaning",
    ]
    assert told.notes[0].startswith("A cleaning now would map offsets 0 to 1;")
    assert "Its map is full at 2 keys" in told.notes[1]


def test_requests_that_are_not_supported(lab: KafkaLab) -> None:
    lab.add([(b"a", b"1")], origin=Origin.CLIENT)
    request = pb.ExplainRequest(topic="any", message_id=MessageId(ledger_id=3, entry_id=1))
    with pytest.raises(InvalidRequest, match="has the id 0:N"):
        lab.run(KafkaExplainer(lab.broker).explain([lab.kafka], request))
