"""The rows of frames are the messages that a reader gets, whatever their codec: the reader's own
decoding is the oracle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ledgerfold.frames.query import Query
from ledgerfold.frames.reading import batches_in
from ledgerfold.frames.schema import NAMES, schema_of
from ledgerfold.storage.codec import decode
from ledgerfold.storage.columns import to_column
from ledgerfold.storage.decoded import decoded_key
from ledgerfold.storage.entry import EntryFields, build_entry, read_header, stamp
from ledgerfold.storage.errors import Corruption, IncompatibleFormat
from ledgerfold.storage.kafka.batch import BATCH_HEADER_BYTES, read_batch_header
from ledgerfold.storage.kafka.entries import KafkaBatch
from ledgerfold.storage.kafka.entries import entry_of as kafka_entry_of
from ledgerfold.storage.kafka.records import ControlType, build_columns, end_marker
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.pulsar.batch import PulsarBatch
from ledgerfold.storage.pulsar.metadata import is_sealed
from ledgerfold.storage.served_entry import read_served_header, with_live_rows
from ledgerfold.storage.stored_entries import StoredEntry
from ledgerfold.v1.entry_pb2 import NativeKeys, NativeValues
from tests.support.property_tests import examples
from tests.support.pulsar_entries import batch_entry, entry, metadata_of
from tests.support.pulsar_singles import singles

KEYS = st.none() | st.sampled_from([b"", b"a", b"k1", b"AAE=", b"\xff"])
TEXTS = st.text(max_size=3)


class MemoryPart:
    """Entries, as a part of a read."""

    def __init__(self, entries: Sequence[StoredEntry], *, is_kafka: bool = False) -> None:
        self._entries, self.partition = entries, 3
        self.offsets = (0, 2**62) if is_kafka else None

    def entries(self) -> Iterator[Sequence[StoredEntry]]:
        yield self._entries


@st.composite
def native_entries(draw: st.DrawFn) -> bytes:
    builder = NativeBatchBuilder("producer", b"\x01")
    plain = draw(st.booleans())
    numbered = draw(st.booleans())
    for row in range(1 if plain else draw(st.integers(1, 5))):
        builder.add(
            draw(st.none() | st.binary(max_size=5)),
            draw(KEYS),
            key_is_base64=draw(st.booleans()),
            properties=draw(st.none() | st.dictionaries(TEXTS, TEXTS, max_size=2)),
            event_time_ms=draw(st.sampled_from([0, 5])),
            sequence_id=3 * row if numbered else None,
        )
    return builder.build(
        sequence_id=100,
        publish_time_ms=draw(st.integers(0, 3)),
        compression=draw(st.integers(0, 4)),
        plain=plain,
    )


@st.composite
def pulsar_entries(draw: st.DrawFn) -> bytes:
    fields: dict[str, Any] = {"compression": draw(st.integers(0, 4))}
    if draw(st.booleans()):
        found = draw(st.lists(singles(), min_size=1, max_size=4))
        if draw(st.integers(0, 5)) == 0:
            # Sealed: one message to all who lack its key.
            metadata = metadata_of(num_messages_in_batch=len(found), partition_key=b"a")
            metadata.encryption_keys.append(b"k")
            return entry(metadata, b"sealed" * len(found))
        return batch_entry(found, **fields)
    if draw(st.integers(0, 3)) == 0:
        # A chunk of a larger message.
        chunk = {"uuid": b"u", "num_chunks_from_msg": 3, "chunk_id": 1}
        return entry(metadata_of(**chunk), b"abc")
    return entry(metadata_of(partition_key=b"a", event_time=4, **fields), b"value")


@st.composite
def kafka_entries(draw: st.DrawFn) -> bytes:
    if draw(st.integers(0, 5)) == 0:
        marker = end_marker(
            ControlType.COMMIT, base_offset=7, timestamp_ms=1, producer_id=1, producer_epoch=0
        )
        return kafka_entry_of(marker, sequence_id=0, publish_time_ms=1)
    rows = draw(st.integers(1, 5))
    values = draw(st.lists(st.none() | st.binary(max_size=4), min_size=rows, max_size=rows))
    keys = draw(st.lists(KEYS, min_size=rows, max_size=rows))
    headers = {0: (("h", b"1"), ("h", None))} if draw(st.booleans()) else None
    batch = build_columns(
        keys,
        values,
        draw(st.lists(st.integers(-3, 9), min_size=rows, max_size=rows)),
        headers,
        [2 * row for row in range(rows)],
        base_offset=draw(st.integers(0, 1000)),
        compression=draw(st.integers(0, 4)),
        producer_id=draw(st.sampled_from([-1, 12])),
    )
    return kafka_entry_of(batch, sequence_id=40, publish_time_ms=2)


@st.composite
def stored(draw: st.DrawFn, entries: st.SearchStrategy[bytes]) -> list[StoredEntry]:
    """Draws a log. Of some entries, only some rows are live."""
    found = list[StoredEntry]()
    for number, data in enumerate(draw(st.lists(entries, min_size=1, max_size=6))):
        stamped = stamp(data, 12, number, append_time_ms=9, producer_number=1)
        header = read_header(stamped)
        batch = decode(stamped, header)
        is_whole = isinstance(batch, KafkaBatch) or batch.rows != header.message_count
        if is_whole or header.is_plain or draw(st.booleans()) or _is_sealed(batch):
            found.append(StoredEntry(header, stamped))
            continue
        live = draw(st.sets(st.integers(0, batch.rows - 1), min_size=1))
        bits = sum(1 << row for row in live).to_bytes((batch.rows + 7) // 8, "little")
        found.append(StoredEntry(*with_live_rows(header, stamped, bits)))
    return found


def _is_sealed(batch: object) -> bool:
    return isinstance(batch, PulsarBatch) and is_sealed(batch.metadata)


def expected(entries: Sequence[StoredEntry]) -> list[dict[str, Any]]:
    """Returns the rows that the reader's decoding gives."""

    rows = []
    for header, data in entries:
        batch = decode(data, read_served_header(data))
        if isinstance(batch, KafkaBatch) and batch.batch.is_control:
            continue
        for row, message in enumerate(batch.messages()):
            offset = batch.offset(row) if isinstance(batch, KafkaBatch) else None
            time = message.event_time_ms
            has_time = time != (0 if offset is None else -1)
            key = message.key
            headers = None
            if isinstance(batch, KafkaBatch):
                pairs = batch.columns.headers.get(row, ())
                headers = [{"key": name, "value": value} for name, value in pairs]
            rows.append(
                {
                    "ledger_id": header.ledger_id if offset is None else 0,
                    "entry_id": header.entry_id if offset is None else offset,
                    "partition": 3,
                    "batch_index": message.batch_index if offset is None else -1,
                    "offset": offset,
                    "key": decoded_key(key) if key is not None and message.key_is_base64 else key,
                    "value": None if message.value_is_null else message.value,
                    "publish_time": header.publish_time_ms,
                    "event_time": time if has_time else None,
                    "producer_name": batch.producer_name,
                    "sequence_id": message.sequence_id
                    if offset is None or batch.producer_name
                    else None,
                    "properties": None if offset is not None else list(message.properties.items()),
                    "headers": headers,
                }
            )
    return rows


def read(part: MemoryPart, rows_max: int = 65_536, **arguments: Any) -> list[dict[str, Any]]:
    query = Query.of("t", data="unused", **arguments)
    found = list[dict[str, Any]]()
    for batch in batches_in(part, query, rows_max):
        assert len(batch) <= rows_max
        assert batch.schema == schema_of(query.columns)
        batch.validate(full=True)
        for name in ("publish_time", "event_time"):
            if name in query.columns:
                at = batch.schema.get_field_index(name)
                batch = batch.set_column(at, name, batch.column(name).cast("int64"))
        found += batch.to_pylist()
    return found


@settings(max_examples=examples(50))
@given(stored(native_entries() | pulsar_entries()), st.sampled_from([1, 2, 65_536]))
def test_rows_are_the_messages_of_a_reader(entries: list[StoredEntry], rows_max: int) -> None:
    assert read(MemoryPart(entries), rows_max) == expected(entries)


@settings(max_examples=examples(50))
@given(stored(kafka_entries()))
def test_rows_are_the_records_of_a_kafka_log(entries: list[StoredEntry]) -> None:
    assert read(MemoryPart(entries, is_kafka=True)) == expected(entries)


@settings(max_examples=examples(50))
@given(
    stored(native_entries() | pulsar_entries()),
    st.sets(st.sampled_from([b"", b"a", b"k1", b"\x00\x01"])),
    st.integers(0, 4),
    st.integers(0, 6),
    st.lists(st.sampled_from(NAMES), min_size=1, unique=True),
)
def test_filters_and_columns(
    entries: list[StoredEntry], keys: set[bytes], low: int, high: int, columns: list[str]
) -> None:
    arguments: dict[str, Any] = {
        "keys": keys,
        "start_time": low,
        "end_time": high,
        "columns": columns,
    }
    assert read(MemoryPart(entries), **arguments) == [
        {name: row[name] for name in columns}
        for row in expected(entries)
        if row["key"] in keys and low <= row["publish_time"] < high
    ]


@given(st.integers(0, 2**47), st.sampled_from([0, 1, 999]))
@example(2**31 * 1000 + 2, 0)
def test_times_are_exact(time_ms: int, microseconds: int) -> None:
    """Both bounds are rounded up. A test with times of which floats have no milliseconds had been
    missing.
    """
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    bound = epoch + timedelta(milliseconds=time_ms, microseconds=microseconds)
    query = Query.of("t", data="unused", start_time=bound, end_time=bound)
    assert query.start_ms == query.end_ms == time_ms + (microseconds > 0)


def test_offsets_outside_of_the_range_are_excluded() -> None:
    batch = build_columns([b"a"] * 4, [b"v"] * 4, [1] * 4, base_offset=10)
    data = stamp(kafka_entry_of(batch, sequence_id=1, publish_time_ms=1), 1, 0, 1, 1)
    part = MemoryPart([StoredEntry(read_header(data), data)], is_kafka=True)
    part.offsets = (11, 13)
    assert [row["offset"] for row in read(part)] == [11, 12]


@pytest.mark.parametrize(
    ("keys", "values"),
    [
        ({"value_sizes": to_column("I", [9])}, {}),
        ({"key_offsets": to_column("I", [0, 9])}, {}),
        ({"key_offsets": to_column("I", [1, 1])}, {}),
        ({"flags": b""}, {}),
        ({"event_times": b"1"}, {}),
        ({"batch_indexes": b"1"}, {}),
        ({}, {"sequence_ids": b"1"}),
        ({}, {"property_offsets": to_column("I", [0, 1])}),
        (
            {},
            {
                "property_offsets": to_column("I", [0, 1]),
                "property_name_offsets": to_column("I", [0, 1]),
                "property_names": b"\xff",
                "property_value_offsets": to_column("I", [0, 0]),
            },
        ),
    ],
)
def test_inconsistent_columns_are_damage(keys: dict[str, Any], values: dict[str, Any]) -> None:
    """Arrow would follow them into other memory."""
    good_keys = {
        "key_offsets": to_column("I", [0, 1]),
        "keys": b"k",
        "flags": b"\x01",
        "value_sizes": to_column("I", [1]),
    }
    section = NativeKeys(**good_keys | keys).SerializeToString()
    content = NativeValues(values=b"v", **values).SerializeToString()
    data = stamp(build_entry(section, content, EntryFields(1)), 12, 4, 1, 1)
    with pytest.raises(Corruption, match="12:4"):
        read(MemoryPart([StoredEntry(read_header(data), data)]))


def test_a_codec_of_a_later_build_is_refused() -> None:
    data = stamp(build_entry(b"", b"", EntryFields(1, codec=9)), 12, 4, 1, 1)
    with pytest.raises(IncompatibleFormat, match="12:4"):
        read(MemoryPart([StoredEntry(read_header(data), data)]))


def test_a_batch_without_records_has_no_rows() -> None:
    """A cleaning leaves it of a batch whose producer is still known."""
    batch = build_columns([b"a"], [b"v"], [1], base_offset=10)
    header = read_batch_header(batch)._replace(record_count=0)
    from ledgerfold.storage.kafka.entries import entry_of_parts

    empty = entry_of_parts(
        header._replace(length=BATCH_HEADER_BYTES - 12), b"", sequence_id=1, publish_time_ms=1
    )
    data = stamp(empty, 1, 0, 1, 1)
    assert read(MemoryPart([StoredEntry(read_header(data), data)], is_kafka=True)) == []
