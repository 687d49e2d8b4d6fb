"""Numbers of a run at the limits of the formats and of Arrow (docs/FORMATS.md, "Limits").

Large columns are views of unwritten memory, which the system does not allocate.
"""

from __future__ import annotations

import mmap
import tracemalloc
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ledgerfold.compactor.job import joined_keys as joining
from ledgerfold.compactor.job import scan_messages as scanning
from ledgerfold.compactor.job.arrow_integers import as_offsets
from ledgerfold.compactor.job.joined_keys import joined_keys, key_bytes_of
from ledgerfold.compactor.job.plan import cut, input_segments
from ledgerfold.compactor.job.rows import Messages, Positions
from ledgerfold.compactor.job.scan import scan
from ledgerfold.compactor.job.scan_messages import scan_messages
from ledgerfold.compactor.job.segment_map import SegmentMap
from ledgerfold.compactor.positions import ROW_BITS
from ledgerfold.compactor.strategies.strategy import FLAG_BITS
from ledgerfold.storage import limits
from ledgerfold.storage.errors import LimitExceeded
from ledgerfold.storage.limits import (
    COLUMN_BYTES_MAX,
    RECORD_BYTES_MAX,
    RUN_SEGMENTS_MAX,
    SEGMENT_BYTES_MAX,
)
from ledgerfold.storage.names import segment_path
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import KeyIndexRecord, LedgerRecord, SegmentRecord
from ledgerfold.v1.records_pb2 import Position as PositionRecord
from tests.model.strategy_model import Message
from tests.support.compaction import LogBuilder

MIB = 1024 * 1024
KEY_BYTES = 16 * MIB
HUGE = 2**63 - 1


def zero_keys(count: int) -> pa.BinaryArray:
    """A column of keys of KEY_BYTES zeros each."""
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    blob = mmap.mmap(-1, count * KEY_BYTES, flags=flags)
    offsets = np.arange(count + 1, dtype="<i4") * KEY_BYTES
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(blob)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def test_the_keys_of_a_bucket_may_exceed_a_column() -> None:
    """Arrow cannot join these columns: 2.5 GiB of one key, which many chunks of a log have."""
    columns = [zero_keys(80), zero_keys(80)]
    assert key_bytes_of(columns) > COLUMN_BYTES_MAX
    found = joined_keys(columns)
    assert [len(key) for key in found.keys.to_pylist()] == [KEY_BYTES]
    assert found.codes.tolist() == [0] * 160


@pytest.mark.parametrize("lists", [[], [[]], [[], []], [[], [b"a"], [], [b"b", b"a"], []]])
def test_columns_without_keys(lists: list[list[bytes]]) -> None:
    """Anywhere."""
    found = joined_keys([pa.array(each, pa.binary()) for each in lists])
    keys = found.keys.to_pylist()
    assert [keys[code] for code in found.codes] == [key for each in lists for key in each]
    assert sorted(keys) == sorted({key for each in lists for key in each})


def test_distinct_keys_that_exceed_a_column_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to do. Arrow's error, at two gigabytes, is simulated."""

    def dictionary_encode() -> None:
        raise pa.ArrowCapacityError("array cannot contain more than 2147483646 bytes")

    column = SimpleNamespace(dictionary_encode=dictionary_encode)
    fake = SimpleNamespace(
        chunked_array=lambda *_: column,
        binary=pa.binary,
        ArrowCapacityError=pa.ArrowCapacityError,
    )
    keys = pa.array([b"a"])
    monkeypatch.setattr(joining, "pa", fake)
    monkeypatch.setattr(joining, "COPIED_BYTES_MAX", 0)
    with pytest.raises(LimitExceeded, match=r"distinct keys.*partitioned topic"):
        joined_keys([keys])


def test_offsets_keep_more_than_32_bits() -> None:
    assert as_offsets(np.array([0, COLUMN_BYTES_MAX])).tolist() == [0, COLUMN_BYTES_MAX]
    with pytest.raises(LimitExceeded, match="segment-size"):
        as_offsets(np.array([0, COLUMN_BYTES_MAX + 1]))


def test_positions_and_flags_fit_into_63_bits() -> None:
    """The last row of the last segment, with a strategy's flags."""
    last = (RUN_SEGMENTS_MAX << ROW_BITS) - 1
    assert (last << FLAG_BITS) | (1 << FLAG_BITS) - 1 < HUGE


def record(ledger_id: int, messages: int = 1) -> SegmentRecord:
    position = PositionRecord(ledger_id=ledger_id, entry_id=0)
    return SegmentRecord(
        path=segment_path(ledger_id, 0),
        sealed=True,
        size_bytes=MIB,
        key_bytes=MIB // 4,
        entries=1,
        messages=messages,
        first=position,
        last=position,
    )


def plan(*segments: SegmentRecord) -> CompactionPlan:
    return CompactionPlan(
        strategy="publishing-order",
        ledgers_dir="/ledgers",
        segments=segments,
        ledger_id=100,
        horizon=segments[-1].last,
        segment_bytes_max=SEGMENT_BYTES_MAX,
    )


def test_a_plan_beyond_a_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each at its edge, and one above it."""
    input_segments(plan(record(1, 1 << ROW_BITS)))
    with pytest.raises(LimitExceeded, match="Messages in segment 1/"):
        input_segments(plan(record(1, (1 << ROW_BITS) + 1)))
    large = plan(record(1))
    large.segment_bytes_max += 1
    with pytest.raises(LimitExceeded, match="--segment-size"):
        cut(large, 2)
    monkeypatch.setattr(limits, "RUN_SEGMENTS_MAX", 2)
    input_segments(plan(record(1), record(2)))
    with pytest.raises(LimitExceeded, match="Segments of a compaction: 3; the limit is 2"):
        input_segments(plan(record(1), record(2), record(3)))


def test_a_plan_with_the_maximum_of_segments_fits_into_one_message() -> None:
    """And one metadata record: 256 MiB for each, at the largest numbers."""
    largest = SegmentRecord(
        path=segment_path(HUGE, HUGE),
        sealed=True,
        size_bytes=SEGMENT_BYTES_MAX,
        entries=SEGMENT_BYTES_MAX,
        messages=SEGMENT_BYTES_MAX,
        key_bytes=SEGMENT_BYTES_MAX,
        first=PositionRecord(ledger_id=HUGE, entry_id=HUGE),
        last=PositionRecord(ledger_id=HUGE, entry_id=HUGE),
        publish_time_min_ms=HUGE,
        publish_time_max_ms=HUGE,
        checksum=2**32 - 1,
        append_time_max_ms=HUGE,
        key_index=KeyIndexRecord(
            size_bytes=SEGMENT_BYTES_MAX, checksum=2**32 - 1, keyed_messages=SEGMENT_BYTES_MAX
        ),
    )
    each = LedgerRecord(segments=[largest]).ByteSize()
    assert each <= 200
    assert each * RUN_SEGMENTS_MAX < RECORD_BYTES_MAX


def test_property_names_count_toward_the_chunk_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A chunk ends when they fill it: many of them compress to next to nothing."""
    monkeypatch.setattr(scanning, "CHUNK_BYTES_MAX", 30)
    log = LogBuilder(tmp_path)
    # Each entry has a property, with a name and a content of one byte, and four other bytes.
    log.add_segment(1, [[Message(b"k", b"1"), Message(b"k", b"2")] for _ in range(20)])
    segments = input_segments(log.plan(2))
    rows = scan_messages(segments, frozenset(["properties"]), 1)
    chunks = [content for _, content in rows if isinstance(content, Messages)]
    sizes = {len(chunk.columns["entry_rows"]) // 4 for chunk in chunks}
    assert sizes == {5}


def test_messages_without_a_key_are_spread_over_the_buckets(tmp_path: Path) -> None:
    """One merge task would hold the positions of all."""
    log = LogBuilder(tmp_path)
    for ledger_id in range(1, 7):
        log.add_segment(ledger_id, [[Message(None, b"1")]])
    tasks = cut(log.plan(9, retain_null_key=True), 2)
    strategy: Any = tasks.strategy
    rows = [
        row
        for segment in tasks.segments
        for row in scan([segment], strategy, buckets=3, retain_null_key=True)
    ]
    assert [bucket for bucket, content in rows if isinstance(content, Positions)] == [
        0,
        1,
        2,
        0,
        1,
        2,
    ]


def test_a_sparse_segment_of_the_largest_size_is_mapped(tmp_path: Path) -> None:
    """The end of a file of a gigabyte is read as its beginning is."""
    path = tmp_path / "0.log"
    with path.open("wb") as file:
        file.truncate(SEGMENT_BYTES_MAX)
    segment: Any = SimpleNamespace(
        path=str(path), ordinal=0, record=SegmentRecord(size_bytes=SEGMENT_BYTES_MAX)
    )
    tracemalloc.start()
    with SegmentMap(segment) as mapped:
        assert mapped._bytes[SEGMENT_BYTES_MAX - 4 :] == bytes(4)
    assert tracemalloc.get_traced_memory()[1] < MIB
    tracemalloc.stop()
