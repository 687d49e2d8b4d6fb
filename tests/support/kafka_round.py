"""Runs a round of Kafka's cleaner in this process; the pure model decides what is left.

It reads and writes through the file-system seam (storage/files.py), so that a disk that forgets or
fails can be put under it. It writes what the real worker writes: segments of whole or rebuilt
batches, and a manifest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ledgerfold.storage.entry import EntryHeader, read_header, stamp, verify_sections
from ledgerfold.storage.errors import MissingFile
from ledgerfold.storage.files import Files
from ledgerfold.storage.kafka.batch import NO_TIMESTAMP, read_batch_header, sealed
from ledgerfold.storage.kafka.entries import entry_of
from ledgerfold.storage.kafka.records import ControlType, columns_of, marker_type, records_of
from ledgerfold.storage.segment import SegmentWriter
from ledgerfold.v1.compactor_pb2 import (
    CleanedGroup,
    CleanManifest,
    CleanPlan,
    CleanSegment,
    CleanStats,
)
from ledgerfold.v1.records_pb2 import AbortedTransaction, SegmentRecord
from tests.model.kafka.batches import ABORT, COMMIT, LOG_APPEND_TIME, Batch, Record, fresh
from tests.model.kafka.cleaner import DOCUMENTED, KAFKA, Round
from tests.model.kafka.log import Clock, Log
from tests.model.kafka.producers import Producer, Refused, Sent
from tests.model.kafka.segments import Aborted, Segment
from tests.model.kafka.settings import TopicSettings
from tests.support.kafka_filtering import kept

_MARKERS = {ControlType.COMMIT: COMMIT, ControlType.ABORT: ABORT}


@dataclass(frozen=True)
class _Stored:
    """A batch of the log before the round, and the header of its entry."""

    entry: EntryHeader
    batch: bytes


class _PlannedLog(Log):
    """The log of a plan. It records the replaced segments."""

    def __init__(self, plan: CleanPlan, sizer: Callable[[Batch], int]) -> None:
        settings = {
            "segment.bytes": str(plan.log_segment_bytes),
            "segment.index.bytes": str(plan.index_bytes_max),
            "index.interval.bytes": str(plan.index_interval_bytes),
            "delete.retention.ms": str(plan.delete_retention_ms),
        }
        clock = Clock(plan.time_ms)
        start = plan.log_start_offset
        super().__init__(TopicSettings.of(settings), clock, start=start, sizer=sizer)
        self.replaced: list[tuple[int, Segment]] = []
        for each in plan.producers:
            last = each.last_data_offset
            sent = [Sent(last, last, 0, 0)] if last >= 0 else []
            self.producers.known[each.producer_id] = Producer(
                each.producer_epoch, sent=deque(sent, maxlen=5)
            )

    def replace_segments(self, old: list[Segment], new: Segment) -> None:
        self.replaced.append((len(old), new))


class KafkaRound:
    """A cleaning of one plan. `check` is called before each batch, and may raise."""

    def __init__(
        self, plan: CleanPlan, files: Files, check: Callable[[], None] = lambda: None
    ) -> None:
        self._plan, self._files, self._check = plan, files, check
        self._folder = Path(plan.ledgers_dir)
        # The log before the round, by last offset and by token; the result, by token.
        self._stored: dict[int, _Stored] = {}
        self._tokens: dict[int, int] = {}
        self._rebuilt: dict[int, bytes] = {}

    def run(self) -> CleanManifest:
        """Writes the ledgers. Raises Corruption, MissingFile, DiskFailure."""
        plan = self._plan
        log = _PlannedLog(plan, self._size_of)
        log.segments = [self._segment(each) for each in plan.segments]
        log.segments.append(Segment(plan.upper_bound, plan.time_ms))
        for line in plan.aborted:
            owner = max(n for n, s in enumerate(log.segments) if s.base <= line.last_offset)
            log.segments[owner].aborted.append(
                Aborted(
                    line.producer_id, line.first_offset, line.last_offset, line.last_stable_offset
                )
            )
        profile = KAFKA if plan.map_reopens_aborted else DOCUMENTED
        made = Round(log, plan.first_dirty_offset, plan.upper_bound, plan.keys_max, profile)
        manifest = CleanManifest(run_id=plan.run_id)
        try:
            manifest.end_offset = made.clean()
        except Refused as failure:
            manifest.end_offset, manifest.failure = plan.first_dirty_offset, failure.kind
        for number, (count, segment) in enumerate(log.replaced):
            ledger_id = 0 if plan.dry_run else plan.ledger_ids[number]
            manifest.groups.append(self._group(ledger_id, count, segment))
        stats = made.stats
        manifest.stats.CopyFrom(
            CleanStats(
                map_keys=stats.map_size,
                map_messages_read=stats.map_messages_read,
                messages_read=stats.messages_read,
                messages_written=stats.messages_written,
                bytes_read=stats.bytes_read,
                bytes_written=stats.bytes_written,
                invalid_messages_read=stats.invalid_messages_read,
            )
        )
        return manifest

    def folders(self) -> list[Path]:
        """Returns the folders that it may have created."""
        return [self._folder / str(each) for each in self._plan.ledger_ids]

    # -- the log before it -----------------------------------------------------------------

    def _segment(self, planned: CleanSegment) -> Segment:
        segment = Segment(planned.base_offset, self._plan.time_ms)
        interval = str(self._plan.index_interval_bytes)
        settings = TopicSettings.of({"index.interval.bytes": interval})
        for file in planned.files:
            for stored in self._read(file):
                self._check()
                batch = _model_of(stored.batch)
                self._stored[batch.last], self._tokens[batch.token] = stored, batch.last
                segment.append(batch, settings)
        segment.close()
        return segment

    def _read(self, file: SegmentRecord) -> Iterator[_Stored]:
        path = self._folder / file.path
        try:
            data = self._files.open_read(path).pread(file.size_bytes, 0)
        except FileNotFoundError as error:
            raise MissingFile(str(path), "a plan") from error
        if len(data) < file.size_bytes:
            raise MissingFile(str(path), "a plan")
        at = 0
        while at < len(data):
            header = read_header(data, at, file.path)
            verify_sections(data, header, at, file.path)
            yield _Stored(header, data[at + header.header_bytes : at + header.size_bytes])
            at += header.size_bytes

    # -- what is left ----------------------------------------------------------------------

    def _size_of(self, made: Batch) -> int:
        raw = self._stored[made.last].batch
        offsets = {record.offset for record in made.records}
        keep = [offset in offsets for offset in columns_of(raw).offsets]
        self._rebuilt[made.token] = kept(raw, keep, made.horizon)
        return len(self._rebuilt[made.token])

    def _bytes_of(self, left: Batch) -> bytes:
        raw = self._stored[left.last].batch
        if left.token in self._tokens:
            return raw
        return self._rebuilt[left.token] if left.records else _header_alone(raw)

    def _group(self, ledger_id: int, count: int, segment: Segment) -> CleanedGroup:
        files = [] if self._plan.dry_run else self._write(ledger_id, segment.batches)
        largest = segment.largest
        return CleanedGroup(
            ledger_id=ledger_id,
            base_offset=segment.base,
            source_segments=count,
            files=files,
            size_bytes=segment.size,
            batches=len(segment.batches),
            next_offset=segment.next_offset,
            max_timestamp_ms=largest[0],
            max_timestamp_offset=largest[1],
            first_batch_timestamp_ms=segment.first_timestamp(),
            offset_index_bytes=segment.offset_index_bytes,
            time_index_bytes=segment.time_index_bytes,
            aborted=[
                AbortedTransaction(
                    producer_id=each.pid,
                    first_offset=each.first,
                    last_offset=each.last,
                    last_stable_offset=each.stable,
                )
                for each in segment.aborted
            ],
        )

    def _write(self, ledger_id: int, batches: Sequence[Batch]) -> list[SegmentRecord]:
        folder, sealed = self._folder / str(ledger_id), list[SegmentRecord]()
        writer: SegmentWriter | None = None
        if batches:
            self._files.make_dir(folder)
        for left in batches:
            self._check()
            if writer is None:
                writer = SegmentWriter(self._folder, ledger_id, len(sealed), self._files)
            source = self._stored[left.last].entry
            entry = stamp(
                entry_of(
                    self._bytes_of(left),
                    sequence_id=source.sequence_id,
                    publish_time_ms=source.publish_time_ms,
                ),
                0,
                left.last,
                source.append_time_ms,
                source.producer_number,
            )
            writer.append(read_header(entry), entry)
            if writer.size_bytes >= self._plan.segment_bytes_max:
                sealed.append(writer.seal())
                writer = None
        if writer is not None:
            sealed.append(writer.seal())
        if batches:
            self._files.sync_dir(folder)
            self._files.sync_dir(self._folder)
        return sealed


def _model_of(batch: bytes) -> Batch:
    header = read_batch_header(batch)
    marker = ""
    if header.is_control and header.record_count:
        kind = marker_type(batch)
        marker = "" if kind is None else _MARKERS.get(kind, "")
    return fresh(
        Batch(
            header.base_offset,
            header.last_offset,
            tuple(
                Record(each.offset, each.timestamp_ms, each.key, each.value)
                for each in (records_of(batch) if header.record_count else ())
            ),
            timestamp_type=LOG_APPEND_TIME if header.timestamp_type else "CreateTime",
            base_timestamp=header.base_timestamp_ms,
            max_timestamp=header.max_timestamp_ms,
            horizon=header.delete_horizon_ms,
            pid=header.producer_id,
            epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            marker=marker,
            control=header.is_control,
            size=header.size_bytes,
        )
    )


def _header_alone(batch: bytes) -> bytes:
    """Without records, codec and horizon."""
    header = read_batch_header(batch)
    left = header._replace(
        attributes=header.attributes & 0b111000, base_timestamp_ms=NO_TIMESTAMP, record_count=0
    )
    return sealed(left, b"")
