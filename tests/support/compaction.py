"""Builds segments and plans from plain messages, and reads compacted ledgers, without a broker.

log = LogBuilder(data_dir)
log.add_segment(1, [[Message(b"a", b"1"), Message(b"a", b"2")], [Message(b"b", b"3")]])
plan = log.plan(ledger_id=2)
... run it ...
read_messages(log.ledgers_dir, manifest.segments) == log.expected()
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from ledgerfold.storage.codec import decode
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.deletion_vector import VectorCache
from ledgerfold.storage.entry import (
    EARLIEST,
    LATEST,
    Compression,
    read_header,
    stamp,
    verify_sections,
)
from ledgerfold.storage.files import REAL
from ledgerfold.storage.names import ledgers_dir
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.reader import LedgerReader
from ledgerfold.storage.segment import SegmentWriter
from ledgerfold.storage.segment_check import Bounds, check_segment
from ledgerfold.storage.served_entry import read_served_header
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from ledgerfold.v1.pulsar_pb2 import KeyValue
from ledgerfold.v1.records_pb2 import LEDGER_KIND_COMPACTED, LedgerRecord, SegmentRecord
from ledgerfold.v1.records_pb2 import Position as PositionRecord
from tests.model.strategy_model import Message, Outcome, publishing_order
from tests.support import pulsar_entries
from tests.support.ledgers import as_version_1

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
PUBLISH_TIME_MS = 1000
Batch = Sequence[Message]

KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"c", b"key-\xff\x00"]))
VALUES = st.sampled_from([b"", b"1", b"two", b"x" * 300])
MESSAGES = st.tuples(KEYS, VALUES).map(lambda drawn: Message(*drawn))
BATCHES = st.lists(MESSAGES, min_size=1, max_size=5)
# Logs: segments of batches of messages.
LOGS = st.lists(st.lists(BATCHES, min_size=1, max_size=4), min_size=1, max_size=4)
# The same with event times, some messages unbatched: LOGS has distinct values of each kind, these
# have ties.
TIMED_MESSAGES = st.builds(
    Message,
    st.one_of(st.none(), st.sampled_from([b"a", b"b", b"c"])),
    st.sampled_from([b"", b"1", b"two"]),
    st.integers(0, 6),
    st.booleans(),
    st.integers(1, 6),
)
TIMED_LOGS = st.lists(
    st.lists(st.lists(TIMED_MESSAGES, min_size=1, max_size=5), min_size=1, max_size=4),
    min_size=1,
    max_size=4,
)
COMPRESSIONS = st.sampled_from(list(Compression))


class Stored(NamedTuple):
    """A message as a reader gets it: its full id, key, value."""

    ledger_id: int
    entry_id: int
    batch_index: int
    key: bytes | None
    value: bytes


class LogBuilder:
    """A raw log; each segment is a separate ledger.

    Every other entry has version 1, as if an older build had written it. A batch whose first
    message is unbatched becomes one entry per message, all unbatched. Entries of messages without a
    publish time have PUBLISH_TIME_MS. If `mixed`, two of three entries come from Pulsar clients.
    """

    def __init__(self, data_dir: Path, *, is_mixed: bool = False) -> None:
        self._is_mixed = is_mixed
        self.ledgers_dir = ledgers_dir(data_dir)
        self.ledgers_dir.mkdir(parents=True, exist_ok=True)
        self.segments: list[SegmentRecord] = []
        self.messages: list[Stored] = []
        # The same for the oracles.
        self.told: list[Message] = []
        self._sequence = itertools.count()

    def add_segment(
        self, ledger_id: int, batches: Iterable[Batch], compression: int = Compression.NONE
    ) -> SegmentRecord:
        folder = self.ledgers_dir / str(ledger_id)
        folder.mkdir(parents=True, exist_ok=True)
        writer = SegmentWriter(self.ledgers_dir, ledger_id, 0)
        for entry_id, batch in enumerate(_entries(batches)):
            entry = self._entry(ledger_id, entry_id, batch, compression)
            writer.append(read_header(entry), entry)
        record = writer.seal()
        self.segments.append(record)
        return record

    def _entry(self, ledger_id: int, entry_id: int, batch: Batch, compression: int) -> bytes:
        builder = NativeBatchBuilder("producer")
        is_alone = batch[0].is_alone
        publish_time_ms = batch[0].publish_time_ms or PUBLISH_TIME_MS
        for index, message in enumerate(batch):
            key, value, event_time_ms, *_ = message
            builder.add(
                value,
                key,
                properties={"n": str(index)} if index % 2 else None,
                event_time_ms=event_time_ms,
            )
            batch_index = -1 if is_alone else index
            self.messages.append(Stored(ledger_id, entry_id, batch_index, key, value))
            self.told.append(Message(key, value, event_time_ms, is_alone, publish_time_ms))
        sequence_id = next(self._sequence)
        if self._is_mixed and entry_id % 3:
            built = _pulsar_entry(
                batch, compression, sequence_id=sequence_id, publish_time=publish_time_ms
            )
            return stamp(built, ledger_id, entry_id, append_time_ms=2000, producer_number=1)
        built = builder.build(
            sequence_id=sequence_id,
            publish_time_ms=publish_time_ms,
            compression=compression,
            plain=is_alone,
        )
        entry = stamp(built, ledger_id, entry_id, append_time_ms=2000, producer_number=1)
        return as_version_1(entry) if entry_id % 2 else entry

    def outcome(self, retain_null_key: bool = False) -> Outcome:
        return publishing_order(self.told, retain_null_key)

    def expected(self, retain_null_key: bool = False) -> list[Stored]:
        """Returns what the model keeps of all added messages."""
        return self.left(self.outcome(retain_null_key))

    def left(self, outcome: Outcome) -> list[Stored]:
        """Returns the messages that a model's outcome names."""
        return [self.messages[index] for index in outcome.survivors]

    def plan(
        self,
        ledger_id: int,
        retain_null_key: bool = False,
        previous: Manifest | None = None,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        strategy: str = "publishing-order",
        settings: Mapping[str, str] | None = None,
        time_ms: int = 0,
        segment_garbage_max: float = 0,
    ) -> CompactionPlan:
        """Returns a plan over the segments above the previous run's horizon and that run's
        output.
        """
        compacted = list(previous.segments) if previous else []
        horizon = _pair(previous.horizon) if previous else (-1, -1)
        raw = [record for record in self.segments if _pair(record.first) > horizon]
        return CompactionPlan(
            run_id=f"run-{ledger_id}",
            topic="persistent://public/default/topic",
            strategy=strategy,
            strategy_settings=settings,
            time_ms=time_ms,
            retain_null_key=retain_null_key,
            ledgers_dir=str(self.ledgers_dir),
            segments=[*compacted, *raw],
            compacted_segments=len(compacted),
            ledger_id=ledger_id,
            horizon_previous=PositionRecord(ledger_id=horizon[0], entry_id=horizon[1]),
            horizon=raw[-1].last if raw else None,
            segment_bytes_max=segment_bytes_max,
            segment_garbage_max=segment_garbage_max,
        )


def _pulsar_entry(batch: Batch, compression: int, **fields: int) -> bytes:
    """Returns the same messages as a Pulsar client sends them."""
    singles = []
    for index, (key, value, event_time_ms, *_) in enumerate(batch):
        single, _ = pulsar_entries.message(value or None, key, event_time=event_time_ms)
        if index % 2:
            single.properties.append(KeyValue(key=b"n", value=b"%d" % index))
        singles.append((single, value))
    if not batch[0].is_alone:
        return pulsar_entries.batch_entry(singles, compression=compression, **fields)
    single, value = singles[0]
    metadata = pulsar_entries.metadata_of(
        compression=compression, event_time=single.event_time, **fields
    )
    metadata.properties.extend(single.properties)
    if single.HasField("partition_key"):
        metadata.partition_key = single.partition_key
    return pulsar_entries.entry(metadata, value)


def _entries(batches: Iterable[Batch]) -> Iterator[Batch]:
    for batch in batches:
        if batch[0].is_alone:
            yield from ([message] for message in batch)
        else:
            yield batch


def read_stored(ledgers_dir: Path, segments: Iterable[SegmentRecord]) -> list[StoredMessage]:
    """Returns the decoded messages of a compacted ledger; verifies all checksums and records."""
    return [message for _, message in _read(ledgers_dir, segments)]


def read_messages(ledgers_dir: Path, segments: Iterable[SegmentRecord]) -> list[Stored]:
    """Returns the same as ids, keys and values."""
    return [
        Stored(*position, message.batch_index, message.key, message.value)
        for position, message in _read(ledgers_dir, segments)
    ]


def _read(
    ledgers_dir: Path, segments: Iterable[SegmentRecord]
) -> list[tuple[tuple[int, int], StoredMessage]]:
    found: list[tuple[tuple[int, int], StoredMessage]] = []
    for record in segments:
        check = check_segment(ledgers_dir / record.path, record, Bounds(EARLIEST), REAL)
        assert not check.damages
    reader = reader_of(ledgers_dir, segments)
    start = EARLIEST
    while entries := reader.read(start, bytes_max=10_000, end=LATEST):
        for entry in entries:
            # As a client receives it.
            header = read_served_header(entry.data)
            assert header == entry.header
            verify_sections(entry.data, header)
            messages = list(decode(entry.data, header).messages())
            assert len(messages) == header.message_count
            found.extend((header.position, message) for message in messages)
        start = entries[-1].header.position.next
    assert len(found) == reader.messages
    return found


def reader_of(ledgers_dir: Path, segments: Iterable[SegmentRecord]) -> LedgerReader:
    """Returns a reader of a compacted ledger with these segments."""
    record = LedgerRecord(kind=LEDGER_KIND_COMPACTED, segments=segments)
    vectors = VectorCache(ledgers_dir, REAL)
    return LedgerReader(
        lambda: record, lambda path: REAL.open_read(ledgers_dir / path), bytearray(1), vectors
    )


def damage(path: Path, offset: int) -> None:
    """Flips a bit."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(bytes(data))


def _pair(position: PositionRecord) -> tuple[int, int]:
    return position.ledger_id, position.entry_id
