"""A plot of a few lines as SVG, with logarithmic axes.

>>> drawn = plot("Cost", "keys", "s", [Line("ours", [1, 10], [0.5, 6])])
>>> drawn.startswith("<svg"), "ours" in drawn
(True, True)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

WIDTH, HEIGHT, MARGIN = 640, 400, 56
COLOURS = ("#1f6feb", "#d1495b", "#8a8a8a", "#2a9d55")


class Line(NamedTuple):
    """Points of one kind, in order of x; all are positive."""

    name: str
    x: Sequence[float]
    y: Sequence[float]


class _Axis:
    """A logarithmic mapping of values to coordinates between two ends."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._low, high = math.log10(min(values)), math.log10(max(values))
        self._start, self._scale = start, (end - start) / max(high - self._low, 0.1)
        self.ticks = sorted({min(values), *_rounds(self._low, high), max(values)})

    def at(self, value: float) -> float:
        return self._start + (math.log10(value) - self._low) * self._scale


def _rounds(low: float, high: float) -> list[float]:
    """Returns the powers of ten between two logarithms."""
    return [10.0**power for power in range(math.ceil(low), math.floor(high) + 1)]


def plot(title: str, x_name: str, y_name: str, lines: Sequence[Line]) -> str:
    """Returns an SVG document."""
    x_axis = _Axis([each for line in lines for each in line.x], MARGIN, WIDTH - MARGIN)
    y_axis = _Axis([each for line in lines for each in line.y], HEIGHT - MARGIN, MARGIN)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        _text(WIDTH / 2, 24, title),
        _text(WIDTH / 2, HEIGHT - 12, x_name),
        _text(MARGIN, MARGIN - 12, y_name),
    ]
    parts += [_text(x_axis.at(tick), HEIGHT - MARGIN + 18, f"{tick:.3g}") for tick in x_axis.ticks]
    parts += [_text(MARGIN - 26, y_axis.at(tick) + 4, f"{tick:.3g}") for tick in y_axis.ticks]
    for number, line in enumerate(lines):
        parts += _drawn(line, COLOURS[number % len(COLOURS)], x_axis, y_axis)
    return "\n".join([*parts, "</svg>\n"])


def _drawn(line: Line, colour: str, x_axis: _Axis, y_axis: _Axis) -> list[str]:
    places = [(x_axis.at(x), y_axis.at(y)) for x, y in zip(line.x, line.y, strict=True)]
    joined = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    circles = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in places]
    x, y = places[-1]
    name = f'<text x="{x:.1f}" y="{y - 8:.1f}" text-anchor="end" fill="{colour}">'
    return [
        f'<polyline points="{joined}" fill="none" stroke="{colour}"/>',
        *circles,
        f"{name}{escape(line.name)}</text>",
    ]


def _text(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'
