"""The rows that tasks exchange: few and large, each a pair (partition number, content).

After the scan of phase one, a row's partition number is a bucket; after the merge, it is a copy
task. Contents are pickled for a shuffle; their types are below. Errors are rows, too: the driver
gets the complete reason and message of a damaged file, and tasks that receive one do no more work.
Counts are rows and not Spark accumulators: a rerun task must not count twice.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from itertools import pairwise
from operator import add
from typing import NamedTuple, TypeVar

import numpy as np
import pyarrow as pa

from ledgerfold import heap
from ledgerfold.compactor.job.arrow_integers import from_arrow, to_arrow, to_arrow_short
from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies.strategy import FragmentColumns
from ledgerfold.storage.error_codec import CLASSES
from ledgerfold.storage.errors import DiskFailure, LedgerfoldError

# The bounds of Pulsar's CompactionRecord.
WRITE_LATENCY_BOUNDS_US = (500, 1_000, 5_000, 10_000, 20_000, 50_000, 100_000, 200_000, 1_000_000)


class Fragments(NamedTuple):
    """Fragments and their keys (compactor/strategies/registry.py), as one Arrow IPC stream.

    Columns have 64 bits, or 32 if they were passed so.
    """

    blob: bytes

    @classmethod
    def of(cls, keys: pa.BinaryArray, fragments: FragmentColumns) -> Fragments:
        names = ["key", *map(str, range(len(fragments)))]
        columns = (
            to_arrow_short(each) if each.dtype == np.int32 else to_arrow(each) for each in fragments
        )
        batch = pa.record_batch([keys, *columns], names=names)
        return cls(_as_stream(batch))

    @property
    def columns(self) -> tuple[pa.BinaryArray, FragmentColumns]:
        """The keys and fragments, as views of the blob."""
        keys, *fragments = pa.ipc.open_stream(self.blob).read_next_batch().columns
        return keys, tuple(from_arrow(each).astype(np.int64, copy=False) for each in fragments)


class Messages(NamedTuple):
    """A chunk of messages, by column (chunk.py)."""

    first_place: int
    columns: dict[str, bytes]


class Positions(NamedTuple):
    """Surviving positions, ascending, as little-endian i64."""

    blob: bytes

    @classmethod
    def of(cls, positions: Integers) -> Positions:
        return cls(positions.astype("<i8", copy=False).tobytes())

    @property
    def values(self) -> Integers:
        return np.frombuffer(self.blob, "<i8").astype(np.int64, copy=False)


class Dead(NamedTuple):
    """Positions of indexed segments whose messages do not survive, like Positions."""

    positions: Positions


class Counts(NamedTuple):
    """The parts of ledgerfold.v1.RunCounts that a task knows; they are summed up."""

    messages_in: int = 0
    entries_in: int = 0
    bytes_in: int = 0
    tombstones: int = 0
    null_keys: int = 0
    removed_events: int = 0
    keys: int = 0

    def plus(self, other: Counts) -> Counts:
        return Counts(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


class Written(NamedTuple):
    """A finished segment file, as a serialized SegmentRecord.

    `kept_bytes`: its size, if it is shared with the previous ledger or a raw one.
    """

    record: bytes
    kept_bytes: int = 0


class WriteTimes(NamedTuple):
    """The durations of writes: counts by bound (ledgerfold.v1.RunCounts), and the sum."""

    counts: tuple[int, ...] = (0,) * (len(WRITE_LATENCY_BOUNDS_US) + 1)
    total_us: int = 0

    def with_one(self, took_us: int) -> WriteTimes:
        counts = list(self.counts)
        counts[bisect_left(WRITE_LATENCY_BOUNDS_US, took_us)] += 1
        return WriteTimes(tuple(counts), self.total_us + took_us)

    def plus(self, other: WriteTimes) -> WriteTimes:
        counts = tuple(map(add, self.counts, other.counts))
        return WriteTimes(counts, self.total_us + other.total_us)


class CopyBegan(NamedTuple):
    """The start time of a copy task (seconds since the epoch), where phase two begins."""

    at: float


class Failure(NamedTuple):
    """An error of storage/errors.py, as it is sent between tasks."""

    reason: str
    message: str
    # A disk's.
    is_full: bool = False

    @classmethod
    def of(cls, error: LedgerfoldError) -> Failure:
        is_full = isinstance(error, DiskFailure) and error.is_full
        return cls(error.reason, error.message, is_full)

    def error(self) -> LedgerfoldError:
        """Returns an error of the class with that reason, with the message only."""
        class_ = CLASSES.get(self.reason, LedgerfoldError)
        error = class_.__new__(class_, self.message)
        Exception.__init__(error, self.message)
        if isinstance(error, DiskFailure):
            error.is_full = self.is_full
        return error


Content = (
    Fragments | Messages | Positions | Dead | Counts | Written | WriteTimes | CopyBegan | Failure
)
Row = tuple[int, Content]
_T = TypeVar("_T")


def guarded(
    rows: Iterable[tuple[int, _T]],
    targets: Iterable[int],
    *held: Callable[[], AbstractContextManager[None]],
) -> Iterator[tuple[int, _T | Failure]]:
    """Yields a task's rows, and a Failure for each of `targets` if an error of our own ends it.

    `held`: the limits of the strategies that the task uses. At its end the process returns freed
    memory.
    """
    try:
        with ExitStack() as stack:
            for limits in held:
                stack.enter_context(limits())
            yield from rows
    except LedgerfoldError as error:
        for target in targets:
            yield target, Failure.of(error)
    finally:
        return_freed()


def succeeded(contents: Iterable[_T | Failure]) -> list[_T]:
    """Returns the contents. Raises the error of a failed task."""
    results: list[_T] = []
    for content in contents:
        if isinstance(content, Failure):
            raise content.error()
        results.append(content)
    return results


def by_task(positions: Integers, firsts: Integers | Sequence[int]) -> Iterator[tuple[int, slice]]:
    """Yields each task with positions, and their places. `firsts`: the first position of each task.

    `positions` ascend.
    """
    bounds = [*np.searchsorted(positions, firsts).tolist(), len(positions)]
    for task, (start, end) in enumerate(pairwise(bounds)):
        if start < end:
            yield task, slice(start, end)


def _as_stream(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as stream:
        stream.write_batch(batch)
    blob: bytes = sink.getvalue().to_pybytes()
    return blob


def return_freed() -> None:
    """Returns freed memory of this process to the system, as far as its allocators can.

    Within a task, freed memory stays in the process, for the next column (session.py). Spark
    alternates between its idle Python workers, of which there are more than cores: each would keep
    as much memory as its largest task used.
    """
    pa.default_memory_pool().release_unused()
    heap.return_freed()
