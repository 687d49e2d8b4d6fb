"""A topic's data as a strip of blocks, from old to new. Pure: positions become percentages.

A Pulsar topic has two rows, which meet at the horizon: what a reader of the compacted view reads
(the compacted ledger, then the raw entries after the horizon), and below it the raw log. Both have
one scale, so their difference is what compaction saves. A Kafka log has one row.

    >>> strip = pulsar_strip([Piece("1", 300, Position(1, 0), Position(1, 2))], [], None)
    >>> [(each.x, each.width) for each in strip.rows[-1].blocks]
    [(0.0, 100.0)]

Bounds: BLOCKS_MAX blocks of a row, the oldest are drawn as one; MARKS_MAX marks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from ledgerfold.broker.common.sizes import format_size
from ledgerfold.storage.entry import Position

BLOCKS_MAX = 120
MARKS_MAX = 8
# The least width of a side that is not empty, so that it is visible.
_SIDE_LEAST = 6.0
_EARLIEST = Position(-1, -1)


@dataclass(frozen=True, slots=True)
class Piece:
    """A segment. `first` and `last`: its positions; in a Kafka log (0, offset)."""

    name: str
    size_bytes: int
    first: Position
    last: Position
    kind: str = "raw"
    detail: str = ""
    dead_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Block:
    """`x` and `width` in percent. `dead`: the part of it that no reader gets, in percent."""

    x: float
    width: float
    kind: str
    title: str
    dead: float = 0.0


@dataclass(frozen=True, slots=True)
class Row:
    label: str
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Mark:
    """`level`: the line on which its name is written, so that neighbours stay legible."""

    x: float
    name: str
    kind: str = "cursor"
    level: int = 0

    @property
    def is_right(self) -> bool:
        return self.x > 55


@dataclass(frozen=True, slots=True)
class Strip:
    rows: Sequence[Row]
    marks: Sequence[Mark] = field(default_factory=tuple)
    marks_left_out: int = 0


def pulsar_strip(
    raw: Sequence[Piece],
    compacted: Sequence[Piece],
    horizon: Position | None,
    cursors: Sequence[tuple[str, Position]] = (),
) -> Strip:
    """Draws a topic. `horizon`: None if it was never compacted; `cursors`: mark-deletes."""
    at = horizon or _EARLIEST
    passed = [each for each in raw if each.last <= at]
    ahead = [each for each in raw if each.last > at]
    left_bytes = max(_size(passed), _size(compacted))
    meeting = _meeting(left_bytes, _size(ahead))
    scale = meeting / left_bytes if left_bytes else 0.0
    left_blocks = _blocks(passed, meeting - _size(passed) * scale, scale, "passed")
    right_scale = (100 - meeting) / _size(ahead) if ahead and _size(ahead) else 0.0
    right = _blocks(ahead, meeting, right_scale, "ahead")
    rows = [Row("Raw log", [*left_blocks, *right])]
    if horizon is not None:
        begin = meeting - _size(compacted) * scale
        view = _blocks(compacted, begin, scale, "compacted")
        rest = [Block(each.x, each.width, "tail", each.title) for each in right]
        rows.insert(0, Row("Compacted view", [*view, *rest]))
    scales = [(passed, left_blocks[-len(passed) :]), (ahead, right[-len(ahead) :])]
    placed = [pair for pieces, blocks in scales for pair in _pairs(pieces, blocks)]
    marks = [("horizon", meeting, "horizon")] if horizon is not None else []
    marks += [(name, _x_after(position, placed), "cursor") for name, position in cursors]
    return _with_marks(rows, marks)


def kafka_strip(segments: Sequence[Piece], offsets: Sequence[tuple[str, int, str]]) -> Strip:
    """Draws a Kafka log. `offsets`: a name, an offset, and the kind of each mark."""
    total = _size(segments)
    blocks = _blocks(segments, 0.0, 100 / total if total else 0.0, "")
    placed = _pairs(segments, blocks)
    marks = [
        (name, _x_after(Position(0, offset - 1), placed), kind) for name, offset, kind in offsets
    ]
    return _with_marks([Row("Log", blocks)], marks)


def _size(pieces: Sequence[Piece]) -> int:
    return sum(each.size_bytes for each in pieces)


def _meeting(left_bytes: int, right_bytes: int) -> float:
    """Returns where the sides meet, in percent. A side with anything has some room."""
    if not (left_bytes and right_bytes):
        return 100.0 if left_bytes else 0.0
    share = 100 * left_bytes / (left_bytes + right_bytes)
    return min(max(share, _SIDE_LEAST), 100 - _SIDE_LEAST)


def _blocks(pieces: Sequence[Piece], x: float, scale: float, kind: str) -> list[Block]:
    blocks = list[Block]()
    older = pieces[: max(0, len(pieces) - BLOCKS_MAX)]
    if older:
        width = _size(older) * scale
        title = f"{len(older):,} older segments, {format_size(_size(older))}"
        blocks.append(Block(_rounded(x), _rounded(width), kind or older[-1].kind, title))
        x += width
    for each in pieces[len(older) :]:
        width = each.size_bytes * scale
        dead = 100 * each.dead_bytes / each.size_bytes if each.size_bytes else 0.0
        own = each.kind if each.kind == "open" or not kind else kind
        detail = f", {each.detail}" if each.detail else ""
        title = f"{each.name}: {format_size(each.size_bytes)}{detail}"
        blocks.append(Block(_rounded(x), _rounded(width), own, title, _rounded(dead)))
        x += width
    return blocks


def _pairs(pieces: Sequence[Piece], blocks: Sequence[Block]) -> list[tuple[Piece, Block]]:
    """Returns the pieces that are drawn as blocks of their own, with these."""
    count = min(len(pieces), BLOCKS_MAX)
    return list(zip(pieces[len(pieces) - count :], blocks[len(blocks) - count :], strict=True))


def _x_after(position: Position, placed: Sequence[tuple[Piece, Block]]) -> float:
    """Returns where the entries after a position begin."""
    x = placed[0][1].x if placed else 0.0
    for piece, block in placed:
        if piece.last <= position:
            x = block.x + block.width
        elif piece.first <= position:
            entries = piece.last.entry_id - piece.first.entry_id + 1
            share = (position.entry_id - piece.first.entry_id + 1) / max(1, entries)
            return _rounded(block.x + block.width * min(1.0, share))
        else:
            break
    return _rounded(x)


def _with_marks(rows: Sequence[Row], marks: Sequence[tuple[str, float, str]]) -> Strip:
    drawn = sorted(marks[:MARKS_MAX], key=lambda each: each[1])
    placed = [Mark(_rounded(x), name, kind, level) for level, (name, x, kind) in enumerate(drawn)]
    return Strip(rows, placed, len(marks) - len(drawn))


def _rounded(value: float) -> float:
    return round(max(0.0, value), 3)
