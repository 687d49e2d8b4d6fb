"""Rebuilds a batch of which some messages survive."""

from __future__ import annotations

import numpy as np
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.compactor.job.rebuild import RawEntry, keep_rows
from ledgerfold.storage.codec import decode, routing_of
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import (
    ENTRY_BYTES_MAX,
    Compression,
    EntryFields,
    EntryHeader,
    build_entry,
    entry_bytes_after_rebuild_max,
    read_header,
    stamp,
    verify_sections,
)
from ledgerfold.storage.errors import EntryTooLarge, InvalidRequest
from ledgerfold.storage.native import NativeBatchBuilder
from tests.support.compaction import COMPRESSIONS
from tests.support.ledgers import as_version_1
from tests.support.property_tests import examples

TEXTS = st.text("abé", max_size=4)


@st.composite
def batches(draw: st.DrawFn) -> tuple[NativeBatchBuilder, int]:
    """A filled builder and its row count; columns may be missing, as a producer leaves them out."""
    rows = draw(st.integers(1, 12))
    names_sequence_ids = draw(st.booleans())
    builder = NativeBatchBuilder("producer", b"schema")
    for row in range(rows):
        builder.add(
            draw(st.one_of(st.none(), st.binary(max_size=9))),
            draw(st.one_of(st.none(), st.binary(max_size=5))),
            key_is_base64=draw(st.booleans()),
            properties=draw(st.dictionaries(TEXTS, TEXTS, max_size=2)),
            event_time_ms=draw(st.sampled_from([0, 5, 2**40])),
            ordering_key=draw(st.one_of(st.none(), st.binary(max_size=3))),
            sequence_id=row * 10 if names_sequence_ids else None,
        )
    return builder, rows


def _split(entry: bytes) -> tuple[EntryHeader, RawEntry]:
    header = read_header(entry)
    keys_at = header.header_bytes
    values_at = keys_at + header.key_bytes
    return header, RawEntry(entry[:keys_at], entry[keys_at:values_at], entry[values_at:])


def _keep(entry: bytes, rows: list[int], renumber: bool = False) -> bytes:
    header, raw = _split(entry)
    return b"".join(keep_rows(header, raw, np.array(rows, np.int64), renumber=renumber))


def _messages(entry: bytes) -> list[StoredMessage]:
    verify_sections(entry, read_header(entry))
    return list(decode(entry).messages())


@settings(max_examples=examples(50))
@given(batches(), COMPRESSIONS, st.data())
def test_kept_rows_are_unchanged(
    batch: tuple[NativeBatchBuilder, int], compression: Compression, data: st.DataObject
) -> None:
    """BAT-14: every field of the rows that stay is unchanged, ids included; also done twice."""
    builder, count = batch
    built = builder.build(sequence_id=count * 10, publish_time_ms=7, compression=compression)
    entry = stamp(built, 3, 9, append_time_ms=8, producer_number=2)
    rows = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1)))
    kept = _keep(entry, rows)
    before = _messages(entry)
    assert _messages(kept) == [before[row] for row in rows]
    again = sorted(data.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1)))
    assert _messages(_keep(kept, again)) == [before[rows[row]] for row in again]


@settings(max_examples=examples(50))
@given(batches(), COMPRESSIONS, st.booleans(), st.data())
def test_kept_rows_may_be_renumbered(
    batch: tuple[NativeBatchBuilder, int],
    compression: Compression,
    was_rebuilt: bool,
    data: st.DataObject,
) -> None:
    """STR-05: indices and size of the batch change, all else stays; a single row is unbatched."""
    builder, count = batch
    built = builder.build(sequence_id=count * 10, publish_time_ms=7, compression=compression)
    entry = stamp(built, 3, 9, append_time_ms=8, producer_number=2)
    if was_rebuilt:
        entry = _keep(entry, sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1))))
    before = _messages(entry)
    rows = sorted(data.draw(st.sets(st.integers(0, len(before) - 1), min_size=1)))
    kept = _keep(entry, rows, renumber=True)
    assert _messages(kept) == [
        before[row]._replace(batch_index=index if len(rows) > 1 else -1, batch_size=len(rows))
        for index, row in enumerate(rows)
    ]
    header = read_header(kept)
    assert header.position == read_header(entry).position
    assert header.sequence_id == before[rows[-1]].sequence_id
    assert header.is_plain == (len(rows) == 1)


def test_a_rebuild_changes_only_counts_and_checksums_of_the_header() -> None:
    """Position, times, sequence id, producer, codec and compression survive a rebuild."""
    builder = NativeBatchBuilder("producer")
    for value in (b"1", b"2", b"3"):
        builder.add(value, b"key")
    built = builder.build(sequence_id=41, publish_time_ms=7, compression=Compression.ZSTD)
    before = read_header(stamp(built, 3, 9, append_time_ms=8, producer_number=2))
    after = read_header(_keep(stamp(built, 3, 9, append_time_ms=8, producer_number=2), [2]))
    assert after.message_count == 1
    assert after[1:11] == before[1:11]


def test_a_rebuild_keeps_version_1() -> None:
    """Its durable length at the write is unknown."""
    builder = NativeBatchBuilder("producer")
    for value in (b"1", b"2", b"3"):
        builder.add(value, b"key")
    built = builder.build(sequence_id=41, publish_time_ms=7)
    entry = stamp(built, 3, 9, append_time_ms=8, producer_number=2)
    kept = _keep(as_version_1(entry), [0, 2])
    assert kept == as_version_1(_keep(entry, [0, 2]))
    assert read_header(kept).version == 1


def test_columns_that_are_inconsistent_are_refused() -> None:
    """Offsets outside of the blob are an error even if the checksum is right."""
    builder = NativeBatchBuilder("producer")
    builder.add(b"1", b"key")
    builder.add(b"2", b"key")
    header, raw = _split(builder.build(sequence_id=1, publish_time_ms=7))
    shorter = raw._replace(value_section=raw.value_section.replace(b"12", b"1\n"))
    with pytest.raises(InvalidRequest):
        keep_rows(header, raw._replace(key_section=b"\x0a\x04\xff\xff\xff\xff"), np.array([0]))
    with pytest.raises(InvalidRequest):
        keep_rows(header, shorter._replace(value_section=b"\x0a\x011"), np.array([0]))


@settings(max_examples=examples(50))
@given(batches(), COMPRESSIONS, st.data())
def test_no_rebuild_is_larger_than_the_accepted_limit(
    batch: tuple[NativeBatchBuilder, int], compression: Compression, data: st.DataObject
) -> None:
    """Tests any columns and codecs of the producer, and any removed messages."""
    builder, count = batch
    entry = builder.build(sequence_id=count * 10, publish_time_ms=7, compression=compression)
    if count > 1:
        rows = sorted(data.draw(st.sets(st.integers(0, count - 1), min_size=1, max_size=count - 1)))
        most_bytes = entry_bytes_after_rebuild_max(len(entry), count)
        # Sections this small may grow by a codec's tables.
        assert len(_keep(entry, rows)) <= most_bytes + (32 if compression else 0)


def _old_batch(rows: int, value: bytes) -> tuple[EntryHeader, RawEntry]:
    """One that was published before batch indexes were counted at the door."""
    builder = NativeBatchBuilder("producer")
    builder.keys = ["k"] * rows
    builder.values = [value] * rows
    built = builder.build(sequence_id=rows, publish_time_ms=7)
    assert len(built) < ENTRY_BYTES_MAX < entry_bytes_after_rebuild_max(len(built), rows)
    return _split(stamp(built, 3, 9, append_time_ms=8, producer_number=2))


def test_an_old_batch_above_the_limit_is_compressed_harder() -> None:
    """16.2 MB with 650,000 messages became 18.9 MB, which could not be sent to a reader."""
    header, raw = _old_batch(650_000, b"fifteen bytes..")
    kept = b"".join(keep_rows(header, raw, np.arange(1, 650_000)))
    assert len(kept) < ENTRY_BYTES_MAX
    after = read_header(kept)
    assert (after.compression, after.message_count) == (Compression.ZSTD, 649_999)
    verify_sections(kept, after)
    assert decode(kept).value(649_998) == b"fifteen bytes.."


def test_an_old_batch_that_cannot_be_made_to_fit_fails_with_its_name() -> None:
    """Keys and indexes alone are too large, and are never compressed."""
    header, raw = _old_batch(1_300_000, b"v")
    with pytest.raises(EntryTooLarge, match=r"Entry 3:9 in 1/0\.log would take 18\d{6} bytes"):
        keep_rows(header, raw, np.arange(1, 1_300_000), "1/0.log")


def test_values_that_grow_when_recompressed_are_stored_unchanged() -> None:
    """A producer may have compressed harder than the compactor does: it looks back further."""
    noise = np.random.default_rng(1).bytes(1 << 20)
    builder = NativeBatchBuilder("producer")
    for value in (noise, noise, b"small"):
        builder.add(value, b"key")
    plain, raw = _split(builder.build(sequence_id=2, publish_time_ms=7))
    hard = zstandard.ZstdCompressor(level=19).compress(raw.value_section)
    section = plain.value_bytes.to_bytes(4, "little") + hard
    entry = build_entry(
        raw.key_section, section, EntryFields(message_count=3, compression=Compression.ZSTD)
    )
    assert len(entry) < 1.1 * len(noise)
    kept = _keep(entry, [0, 1])
    assert read_header(kept).compression == Compression.NONE
    assert [message.value for message in _messages(kept)] == [noise, noise]


def test_delivery_time_and_ordering_key_survive() -> None:
    """Tests the time of delivery, and the ordering key of the batch."""
    builder = NativeBatchBuilder("p")
    builder.deliver_at_ms = 77
    for key in (b"a", b"b"):
        builder.add(b"v", key, ordering_key=b"o")
    entry = builder.build(sequence_id=1, publish_time_ms=1)
    rebuilt = _keep(entry, [1])
    assert routing_of(rebuilt, read_header(rebuilt)) == (b"o", 77)
    assert decode(rebuilt).deliver_at_ms == 77
