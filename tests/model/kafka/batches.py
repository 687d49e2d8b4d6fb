"""Record batches as in Kafka's log: spans, exact sizes, and the results of filtering.

A batch is never changed. `token` stands for its bytes: two batches with the same token are equal
byte for byte, and a rebuilt batch has a new token.

    >>> batch = Batch(0, 0, (Record(0, 7, b"k", b"v"),), base_timestamp=7, max_timestamp=7)
    >>> size_of(batch)
    70
    >>> size_of(header_only(batch))
    61
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import NamedTuple

HEADER_BYTES = 61
NO_TIMESTAMP = -1
CREATE_TIME, LOG_APPEND_TIME = "CreateTime", "LogAppendTime"
COMMIT, ABORT = "commit", "abort"
_tokens = count(1)


class Record(NamedTuple):
    """`timestamp`: as written; a batch of append time overrides it for readers."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True)
class Batch:
    """`horizon`: the delete horizon, or None. `epoch` is that of the producer."""

    base: int
    last: int
    records: tuple[Record, ...]
    codec: str = "none"
    timestamp_type: str = CREATE_TIME
    base_timestamp: int = NO_TIMESTAMP
    max_timestamp: int = NO_TIMESTAMP
    horizon: int | None = None
    pid: int = -1
    epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    marker: str = ""
    control: bool = False
    size: int = 0
    token: int = 0
    # The time when a broker received it, which is not stored in it.
    appended_ms: int = field(default=0, compare=False)

    @property
    def next(self) -> int:
        return self.last + 1

    @property
    def has_producer(self) -> bool:
        return self.pid >= 0

    @property
    def last_sequence(self) -> int:
        """After 2^31 - 1, sequences continue with 0."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last - self.base) & 0x7FFFFFFF

    def timestamp_of(self, record: Record) -> int:
        """Returns the timestamp that a reader receives."""
        return self.max_timestamp if self.timestamp_type == LOG_APPEND_TIME else record.timestamp


def varint_bytes(number: int) -> int:
    """Returns the size of a zigzag number: as many groups of seven bits as it needs."""
    zigzag = (number << 1) if number >= 0 else ((-number << 1) - 1)
    return max(1, (zigzag.bit_length() + 6) // 7)


def _field_bytes(field: bytes | None) -> int:
    return varint_bytes(-1) if field is None else varint_bytes(len(field)) + len(field)


def _record_bytes(record: Record, batch: Batch) -> int:
    body = (
        1  # attributes
        + varint_bytes(record.timestamp - batch.base_timestamp)
        + varint_bytes(record.offset - batch.base)
        + _field_bytes(record.key)
        + _field_bytes(record.value)
        + 1  # no headers
    )
    return varint_bytes(body) + body


def size_of(batch: Batch) -> int:
    """Returns the size of an uncompressed batch."""
    return HEADER_BYTES + sum(_record_bytes(record, batch) for record in batch.records)


def fresh(batch: Batch) -> Batch:
    """Returns it with a new token: no other batch has these bytes."""
    return replace(batch, token=next(_tokens))


def header_only(batch: Batch) -> Batch:
    """Returns the header of a batch without records. An empty batch stays as it is."""
    if not batch.records:
        return batch
    return fresh(
        replace(
            batch,
            records=(),
            codec="none",
            base_timestamp=NO_TIMESTAMP,
            horizon=None,
            marker="",
            size=HEADER_BYTES,
        )
    )


def rebuilt(batch: Batch, kept: Sequence[Record], horizon: int | None) -> Batch:
    """Returns the same span, producer and kind with these records; its size is computed later."""
    records = tuple(each._replace(timestamp=batch.timestamp_of(each)) for each in kept)
    newest = max(each.timestamp for each in records)
    return fresh(
        replace(
            batch,
            records=records,
            horizon=horizon,
            base_timestamp=records[0].timestamp if horizon is None else horizon,
            max_timestamp=(
                batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else newest
            ),
        )
    )
