"""Writes Kafka logs directly to ledger files, runs rounds over them, and shows the result as text.

    >>> from tempfile import mkdtemp
    >>> log = KafkaLog(Path(mkdtemp()))
    >>> log.write("0:A=a0 1:B=b0 [2:A=a1 3:C=c0] |")
    >>> log.clean().end_offset, log.text()
    (4, '1:B=b0 2..3[2:A=a1 3:C=c0]')

In a log's text `[...]` is one batch, and a record outside of brackets is one, too; `3:C` is a
tombstone, `1:=v` has no key, `|` ends a segment. After the last `|` begins the active segment,
which a round does not see.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ledgerfold.compactor.job.inline import InlineEngine
from ledgerfold.compactor.kafka.job import CleaningJob
from ledgerfold.compactor.kafka.plan import plan_tasks
from ledgerfold.storage.entry import Codec, read_header, stamp
from ledgerfold.storage.kafka.batch import read_batch_header
from ledgerfold.storage.kafka.entries import entry_of
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch, records_of
from ledgerfold.storage.names import ledgers_dir
from ledgerfold.storage.segment import SegmentWriter, scan_segment
from ledgerfold.v1.compactor_pb2 import (
    ActiveProducer,
    CleanedGroup,
    CleanManifest,
    CleanPlan,
    CleanSegment,
)
from ledgerfold.v1.records_pb2 import AbortedTransaction

DAY_MS = 86_400_000
_TOKENS = re.compile(r"\[[^]]*\]|\S+")
_RECORD = re.compile(r"(\d+):([^=]*)(=.*)?")


def record_of(text: str, timestamp_ms: int = 0) -> KafkaRecord:
    matched = _RECORD.fullmatch(text)
    assert matched is not None, text
    offset, key, value = matched.groups()
    content = None if value is None else value[1:].encode()
    return KafkaRecord(int(offset), timestamp_ms, key.encode() or None, content, ())


def text_of(batch: bytes) -> str:
    """`5:{}` for a header alone, `0..2[1:b=v]` for a batch that lost some; `~99` is its horizon."""
    header = read_batch_header(batch)
    records = ["marker" if header.is_control else _text_of(record) for record in records_of(batch)]
    horizon = "" if header.delete_horizon_ms is None else f"~{header.delete_horizon_ms}"
    if not records:
        return f"{header.last_offset}:{{}}{horizon}"
    if header.is_control:
        return f"{header.last_offset}:marker{horizon}"
    if len(records) == header.last_offset_delta + 1 == 1:
        return records[0] + horizon
    return f"{header.base_offset}..{header.last_offset}[{' '.join(records)}]{horizon}"


def _text_of(record: KafkaRecord) -> str:
    value = "" if record.value is None else f"={record.value.decode()}"
    return f"{record.offset}:{(record.key or b'').decode()}{value}"


class KafkaLog:
    """A log, its checkpoint, and the files of its closed segments. A turn swaps them."""

    def __init__(self, data_dir: Path, **settings: Any) -> None:
        """`settings`: fields of the plan."""
        self.ledgers_dir = ledgers_dir(data_dir)
        self.ledgers_dir.mkdir(parents=True)
        self.segments: list[CleanSegment] = []
        self.checkpoint = 0
        self.producers: dict[int, ActiveProducer] = {}
        self.aborted: list[AbortedTransaction] = []
        self.settings = settings
        self._ids = itertools.count(1)
        self._pending: list[bytes] = []
        self._next_offset = 0

    def write(self, text: str, *, file_batches: int = 1000, **fields: Any) -> None:
        """`fields` of each batch, as build_batch has them; a producer is remembered."""
        for token in _TOKENS.findall(text):
            if token == "|":
                self.roll(file_batches)
            else:
                records = [record_of(each) for each in token.strip("[]").split()]
                self.add(build_batch(records, base_offset=records[0].offset, **fields))

    def add(self, batch: bytes) -> None:
        header = read_batch_header(batch)
        self._pending.append(batch)
        self._next_offset = header.next_offset
        if header.has_producer:
            known = self.producers.get(header.producer_id)
            last = header.last_offset
            if header.is_control:
                last = known.last_data_offset if known else -1
            self.producers[header.producer_id] = ActiveProducer(
                producer_id=header.producer_id,
                producer_epoch=header.producer_epoch,
                last_data_offset=last,
            )

    def roll(self, file_batches: int = 1000, next_base_offset: int = 0) -> None:
        """Ends a segment: a ledger of as many files as its batches take."""
        ledger_id = next(self._ids)
        base = self.segments[-1].next_base_offset if self.segments else 0
        segment = CleanSegment(
            base_offset=base,
            next_base_offset=next_base_offset or self._next_offset,
        )
        (self.ledgers_dir / str(ledger_id)).mkdir()
        batches = self._pending
        for first in range(0, len(batches), file_batches):
            writer = SegmentWriter(self.ledgers_dir, ledger_id, first)
            for number, batch in enumerate(batches[first : first + file_batches], first):
                entry = entry_of(batch, sequence_id=0, publish_time_ms=0)
                stamped = stamp(entry, ledger_id, number, 1, 1)
                writer.append(read_header(stamped), stamped)
            segment.files.append(writer.seal())
        segment.size_bytes = sum(map(len, batches))
        self.segments.append(segment)
        self._pending = []

    def plan(self, **fields: Any) -> CleanPlan:
        given = {
            "run_id": "round",
            "topic": "t",
            "ledgers_dir": str(self.ledgers_dir.absolute()),
            "segment_bytes_max": 1 << 26,
            "segments": self.segments,
            "first_dirty_offset": self.checkpoint,
            "upper_bound": self.segments[-1].next_base_offset,
            "time_ms": 1000,
            "delete_retention_ms": DAY_MS,
            "keys_max": 1000,
            "log_segment_bytes": 1 << 30,
            "index_bytes_max": 1 << 20,
            "index_interval_bytes": 4096,
            "producers": self.producers.values(),
            "aborted": self.aborted,
            "ledger_ids": [next(self._ids) for _ in self.segments],
        }
        return CleanPlan(**{**given, **self.settings, **fields})

    def clean(self, **fields: Any) -> CleanManifest:
        """A turn in this process; `fields` of the plan that are not as usual."""
        plan = self.plan(**fields)
        manifest = run_round(plan)
        if not plan.dry_run:
            self.take(manifest)
        return manifest

    def take(self, manifest: CleanManifest) -> None:
        """As a broker commits it."""
        self.checkpoint = manifest.end_offset
        old = self.segments
        cleaned: list[CleanSegment] = []
        aborted: list[AbortedTransaction] = []
        for group in manifest.groups:
            replaced, old = old[: group.source_segments], old[group.source_segments :]
            cleaned.append(_segment_of(group, replaced[-1].next_base_offset))
            aborted.extend(group.aborted)
        bound = cleaned[-1].next_base_offset
        aborted.extend(each for each in self.aborted if each.last_offset >= bound)
        self.segments, self.aborted = [*cleaned, *old], aborted

    def batches(self) -> list[bytes]:
        """Returns the batches of all closed segments."""
        return batches_of(self.ledgers_dir, self.segments)

    def text(self) -> str:
        return " ".join(map(text_of, self.batches()))


def _segment_of(group: CleanedGroup, next_base_offset: int) -> CleanSegment:
    return CleanSegment(
        base_offset=group.base_offset,
        next_base_offset=next_base_offset,
        is_cleaned=True,
        files=group.files,
        size_bytes=group.size_bytes,
        offset_index_bytes=group.offset_index_bytes,
        time_index_bytes=group.time_index_bytes,
    )


def run_round(plan: CleanPlan, cores: int = 2) -> CleanManifest:
    """Without Spark."""
    tasks = plan_tasks(plan, cores)
    return CleaningJob(InlineEngine(cores), plan, tasks, lambda: 0.0).run(Path.mkdir)


def batches_of(ledgers: Path, segments: Iterable[CleanSegment]) -> list[bytes]:
    """In order; headers and positions are checked on the way."""
    found: list[bytes] = []
    for segment in segments:
        for record in segment.files:
            path = ledgers / record.path
            content = path.read_bytes()
            for header, offset in scan_segment(path, record):
                batch = content[offset + header.header_bytes : offset + header.size_bytes]
                assert header.codec == Codec.KAFKA
                if segment.is_cleaned:
                    assert header.position == (0, read_batch_header(batch).last_offset)
                found.append(batch)
    return found
