"""When the active segment ends, and the size of Kafka's indexes of it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.kafka.config.settings import INT_MAX
from ledgerfold.kafka.rolling import Growth
from ledgerfold.kafka.segment import Segment, closed_from, floor_index

NEVER_MS = 10**15


def grown(*batches: tuple[int, int, int], **settings: int) -> Growth:
    """Returns the growth by batches (last offset, size, largest timestamp)."""
    growth = Growth(base_offset=0, created_ms=0, **settings)
    for last_offset, size_bytes, timestamp_ms in batches:
        growth.append(last_offset=last_offset, size_bytes=size_bytes, max_timestamp_ms=timestamp_ms)
    return growth


def must_end(
    growth: Growth,
    *,
    size_bytes: int = 1,
    timestamp_ms: int = 0,
    last_offset: int = 9,
    segment_bytes: int = 1000,
    roll_ms: int = NEVER_MS,
    now_ms: int = 0,
) -> bool:
    return growth.must_end(
        size_bytes=size_bytes,
        max_timestamp_ms=timestamp_ms,
        last_offset=last_offset,
        segment_bytes=segment_bytes,
        roll_ms=roll_ms,
        now_ms=now_ms,
    )


def test_a_segment_rolls_by_size() -> None:
    growth = grown((0, 900, 0))
    assert not must_end(growth, size_bytes=100)
    assert must_end(growth, size_bytes=101)


def test_age_counts_from_the_first_records_timestamp() -> None:
    growth = grown((0, 10, 1000), (1, 10, 900))
    assert not must_end(growth, timestamp_ms=1050, roll_ms=50, now_ms=NEVER_MS)
    assert must_end(growth, timestamp_ms=1051, roll_ms=50)


def test_age_without_timestamps_counts_from_the_segments_creation() -> None:
    growth = grown((0, 10, -1))
    assert not must_end(growth, timestamp_ms=5000, roll_ms=50, now_ms=50)
    assert must_end(growth, timestamp_ms=5000, roll_ms=50, now_ms=51)


def test_an_empty_segment_does_not_roll_by_age() -> None:
    assert not must_end(grown(), roll_ms=50, now_ms=1000)


def test_jitter_shortens_the_age_limit() -> None:
    assert must_end(grown((0, 10, 0), jitter_ms=10), timestamp_ms=41, roll_ms=50)


@pytest.mark.parametrize(("last_offset", "expected"), [(INT_MAX, False), (INT_MAX + 1, True)])
def test_offsets_must_fit_relative_to_the_base(last_offset: int, expected: bool) -> None:
    assert must_end(grown((0, 10, 0)), last_offset=last_offset) == expected


def test_a_full_index_rolls_the_segment() -> None:
    """Two entries of the time index fit into 24 bytes, and the last one is for the end."""
    settings = {"index_interval_bytes": 0, "index_bytes_max": 24}
    assert not must_end(grown((0, 10, 0), **settings))
    full = grown((0, 10, 0), (1, 10, 1), **settings)
    assert (full.time_index_bytes, must_end(full)) == (12, True)
    by_offsets = grown(*[(at, 10, 0) for at in range(4)], **settings)
    assert (by_offsets.offset_index_bytes, by_offsets.time_index_bytes) == (24, 12)


def test_the_time_index_has_times_that_grow_and_one_at_the_end() -> None:
    growth = grown((0, 10, 5), (1, 10, 3), (2, 10, 4), (3, 10, 7), index_interval_bytes=0)
    assert (growth.offset_index_bytes, growth.time_index_bytes) == (24, 24)
    growth.append(last_offset=4, size_bytes=10, max_timestamp_ms=9)
    growth.end()
    growth.end()
    assert growth.time_index_bytes == 36
    without = grown((0, 10, -1), index_interval_bytes=0)
    without.end()
    assert without.time_index_bytes == 0


def test_the_index_sizes_of_a_segment() -> None:
    growth = grown((2, 10, 5), (5, 20, 8), (6, 30, 8))
    segment = growth.segment(4)
    assert (segment.next_offset, segment.size_bytes, segment.ledger_id) == (7, 60, 4)
    assert (segment.first_batch_timestamp_ms, segment.max_timestamp_ms) == (5, 8)
    assert segment.max_timestamp_offset == 5
    assert grown().segment(4).is_empty


@given(st.lists(st.integers(61, 5000), max_size=40), st.integers(0, 5000))
def test_the_offset_index_has_one_entry_for_every_interval(sizes: list[int], interval: int) -> None:
    """More than the interval, and at most one batch more, lies between two entries."""
    growth = grown(*[(at, size, 0) for at, size in enumerate(sizes)], index_interval_bytes=interval)
    most = max(sizes, default=0)
    entries = growth.offset_entries
    assert entries * (interval + 1) <= growth.size_bytes
    assert growth.size_bytes <= (entries + 1) * (interval + most)


def test_the_segment_that_contains_an_offset() -> None:
    log = [Segment(1, 5, 7, 9), Segment(2, 10, 12, 9), Segment(3, 20, 20, 0)]
    bases = {at: floor_index(log, at) for at in (0, 5, 9, 10, 19, 20, 99)}
    assert bases == {0: 0, 5: 0, 9: 0, 10: 1, 19: 1, 20: 2, 99: 2}
    assert [len(closed_from(log, at)) for at in (0, 5, 10, 19, 20, 99)] == [2, 2, 1, 1, 0, 0]
