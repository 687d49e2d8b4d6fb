"""Strips and plots: blocks follow one another, stay within their row, and are bounded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.broker.page.strip import (
    BLOCKS_MAX,
    MARKS_MAX,
    Block,
    Piece,
    kafka_strip,
    pulsar_strip,
)
from ledgerfold.broker.page.what_if import LINES_MAX, lines_plot
from ledgerfold.storage.entry import Position
from tests.support.property_tests import examples

SIZES = st.lists(st.integers(0, 2**40), max_size=200)


def pieces(sizes: Sequence[int]) -> list[Piece]:
    """Segments of ten entries, each in a ledger of its own."""
    return [
        Piece(f"Ledger {at}", size, Position(at, 0), Position(at, 9))
        for at, size in enumerate(sizes)
    ]


def check_row(blocks: Sequence[Block]) -> None:
    assert len(blocks) <= BLOCKS_MAX * 2 + 2
    for before, after in pairwise(blocks):
        assert after.x >= before.x + before.width - 0.01
    assert all(each.x >= 0 and each.x + each.width <= 100.1 for each in blocks)


@settings(max_examples=examples(200))
@given(SIZES, st.lists(st.integers(0, 2**40), max_size=3), st.integers(-1, 200), st.integers(0, 9))
def test_the_rows_end_at_the_horizon(
    raw: list[int], compacted: list[int], ledger: int, entry: int
) -> None:
    horizon = Position(ledger, entry) if ledger >= 0 else None
    cursors = [(f"s{at}", Position(at * 20, at % 10)) for at in range(12)]
    strip = pulsar_strip(pieces(raw), pieces(compacted), horizon, cursors)
    for row in strip.rows:
        check_row(row.blocks)
    assert len(strip.rows) == (1 if horizon is None else 2)
    assert len(strip.marks) == MARKS_MAX
    assert strip.marks_left_out == 12 + (horizon is not None) - MARKS_MAX
    assert all(0 <= each.x <= 100.1 for each in strip.marks)
    if horizon is not None and any(raw) and any(compacted):
        upper, lower = (row.blocks for row in strip.rows)
        (at,) = (each.x for each in strip.marks if each.kind == "horizon")
        kept = [each for each in upper if each.kind == "compacted"]
        passed = [each for each in lower if each.kind == "passed"]
        for side in (kept, passed):
            assert not side or abs(side[-1].x + side[-1].width - at) < 0.1


def test_a_cursor_is_drawn_within_its_segment() -> None:
    found = pulsar_strip(pieces([100, 100]), [], None, [("s", Position(1, 4))])
    assert [each.x for each in found.marks] == [75.0]
    before_all = pulsar_strip(pieces([100, 100]), [], None, [("s", Position(-1, -1))])
    assert [each.x for each in before_all.marks] == [0.0]


def test_small_parts_stay_visible_next_to_large_ones() -> None:
    found = pulsar_strip(pieces([10**12, 1]), [], Position(0, 9))
    assert found.rows[-1].blocks[-1].width >= 5


@settings(max_examples=examples(100))
@given(SIZES)
def test_a_kafka_log_has_one_row(sizes: list[int]) -> None:
    segments = [
        Piece(f"Segment {at}", size, Position(0, at * 10), Position(0, at * 10 + 9), "raw")
        for at, size in enumerate(sizes)
    ]
    strip = kafka_strip(segments, [("checkpoint", 25, "horizon"), ("end", 10**9, "cursor")])
    (row,) = strip.rows
    check_row(row.blocks)


POINTS = st.lists(st.tuples(st.integers(0, 2**41), st.integers(0, 2**50)), max_size=30)


@settings(max_examples=examples(200))
@given(st.lists(POINTS, max_size=LINES_MAX + 2))
def test_a_plot_stays_within_its_area(series: list[list[tuple[int, int]]]) -> None:
    plot = lines_plot([(f"line {at}", sorted(each)) for at, each in enumerate(series)])
    drawn = [each for each in series if each][:LINES_MAX]
    if plot is None:
        assert not drawn
        return
    assert len(plot.lines) == len(drawn)
    for line in plot.lines:
        corners = [tuple(map(int, each.split(","))) for each in line.points.split()]
        assert all(0 <= x <= 1000 and 0 <= y <= 1000 for x, y in corners)
        assert corners[-1][0] == 1000
    assert 1 <= len(plot.sizes) <= 7
    assert plot.sizes[-1].text == "0 B"
