"""The frame of a batch: all bytes other than its records' times, keys and values.

A producer's batches mostly have the same layout: equally many records of equal lengths. When the
records of one batch have been scanned (uniform_records.py), another batch of the same size is
compared with its frame. If the frames are equal, and each time has the same length, then keys and
values begin and end at the same places, and no further scan is needed.

    >>> batch = bytes.fromhex("0e 00 02 00 02 6b 01 00 0e 00 04 02 02 6c 01 00")
    >>> layout = Layout(2, 3, 4, 5, 1, 6, -1, 8)
    >>> frame = Frame(batch, [UniformRun(0, layout, 2)])
    >>> frame.fits(batch.replace(b"k", b"z")), frame.fits(batch.replace(b"\\2\\2l", b"\\2\\4l"))
    (True, False)
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from operator import itemgetter
from typing import NamedTuple

from ledgerfold.storage.kafka.uniform_records import Layout, are_no_ends, layout_at

# 8 MiB in total. A frame is about a tenth of a batch, if its records are short.
FRAMES_MAX = 32
FRAME_BYTES_MAX = 256 * 1024
RUNS_MAX = 24
SINGLES_MAX = 8


class UniformRun(NamedTuple):
    """Consecutive records of one layout: where the first begins, and their number."""

    at: int
    layout: Layout
    rows: int


class SingleRecords(NamedTuple):
    """Records that were read one by one."""

    at: int
    rows: int


Piece = UniformRun | SingleRecords


def uniform_runs_of(data: bytes, pieces: Sequence[Piece]) -> list[UniformRun]:
    """Returns runs for all records, single ones as runs of one; none if a single one has headers.

    Single records are mostly the few left over after a uniform run.
    """
    runs = list[UniformRun]()
    for piece in pieces:
        if isinstance(piece, UniformRun):
            runs.append(piece)
            continue
        at = piece.at
        for _ in range(piece.rows):
            layout = layout_at(data, at)
            if layout is None:
                return []
            runs.append(UniformRun(at, layout, 1))
            at += layout.stride
    return runs


class Frame:
    """The frame of records that consist of exactly these runs."""

    __slots__ = ("_columns", "_columns_of", "_time_ends", "_time_starts", "keyless")

    def __init__(self, data: bytes, runs: Sequence[UniformRun]) -> None:
        fixed, self._time_starts, self._time_ends = list[slice](), list[slice](), list[slice]()
        # Rows without a key.
        self.keyless = array("i")
        row = 0
        for at, layout, rows in runs:
            end, stride = at + rows * layout.stride, layout.stride
            # NOTE: attributes, before the time, have no meaning.
            for index in (
                *range(layout.time - 1),
                *range(layout.offset, layout.key),
                *range(layout.value_length, layout.value),
                stride - 1,
            ):
                fixed.append(slice(at + index, end, stride))
            for index in range(layout.time, layout.offset - 1):
                self._time_starts.append(slice(at + index, end, stride))
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
        """Returns whether these records, of the same size, have the same frame."""
        return (
            self._columns_of(data) == self._columns
            and all(data[column].isascii() for column in self._time_ends)
            and all(are_no_ends(data[column]) for column in self._time_starts)
        )


class Frames:
    """The frames of recent batches, by size and record count.

    A frame is built when a size occurs for the second time.
    """

    def __init__(self) -> None:
        self._frames: dict[tuple[int, int], Frame | None] = {}

    def fitting(self, data: bytes, count: int) -> Frame | None:
        """Returns the frame of these records, if it is known."""
        frame = self._frames.get((len(data), count))
        return frame if frame is not None and frame.fits(data) else None

    def learn(self, data: bytes, count: int, pieces: Sequence[Piece]) -> None:
        """Adds records without a known frame, which were scanned in these pieces."""
        single_rows = sum(each.rows for each in pieces if isinstance(each, SingleRecords))
        if single_rows > SINGLES_MAX or len(pieces) > RUNS_MAX:
            return
        size, frames = (len(data), count), self._frames
        if size in frames:
            del frames[size]
            runs = uniform_runs_of(data, pieces)
            frame = Frame(data, runs) if runs else None
            is_small = frame is not None and frame.size_bytes <= FRAME_BYTES_MAX
            frames[size] = frame if is_small else None
            return
        if len(frames) >= FRAMES_MAX:
            del frames[next(iter(frames))]
        frames[size] = None
