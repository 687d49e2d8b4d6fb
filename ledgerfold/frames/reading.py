"""Converts entries to Arrow record batches.

Neighbouring entries of one codec become one batch: it ends at ROWS_MAX rows or BYTES_MAX, after a
whole entry. Larger ones are sliced, without a copy.

Bounds: a batch of BYTES_MAX and one entry, which has at most 128 MiB when it is decompressed, and
its Arrow columns.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext

import pyarrow as pa

from ledgerfold.frames.directory import Stored, held, opened
from ledgerfold.frames.messages import KafkaRows, PulsarRows
from ledgerfold.frames.native import NativeRows
from ledgerfold.frames.parts import Part
from ledgerfold.frames.query import Query
from ledgerfold.frames.remote import Remote
from ledgerfold.frames.rows import Rows
from ledgerfold.storage.codec import decoding, unknown_codec
from ledgerfold.storage.entry import Codec, EntryHeader, Position

ROWS_MAX = 65_536
BYTES_MAX = 16 * 1024 * 1024


def _source(query: Query) -> AbstractContextManager[Remote | Stored]:
    if query.url is not None:
        return Remote(query.url, query.credentials)
    assert query.data is not None
    return opened(query.data)


def parts_of(query: Query) -> Sequence[Part]:
    """Plans a read. Raises TopicNotFound, NotAllowed, StorageError, ServiceError."""
    with _source(query) as source:
        return source.parts(query)


def last_positions(query: Query) -> dict[str, Position]:
    """Returns the last message of the topic, or of each partition. Raises as `parts_of`.

    On a Kafka topic, only messages that the read would return count.
    """
    with _source(query) as source:
        return source.last_positions(query)


def batches_of(query: Query, rows_max: int = ROWS_MAX) -> Generator[pa.RecordBatch, None, None]:
    """Yields the rows of a read. A directory is held for as long as the iterator is in use."""
    with nullcontext() if query.data is None else held(query.data):
        for part in parts_of(query):
            yield from batches_in(part, query, rows_max)


def batches_in(part: Part, query: Query, rows_max: int = ROWS_MAX) -> Iterator[pa.RecordBatch]:
    """Yields the rows of a part. Raises Corruption for an entry that does not decode."""
    rows: Rows = NativeRows(query, part.partition)
    codec, first = -1, ""
    for entries in part.entries():
        for header, data in entries:
            if not query.takes(header):
                continue
            if header.codec != codec or rows.rows >= rows_max or rows.size_bytes >= BYTES_MAX:
                yield from _finished(rows, rows_max, first)
                codec, first = header.codec, str(header.position)
                rows = _rows_of(header, query, part)
            values_at = header.header_bytes + header.key_bytes
            with decoding(f"entry {header.position} of {query.topic}"):
                rows.add(header, data[header.header_bytes : values_at], data[values_at:])
    yield from _finished(rows, rows_max, first)


def _finished(rows: Rows, rows_max: int, first: str) -> Iterator[pa.RecordBatch]:
    if not rows.rows:
        return
    with decoding(f"one of the entries from {first} on"):
        batch = rows.batch()
    for start in range(0, len(batch), rows_max):
        yield batch.slice(start, rows_max)


def _rows_of(header: EntryHeader, query: Query, part: Part) -> Rows:
    if header.codec == Codec.NATIVE:
        return NativeRows(query, part.partition)
    if header.codec == Codec.PULSAR:
        return PulsarRows(query, part.partition)
    if header.codec == Codec.KAFKA and part.offsets is not None:
        return KafkaRows(query, part.partition, part.offsets)
    raise unknown_codec(header)
