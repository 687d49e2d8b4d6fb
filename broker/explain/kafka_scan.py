"""The scan that explains records of Kafka topics: it reads the whole log once, and applies
kafka.py.

Explains a key, or the record at an offset, by the effect of a cleaning at this moment. The log is
read as it is, including markers and empty batches.

Bounds: a page of the log, the newest VERSIONS_MAX records of the key, a number for each producer,
and a digest for each key of the cleaning's map, at most DIGESTS_MAX. If the log may have more keys,
a note says that the map may be full before the bound.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from ledgerfold.broker.explain.kafka import (
    Batch,
    Explanation,
    Marker,
    NextRound,
    Record,
    explain,
    explain_marker,
    explain_missing,
)
from ledgerfold.broker.explain.rules import VERSIONS_MAX
from ledgerfold.broker.explain.scan import ByPartition
from ledgerfold.broker.kafka.cleaner.choice import Candidate
from ledgerfold.broker.kafka.cleaner.cleaner import plan_of
from ledgerfold.broker.kafka.producers.producers import LastEntry
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.kafka.cleanable import Plan
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.kafka.batch import BatchHeader, read_batch_header
from ledgerfold.storage.kafka.records import columns_of, read_end_marker
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import MessageId

DIGESTS_MAX = 1_000_000
_PAGE_BYTES = 4 * 1024 * 1024


class KafkaExplainer(ByPartition[KafkaTopic]):
    """The explainer for Kafka topics."""

    async def _explain_one(
        self, topic: KafkaTopic, request: pb.ExplainRequest, versions_max: int
    ) -> tuple[pb.ExplainResponse, None]:
        if request.HasField("message_id") and request.message_id.ledger_id != 0:
            raise InvalidRequest("The message at offset N of a Kafka topic has the id 0:N.")
        partition, answer = topic.partition, pb.ExplainResponse(strategy="kafka")
        plan = plan_of(partition, self._broker.clock_ms())
        round_ = NextRound(
            first_dirty=plan.first_dirty_offset,
            bound=plan.bound,
            map_end=plan.bound,
            active_base=topic.log.segments.active.base_offset,
            now_ms=self._broker.clock_ms(),
            delete_retention_ms=topic.config.delete_retention_ms,
            limit=plan.limit,
            keys_max=self._broker.kafka_config.map_keys_max,
            log_start=partition.log_start_offset,
            log_end=partition.log.end_offset,
        )
        keys, offset = _keys(request), None
        if request.HasField("message_id"):
            offset = request.message_id.entry_id
            scan = await self._read(topic, _Scan(round_, topic, set(), offset), offset)
            if scan.at is None:
                explanation = explain_missing(offset, scan.round, scan.around)
                missing = _explained(offset, 0, explanation, place=pb.VERSION_PLACE_TRIMMED)
                answer.versions.append(missing)
                answer.notes.extend(_notes(topic, plan, scan))
                return answer, None
            keys = set() if isinstance(scan.at, Marker) else {scan.at.key}
        scan = await self._read(topic, _Scan(round_, topic, keys, offset), 0)
        answer.versions.extend(scan.explained())
        answer.versions_older = scan.older
        answer.notes.extend(_notes(topic, plan, scan))
        return answer, None

    async def _read(self, topic: KafkaTopic, scan: _Scan, offset: int) -> _Scan:
        """Scans from an offset on; if the offset is not 0, only its batch."""
        location, end = None, topic.log.durable_end_offset
        at = offset
        while True:
            read = await topic.log.reads.read(at, end=end, bytes_max=_PAGE_BYTES, location=location)
            if not read.batches:
                return scan
            batches = [each.entry.data[each.entry.header.header_bytes :] for each in read.batches]
            if offset:
                scan.take(batches[:1])
                return scan
            await asyncio.to_thread(scan.take, batches)
            at, location = read.next_offset, read.location


@dataclass
class _Scan:
    """A scan's findings about some keys, or about one offset."""

    round: NextRound
    topic: KafkaTopic
    keys: set[bytes | None]
    offset: int | None
    # The record or marker at the offset, and the batch whose offset range includes it.
    at: Record | Marker | None = None
    around: Batch | None = None
    older: int = 0
    # The keys' offsets in the map, and their last offsets.
    mapped: dict[bytes, int] = field(default_factory=dict)
    newest: dict[bytes, int] = field(default_factory=dict)
    dirty_records: int = 0
    is_map_full: bool = False
    is_map_unsure: bool = False
    _records: deque[Record] = field(default_factory=lambda: deque(maxlen=VERSIONS_MAX))
    _digests: set[bytes] = field(default_factory=set)
    _last_mapped: int = -1
    # Producers with batches in open transactions so far.
    _met: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._producers = self.topic.partition.producers.last_entries()
        self._aborted: dict[int, list[AbortedTransaction]] = {}
        for each in self.topic.partition.aborted():
            self._aborted.setdefault(each.producer_id, []).append(each)

    def take(self, batches: Iterable[bytes]) -> None:
        for data in batches:
            header = read_batch_header(data)
            batch = self._batch(header)
            if self.offset is not None and header.base_offset <= self.offset <= header.last_offset:
                self.around = batch
            if header.is_control:
                self._take_marker(header, batch, data)
            else:
                self._take_records(header, batch, data)

    def _batch(self, header: BatchHeader) -> Batch:
        is_aborted = header.is_transactional and any(
            each.first_offset <= header.base_offset <= each.last_offset
            for each in self._aborted.get(header.producer_id, ())
        )
        last = _last_of(header, self._producers.get(header.producer_id))
        return Batch(
            header.base_offset,
            header.last_offset,
            header.delete_horizon_ms,
            is_aborted and not header.is_control,
            header.producer_id if last else None,
        )

    def _take_marker(self, header: BatchHeader, batch: Batch, data: bytes) -> None:
        has_data = header.producer_id in self._met
        self._met.discard(header.producer_id)
        if self.offset is None or not header.base_offset <= self.offset <= header.last_offset:
            return
        end = read_end_marker(data) if header.record_count else None
        is_commit = None if end is None else not end.is_abort
        self.at = Marker(
            header.base_offset,
            header.max_timestamp_ms,
            header.producer_id,
            is_commit,
            has_data,
            batch,
        )

    def _take_records(self, header: BatchHeader, batch: Batch, data: bytes) -> None:
        if header.is_transactional:
            self._met.add(header.producer_id)
        if not header.record_count:
            return
        columns = columns_of(data)
        rows = zip(
            columns.offsets, columns.timestamps_ms, columns.keys, columns.values, strict=True
        )
        for offset, time_ms, key, value in rows:
            self._map(offset, key, batch)
            if offset == self.offset:
                self.at = Record(offset, time_ms, key, value, batch)
            if key in self.keys and key is not None and not batch.is_aborted:
                self.newest[key] = offset
            if key in self.keys and self.offset in (None, offset):
                if len(self._records) == VERSIONS_MAX:
                    self.older += 1
                self._records.append(Record(offset, time_ms, key, value, batch))

    def _map(self, offset: int, key: bytes | None, batch: Batch) -> None:
        """Fills the map as a cleaning does: once it is full, the scan stops."""
        round_ = self.round
        if self.is_map_full or not round_.first_dirty <= offset < round_.bound:
            return
        if key is None or batch.is_aborted:
            return
        if not self.is_map_unsure:
            if len(self._digests) >= round_.keys_max:
                self.is_map_full = True
                return
            self._digests.add(hashlib.md5(key, usedforsecurity=False).digest())
            if len(self._digests) >= DIGESTS_MAX:
                self.is_map_unsure = True
                self._digests.clear()
        self.dirty_records += 1
        self._last_mapped = offset
        if key in self.keys:
            self.mapped[key] = offset

    @property
    def round_found(self) -> NextRound:
        """The cleaning, with the end of its map."""
        if not self.is_map_full:
            return self.round
        return replace(self.round, map_end=self._last_mapped + 1)

    def explained(self) -> list[pb.ExplainedVersion]:
        round_ = self.round_found
        if isinstance(self.at, Marker):
            explanation = explain_marker(self.at, round_)
            return [_explained(self.at.offset, self.at.timestamp_ms, explanation)]
        return [self._explain(each, round_) for each in self._records]

    def _explain(self, record: Record, round_: NextRound) -> pb.ExplainedVersion:
        key = record.key
        mapped = None if key is None else self.mapped.get(key)
        newest = None if key is None else self.newest.get(key)
        newer = newest if newest is not None and newest > record.offset else None
        explanation = explain(record, round_, mapped=mapped, newer=newer)
        value_bytes = len(record.value or b"")
        return _explained(record.offset, record.timestamp_ms, explanation, value_bytes)


def _last_of(header: BatchHeader, last: LastEntry | None) -> bool:
    """Returns whether it is the last batch of a producer that the broker remembers."""
    if last is None or not header.has_producer:
        return False
    if last.last_data_offset >= 0:
        return header.last_offset == last.last_data_offset
    return header.is_control and header.producer_epoch == last.epoch


def _keys(request: pb.ExplainRequest) -> set[bytes | None]:
    """Returns the requested key; also its decoded form, if it is base64 of bytes that are not
    UTF-8.

    >>> sorted(_keys(pb.ExplainRequest(key=b"/w==")))
    [b'/w==', b'\\xff']
    """
    if not request.HasField("key"):
        return {None}
    keys: set[bytes | None] = {request.key}
    try:
        decoded = base64.b64decode(request.key, validate=True)
        decoded.decode()
    except UnicodeDecodeError:
        keys.add(decoded)
    except binascii.Error:
        pass
    return keys


def _explained(
    offset: int,
    time_ms: int,
    explanation: Explanation,
    value_bytes: int = 0,
    place: pb.VersionPlace = pb.VERSION_PLACE_RAW,
) -> pb.ExplainedVersion:
    explained = pb.ExplainedVersion(
        id=MessageId(ledger_id=0, entry_id=offset, partition=-1, batch_index=-1),
        event_time_ms=max(time_ms, 0),
        place=place,
        value_bytes=value_bytes,
        next_rule=explanation.rule,
        what=explanation.description,
        next=explanation.next,
        strategy="kafka",
    )
    if explanation.by is not None:
        by = MessageId(ledger_id=0, entry_id=explanation.by, partition=-1, batch_index=-1)
        explained.next_by.CopyFrom(by)
    return explained


def _notes(topic: KafkaTopic, plan: Plan, scan: _Scan) -> list[str]:
    config = topic.config
    if not config.is_compacted:
        return ["The topic is not cleaned: its cleanup.policy does not include compact."]
    round_ = scan.round_found
    notes = [
        f"A cleaning now would map offsets {plan.first_dirty_offset} to {round_.map_end - 1}; "
        f"its bound: {plan.limit.value}."
        if round_.is_any
        else f"There is nothing to clean: all offsets below {plan.bound} are clean."
    ]
    if scan.is_map_full:
        notes.append(
            f"Its map is full at {round_.keys_max:,} keys; the next cleaning continues there."
        )
    elif scan.is_map_unsure and scan.dirty_records > round_.keys_max:
        notes.append(
            f"More than {DIGESTS_MAX:,} keys are dirty: the map, of {round_.keys_max:,} keys, may "
            "be full before the bound; `cleaner plan` shows that."
        )
    verdict = Candidate(plan, config.min_cleanable_ratio).verdict
    if not verdict.is_eligible:
        notes.append(f"No cleaning is due: {verdict.value}.")
    if scan.older:
        notes.append(f"Only the newest of {scan.older + VERSIONS_MAX:,} records are listed.")
    return notes
