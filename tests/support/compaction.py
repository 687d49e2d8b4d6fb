"""Segments and plans made from plain messages, and compacted ledgers read back, without a broker.

log = LogBuilder(data_dir)
log.add_segment(1, [[Message(b"a", b"1"), Message(b"a", b"2")], [Message(b"b", b"3")]])
plan = log.plan(ledger_id=2)
... run it ...
read_messages(log.ledgers_dir, manifest.segments) == log.expected()
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from hypothesis import strategies as st

from ledgerfold.storage.codec import decode
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import Compression, read_header, stamp, verify_sections
from ledgerfold.storage.names import ledgers_dir
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.segment import SegmentWriter, tally_segment
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from ledgerfold.v1.records_pb2 import Position as PositionRecord
from ledgerfold.v1.records_pb2 import SegmentRecord
from tests.model.strategy_model import Message, Outcome, publishing_order
from tests.support.ledgers import as_version_1

SEGMENT_BYTES_MAX = 64 * 1024 * 1024
Batch = Sequence[Message]

KEYS = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"c", b"key-\xff\x00"]))
MESSAGES = st.builds(Message, KEYS, st.sampled_from([b"", b"1", b"two", b"x" * 300]))
BATCHES = st.lists(MESSAGES, min_size=1, max_size=5)
# A log: segments of batches of messages.
LOGS = st.lists(st.lists(BATCHES, min_size=1, max_size=4), min_size=1, max_size=4)
COMPRESSIONS = st.sampled_from(list(Compression))


class Stored(NamedTuple):
    """A message as a reader sees it: its whole id, key, value."""

    ledger_id: int
    entry_id: int
    batch_index: int
    key: bytes | None
    value: bytes


class LogBuilder:
    """A raw log, segment by segment; each segment is a ledger of its own.

    Every other entry is of version 1, as if an older build had written it. `event_time_ms`: a
    message's, 0 for none.
    """

    def __init__(
        self, data_dir: Path, event_time_ms: Callable[[Message], int] = lambda _: 0
    ) -> None:
        self.ledgers_dir = ledgers_dir(data_dir)
        self.ledgers_dir.mkdir(parents=True, exist_ok=True)
        self.segments: list[SegmentRecord] = []
        self.messages: list[Stored] = []
        self._sequence = itertools.count()
        self._event_time_ms = event_time_ms

    def add_segment(
        self, ledger_id: int, batches: Iterable[Batch], compression: int = Compression.NONE
    ) -> SegmentRecord:
        folder = self.ledgers_dir / str(ledger_id)
        folder.mkdir(parents=True, exist_ok=True)
        writer = SegmentWriter(self.ledgers_dir, ledger_id, 0)
        for entry_id, batch in enumerate(batches):
            entry = self._entry(ledger_id, entry_id, batch, compression)
            writer.append(read_header(entry), entry)
        record = writer.seal()
        self.segments.append(record)
        return record

    def _entry(self, ledger_id: int, entry_id: int, batch: Batch, compression: int) -> bytes:
        builder = NativeBatchBuilder("producer")
        for index, (key, value) in enumerate(batch):
            builder.add(
                value,
                key,
                properties={"n": str(index)} if index % 2 else None,
                event_time_ms=self._event_time_ms(batch[index]),
            )
            self.messages.append(Stored(ledger_id, entry_id, index, key, value))
        built = builder.build(
            sequence_id=next(self._sequence), publish_time_ms=1000, compression=compression
        )
        entry = stamp(built, ledger_id, entry_id, append_time_ms=2000, producer_number=1)
        return as_version_1(entry) if entry_id % 2 else entry

    def outcome(self, retain_null_key: bool = False) -> Outcome:
        return publishing_order([Message(m.key, m.value) for m in self.messages], retain_null_key)

    def expected(self, retain_null_key: bool = False) -> list[Stored]:
        """What the model leaves of all that was added."""
        return [self.messages[index] for index in self.outcome(retain_null_key).survivors]

    def plan(
        self,
        ledger_id: int,
        retain_null_key: bool = False,
        previous: Manifest | None = None,
        segment_bytes_max: int = SEGMENT_BYTES_MAX,
        strategy: str = "publishing-order",
    ) -> CompactionPlan:
        """Over the segments above the previous run's horizon, and what that run wrote."""
        compacted = list(previous.segments) if previous else []
        horizon = _pair(previous.horizon) if previous else (-1, -1)
        raw = [record for record in self.segments if _pair(record.first) > horizon]
        return CompactionPlan(
            run_id=f"run-{ledger_id}",
            topic="persistent://public/default/topic",
            strategy=strategy,
            retain_null_key=retain_null_key,
            ledgers_dir=str(self.ledgers_dir),
            segments=[*compacted, *raw],
            compacted_segments=len(compacted),
            ledger_id=ledger_id,
            horizon_previous=PositionRecord(ledger_id=horizon[0], entry_id=horizon[1]),
            horizon=raw[-1].last if raw else None,
            segment_bytes_max=segment_bytes_max,
        )


def read_stored(ledgers_dir: Path, segments: Iterable[SegmentRecord]) -> list[StoredMessage]:
    """The messages of a compacted ledger, decoded; all checksums and records verified."""
    return [message for _, message in _read(ledgers_dir, segments)]


def read_messages(ledgers_dir: Path, segments: Iterable[SegmentRecord]) -> list[Stored]:
    """The same as ids, keys and values."""
    return [
        Stored(*position, message.batch_index, message.key, message.value)
        for position, message in _read(ledgers_dir, segments)
    ]


def _read(
    ledgers_dir: Path, segments: Iterable[SegmentRecord]
) -> list[tuple[tuple[int, int], StoredMessage]]:
    found: list[tuple[tuple[int, int], StoredMessage]] = []
    for record in segments:
        path = ledgers_dir / record.path
        assert tally_segment(path, record) == record
        data, offset = path.read_bytes(), 0
        while offset < len(data):
            header = read_header(data, offset)
            verify_sections(data, header, offset)
            entry = data[offset : offset + header.size_bytes]
            position = (header.ledger_id, header.entry_id)
            found.extend((position, message) for message in decode(entry).messages())
            offset += header.size_bytes
    return found


def damage(path: Path, offset: int) -> None:
    """Flips a bit."""
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(bytes(data))


def _pair(position: PositionRecord) -> tuple[int, int]:
    return position.ledger_id, position.entry_id
