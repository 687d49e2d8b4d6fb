"""The frame of a batch: all that lies between its records' times, keys and values.

A producer's batches are mostly laid out as those before it: as many records, each as long. Once the
records of one were looked through (alike.py), another of the same size is held against its frame:
where that is the same byte by byte, and each time ends where its did, keys and values begin and end
at the same places, and nothing is left to look at.

    >>> batch = bytes.fromhex("0e 00 02 00 02 6b 01 00 0e 00 04 02 02 6c 01 00")
    >>> layout = Layout(2, 3, 4, 5, 1, 6, -1, 8)
    >>> frame = Frame(batch, [Stretch(0, layout, 2)])
    >>> frame.fits(batch.replace(b"k", b"z")), frame.fits(batch.replace(b"\\2\\2l", b"\\2\\4l"))
    (True, False)
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from ledgerfold.storage.kafka.alike import Layout, are_no_ends, layout_at

# 8 MiB in all. A frame has a tenth of a batch's bytes, if its records are short.
FRAMES_MAX = 32
FRAME_BYTES_MAX = 256 * 1024
STRETCHES_MAX = 24
SINGLES_MAX = 8


class Stretch(NamedTuple):
    """Records that are laid out alike: where the first begins, and how many they are."""

    at: int
    layout: Layout
    rows: int


class Alone(NamedTuple):
    """Records that were looked at one by one."""

    at: int
    rows: int


Piece = Stretch | Alone


def stretches_of(data: bytes, pieces: Sequence[Piece]) -> list[Stretch]:
    """All of the records, a few that stand alone as stretches of their own; none if they are many.

    Those are mostly too few to be looked at as one: behind others that are alike.
    """
    stretches = list[Stretch]()
    for piece in pieces:
        if isinstance(piece, Stretch):
            stretches.append(piece)
            continue
        at = piece.at
        for _ in range(piece.rows):
            layout = layout_at(data, at)
            if layout is None:
                return []
            stretches.append(Stretch(at, layout, 1))
            at += layout.stride
    return stretches


class Frame:
    """That of records whose stretches these are, one behind the other, and nothing else."""

    __slots__ = ("_columns", "_columns_of", "_time_ends", "_time_starts", "keyless")

    def __init__(self, data: bytes, stretches: Sequence[Stretch]) -> None:
        fixed, self._time_starts, self._time_ends = list[slice](), list[slice](), list[slice]()
        # Rows whose records have no key.
        self.keyless = array("i")
        row = 0
        for at, layout, rows in stretches:
            end, stride = at + rows * layout.stride, layout.stride
            # NOTE: attributes, in front of the time, mean nothing.
            for place in (
                *range(layout.time - 1),
                *range(layout.offset, layout.key),
                *range(layout.value_length, layout.value),
                stride - 1,
            ):
                fixed.append(slice(at + place, end, stride))
            for place in range(layout.time, layout.offset - 1):
                self._time_starts.append(slice(at + place, end, stride))
            self._time_ends.append(slice(at + layout.offset - 1, end, stride))
            if layout.key_bytes < 0:
                self.keyless.extend(range(row, row + rows))
            row += rows
        self._columns_of = itemgetter(*fixed)
        self._columns: tuple[bytes, ...] = self._columns_of(data)

    @property
    def size_bytes(self) -> int:
        return sum(map(len, self._columns)) + len(self.keyless) * self.keyless.itemsize

    def fits(self, data: bytes) -> bool:
        """Whether those records, of as many bytes, have the same."""
        return (
            self._columns_of(data) == self._columns
            and all(data[column].isascii() for column in self._time_ends)
            and all(are_no_ends(data[column]) for column in self._time_starts)
        )


class Frames:
    """Those of the batches seen last, by their sizes and how many records they have.

    A size that comes for the second time is worth a frame.
    """

    def __init__(self) -> None:
        self._frames: dict[tuple[int, int], Frame | None] = {}

    def fitting(self, data: bytes, count: int) -> Frame | None:
        """The frame of those records, if it is known."""
        frame = self._frames.get((len(data), count))
        return frame if frame is not None and frame.fits(data) else None

    def learn(self, data: bytes, count: int, pieces: Sequence[Piece]) -> None:
        """Of records that none fitted, and that were looked through in these pieces."""
        alone = sum(each.rows for each in pieces if isinstance(each, Alone))
        if alone > SINGLES_MAX or len(pieces) > STRETCHES_MAX:
            return
        size, frames = (len(data), count), self._frames
        if size in frames:
            del frames[size]
            stretches = stretches_of(data, pieces)
            frame = Frame(data, stretches) if stretches else None
            is_small = frame is not None and frame.size_bytes <= FRAME_BYTES_MAX
            frames[size] = frame if is_small else None
            return
        if len(frames) >= FRAMES_MAX:
            del frames[next(iter(frames))]
        frames[size] = None
