"""A batch of which some messages survive, rebuilt."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from compactor.rebuild import RawEntry, keep_rows
from storage.codec import StoredMessage, decode
from storage.entry import (
    HEADER_BYTES,
    Compression,
    EntryHeader,
    read_header,
    stamp,
    verify_sections,
)
from storage.errors import InvalidRequest
from storage.native import NativeBatchBuilder
from tests.support.compaction import COMPRESSIONS

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
    values_at = HEADER_BYTES + header.key_bytes
    return header, RawEntry(entry[:HEADER_BYTES], entry[HEADER_BYTES:values_at], entry[values_at:])


def _keep(entry: bytes, rows: list[int]) -> bytes:
    header, raw = _split(entry)
    return b"".join(keep_rows(header, raw, np.array(rows, np.int64)))


def _messages(entry: bytes) -> list[StoredMessage]:
    verify_sections(entry, read_header(entry))
    return list(decode(entry).messages())


@given(batches(), COMPRESSIONS, st.data())
def test_kept_rows_are_what_they_were(
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


def test_the_header_keeps_everything_but_counts_and_checksums() -> None:
    """Position, times, sequence id, producer, codec and compression survive a rebuild."""
    builder = NativeBatchBuilder("producer")
    for value in (b"1", b"2", b"3"):
        builder.add(value, b"key")
    built = builder.build(sequence_id=41, publish_time_ms=7, compression=Compression.ZSTD)
    before = read_header(stamp(built, 3, 9, append_time_ms=8, producer_number=2))
    after = read_header(_keep(stamp(built, 3, 9, append_time_ms=8, producer_number=2), [2]))
    assert after.message_count == 1
    assert after[1:11] == before[1:11]


def test_columns_that_do_not_fit_are_refused() -> None:
    """Offsets that lead outside the blob are an error, whatever the checksum says."""
    builder = NativeBatchBuilder("producer")
    builder.add(b"1", b"key")
    builder.add(b"2", b"key")
    header, raw = _split(builder.build(sequence_id=1, publish_time_ms=7))
    shorter = raw._replace(value_section=raw.value_section.replace(b"12", b"1\n"))
    with pytest.raises(InvalidRequest):
        keep_rows(header, raw._replace(key_section=b"\x0a\x04\xff\xff\xff\xff"), np.array([0]))
    with pytest.raises(InvalidRequest):
        keep_rows(header, shorter._replace(value_section=b"\x0a\x011"), np.array([0]))
