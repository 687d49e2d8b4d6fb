"""Explanations of a Kafka topic's records: their state, and the effect of the cleaner's next
cleaning.

Pure: kafka_scan.py collects the input. The rules are those of a cleaning
(compactor/kafka/record_filter.py), as sentences:

    >>> round_ = NextRound(first_dirty=40, bound=90, map_end=90, active_base=90, now_ms=5000)
    >>> record = Record(12, 1000, b"k", b"v", Batch(10, 14))
    >>> explain(record, round_, mapped=41).next
    'removed by the next cleaning: superseded by 41'
    >>> tombstone = Record(60, 1000, b"k", None, Batch(60, 60, horizon_ms=9000))
    >>> explain(tombstone, round_, mapped=60).next.partition(", ")[2]
    'delete horizon at 1970-01-01T00:00:09.000Z, removed by the first cleaning after it'
    >>> explain(Record(95, 1000, b"k", b"v", Batch(95, 95)), round_, mapped=60).description
    'in the active segment'

Source: Cleaner.cleanInto, Cleaner.shouldRetainRecord, CleanedTransactionMetadata of Kafka 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ledgerfold.broker.common.traffic import iso_time
from ledgerfold.kafka.cleanable import Limit, delete_horizon_ms
from ledgerfold.kafka.segment import NO_TIMESTAMP
from ledgerfold.v1 import explain_pb2 as pb


class Batch(NamedTuple):
    """A record batch. `last_of_producer`: the producer whose last known batch it is."""

    first_offset: int
    last_offset: int
    horizon_ms: int | None = None
    is_aborted: bool = False
    last_of_producer: int | None = None


class Record(NamedTuple):
    offset: int
    timestamp_ms: int
    key: bytes | None
    # None: a tombstone, if the record has a key.
    value: bytes | None
    batch: Batch


class Marker(NamedTuple):
    """A transaction marker. `has_data`: batches of its transaction remain in the log."""

    offset: int
    timestamp_ms: int
    producer_id: int
    # None: a cleaning has kept only its header.
    is_commit: bool | None
    has_data: bool
    batch: Batch


@dataclass(frozen=True, slots=True)
class NextRound:
    """The cleaning that would be done now. `map_end`: the end offset of the records in its map."""

    first_dirty: int
    bound: int
    map_end: int
    active_base: int
    now_ms: int
    delete_retention_ms: int = 86_400_000
    limit: Limit = Limit.ACTIVE_SEGMENT
    # The capacity of its map, in keys.
    keys_max: int = 0
    log_start: int = 0
    log_end: int = 0

    @property
    def is_any(self) -> bool:
        """True if there is anything to clean."""
        return self.bound > self.first_dirty


class Explanation(NamedTuple):
    description: str
    next: str
    rule: pb.CompactionRule = pb.COMPACTION_RULE_UNSPECIFIED
    by: int | None = None


_Rule = tuple[str, pb.CompactionRule]


def explain(
    record: Record, round_: NextRound, *, mapped: int | None, newer: int | None = None
) -> Explanation:
    """Explains a record. `mapped`: its key's offset in the cleaning's map; `newer`: its key's last
    offset.
    """
    what = where(record.offset, round_)
    if record.offset >= round_.bound:
        known = f"; superseded by {newer}, which no cleaning maps yet" if newer else ""
        return Explanation(what, f"{_until(record.offset, round_)}{known}")
    if not round_.is_any:
        return Explanation(what, f"{_skipped(round_)}{_horizon(record)}")
    sentence, rule = _fate(record, round_, mapped)
    if sentence.startswith("removed") and record.batch.last_of_producer is not None:
        producer = record.batch.last_of_producer
        sentence += f"; last batch of producer {producer}: its header is kept"
    by = mapped if rule == pb.COMPACTION_RULE_OBSCURED else None
    return Explanation(what, sentence, rule, by)


def _skipped(round_: NextRound) -> str:
    return f"stays: the cleaner skips the log, which is clean below offset {round_.bound}"


def _fate(record: Record, round_: NextRound, mapped: int | None) -> _Rule:
    if record.batch.is_aborted:
        return "removed by the next cleaning: aborted transaction", pb.COMPACTION_RULE_SKIPPED
    if record.offset >= round_.map_end:
        full = f"stays: map full at {round_.keys_max:,} keys: next cleaning"
        return full, pb.COMPACTION_RULE_UNSPECIFIED
    if record.key is None:
        return "removed by the next cleaning: it has no key", pb.COMPACTION_RULE_NULL_KEY
    if mapped is not None and mapped > record.offset:
        why = f"removed by the next cleaning: superseded by {mapped}"
        return why, pb.COMPACTION_RULE_OBSCURED
    if record.value is None:
        return _expiry("tombstone", record.batch, round_), pb.COMPACTION_RULE_TOMBSTONE
    below = "below the clean point" if record.offset < round_.first_dirty else "up to the bound"
    return f"kept: latest of its key {below}", pb.COMPACTION_RULE_NEWEST


def explain_marker(marker: Marker, round_: NextRound) -> Explanation:
    """Explains a transaction marker, or its remaining header."""
    ending = {True: "commit", False: "abort", None: "header of a"}[marker.is_commit]
    named = f"{ending} marker of producer {marker.producer_id}"
    what = f"{named}, {where(marker.offset, round_)}"
    if marker.offset >= round_.bound:
        return Explanation(what, _until(marker.offset, round_))
    if not round_.is_any:
        return Explanation(what, _skipped(round_))
    last = marker.batch.last_of_producer
    if marker.is_commit is None:
        if last is not None:
            return Explanation(what, f"stays: last batch of producer {last}: header kept")
        return Explanation(what, "removed by the next cleaning: no longer needed")
    if marker.has_data:
        return Explanation(what, "stays: batches of its transaction remain")
    sentence = _expiry("marker of an empty transaction", marker.batch, round_)
    if sentence.startswith("removed") and last is not None:
        sentence += f"; last batch of producer {last}: its header is kept"
    return Explanation(what, sentence)


def explain_missing(offset: int, round_: NextRound, batch: Batch | None) -> Explanation:
    """`batch`: the batch whose offset range includes it. `batch`: the one whose offset range
    includes it.
    """
    if offset >= round_.log_end:
        return Explanation("not written yet", f"the log ends at {round_.log_end}")
    if offset < round_.log_start:
        return Explanation(
            "deleted: below the log start offset", f"the log starts at {round_.log_start}"
        )
    if batch is None:
        return Explanation("removed by a cleaning", "nothing: offsets are never reused")
    span = f"{batch.first_offset} to {batch.last_offset}"
    return Explanation("removed by a cleaning", f"nothing; parts of its batch, {span}, remain")


def where(offset: int, round_: NextRound) -> str:
    if offset < round_.log_start:
        return "below the log start offset: not readable"
    if offset >= round_.active_base:
        return "in the active segment"
    if offset >= round_.bound:
        if round_.limit is Limit.MIN_COMPACTION_LAG:
            return "below min.compaction.lag"
        return "at or above the last stable offset, or in its segment"
    if offset < round_.first_dirty:
        return f"below the clean point {round_.first_dirty}"
    return "dirty: not cleaned yet"


def _until(offset: int, round_: NextRound) -> str:
    if offset >= round_.active_base:
        return "stays until its segment is rolled"
    if round_.limit is Limit.MIN_COMPACTION_LAG:
        return "stays until all of its segment is older than min.compaction.lag.ms"
    return "stays until the open transaction has ended"


def _expiry(name: str, batch: Batch, round_: NextRound) -> str:
    horizon_ms = batch.horizon_ms
    if horizon_ms is None:
        set_ms = delete_horizon_ms(round_.now_ms, round_.delete_retention_ms)
        if set_ms == NO_TIMESTAMP:
            return f"stays: {name}; with this delete.retention.ms it gets no delete horizon"
        return f"stays: {name}; a cleaning now would set its delete horizon at {iso_time(set_ms)}"
    horizon = iso_time(horizon_ms)
    if horizon_ms <= round_.now_ms:
        return f"removed by the next cleaning: {name}, its delete horizon {horizon} has passed"
    return f"stays: {name}, delete horizon at {horizon}, removed by the first cleaning after it"


def _horizon(record: Record) -> str:
    horizon_ms = record.batch.horizon_ms
    if record.value is not None or record.key is None or horizon_ms is None:
        return ""
    return f"; tombstone, delete horizon at {iso_time(horizon_ms)}"
