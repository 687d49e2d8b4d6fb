"""Lines over time, in a square of 1000 by 1000 that a browser stretches. Pure.

    >>> plot = lines_plot([("now", [(0, 10), (5, 20)])])
    >>> plot.lines[0].points
    '0,500 1000,500 1000,0'
    >>> [each.text for each in plot.sizes]
    ['20 B', '15 B', '10 B', '5 B', '0 B']

A size holds until the next point, so lines have steps. Bound: LINES_MAX lines.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ledgerfold.broker.common.sizes import format_size

LINES_MAX = 8
_SIDE = 1000
_STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Line:
    """`number`: its colour, from 0."""

    name: str
    points: str
    number: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis. `at` in percent from the top, or from the left."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """`begin_ms` and `end_ms`: the times at its sides."""

    lines: Sequence[Line]
    sizes: Sequence[Tick]
    begin_ms: int
    end_ms: int


def lines_plot(series: Sequence[tuple[str, Sequence[tuple[int, int]]]]) -> Plot | None:
    """Draws series of (time in ms, bytes). None: there is nothing to draw."""
    series = [each for each in series if each[1]][:LINES_MAX]
    if not series:
        return None
    times = [time for _, points in series for time, _ in points]
    begin, end = min(times), max(times)
    top = max(1, *(size for _, points in series for _, size in points))
    lines = [
        Line(name, _steps(points, begin, max(1, end - begin), top), number)
        for number, (name, points) in enumerate(series)
    ]
    return Plot(lines, _ticks(top), begin, end)


def _steps(points: Sequence[tuple[int, int]], begin: int, span: int, top: int) -> str:
    corners, before = list[str](), ""
    for time, size in points:
        x, y = round(_SIDE * (time - begin) / span), round(_SIDE * (1 - size / top))
        if before:
            corners.append(f"{x},{before}")
        corners.append(f"{x},{y}")
        before = str(y)
    corners.append(f"{_SIDE},{before}")
    # Equal neighbours draw nothing.
    return " ".join(each for at, each in enumerate(corners) if not at or each != corners[at - 1])


def _ticks(top: int) -> list[Tick]:
    """Returns at most six round sizes, from the top down to 0."""
    unit = 1024 ** max(0, (top.bit_length() - 1) // 10)
    step = next(
        size
        for power in range(4)
        for base in _STEPS
        if (size := base * 10**power * unit) * 5 >= top
    )
    sizes = range(step * (top // step), -1, -step)
    return [Tick(round(100 * (1 - size / top), 2), format_size(size)) for size in sizes]
