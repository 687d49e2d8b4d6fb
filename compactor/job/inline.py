"""The engine without Spark: the tasks of a job in this process, one after the other.

It needs no Java, and starts at once. Rows are lists; tasks are the same functions that Spark runs,
and a job is divided as for Spark on as many cores, so that its files are the same.

* Stages are chained iterators, as in Spark: a row is passed on as soon as it is there. A shuffle,
  and rows to keep, are lists.
* **Memory**: that of one task, and the rows of one shuffle, which Spark would write to its local
  disk: the key columns of the input after a scan (the messages, for a strategy of messages), 8 to
  12 bytes for each survivor after a merge. The rows of a shuffle are released when the job ends,
  rows to keep when the work ends, also after an error.
* Cancelled work ends at its next row, between tasks, or while a task pauses (pauses.py).
* A user-defined strategy must not run in the worker: its job runs in a separate process
  (inline_process.py), which is killed when the work is cancelled.

    >>> from operator import index
    >>> rows = InlineEngine().context.parallelize([3, 1, 2], 2)
    >>> pairs = rows.mapPartitions(lambda numbers: ((each, each) for each in numbers))
    >>> pairs.partitionBy(2, index).collect()
    [(2, 2), (3, 3), (1, 1)]
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, pairwise
from traceback import clear_frames
from typing import Any

from ledgerfold.compactor.job.engine import INLINE, Engine
from ledgerfold.compactor.job.inline_process import (
    InlineProgress,
    ProcessEnded,
    TaskProcess,
)
from ledgerfold.compactor.job.pauses import pauses_by
from ledgerfold.compactor.user_strategies.own import Own

# The number of Spark's default master, local[2].
CORES = 2

Check = Callable[[], None]


class Interrupted(Exception):
    """The work was cancelled."""


class Stage(ABC):
    """A number of partitions, which are computed when they are read. Picklable until then."""

    partitions: int

    @abstractmethod
    def read(self, number: int, check: Check) -> Iterable[Any]:
        """Returns the rows of a partition. `check` is called for each row that a task yields.

        Raises what tasks and `check` raise.
        """

    @abstractmethod
    def release(self) -> None:
        """Releases the shuffled rows of this stage and of those before it, which end with a job."""

    def lists_of(self, check: Check) -> list[list[Any]]:
        """Computes all partitions."""
        return [list(self.read(number, check)) for number in range(self.partitions)]


@dataclass
class InputRows(Stage):
    lists: list[list[Any]]

    @property
    def partitions(self) -> int:  # type: ignore[override]
        return len(self.lists)

    def read(self, number: int, check: Check) -> Iterable[Any]:
        return self.lists[number]

    def release(self) -> None:
        """Does nothing: these rows are for other jobs, too."""


@dataclass
class Mapped(Stage):
    before: Stage
    task: Callable[[int, Iterable[Any]], Iterable[Any]]

    def __post_init__(self) -> None:
        self.partitions = self.before.partitions

    def read(self, number: int, check: Check) -> Iterable[Any]:
        check()
        for row in self.task(number, self.before.read(number, check)):
            check()
            yield row

    def release(self) -> None:
        self.before.release()


@dataclass
class Shuffled(Stage):
    """The shuffle. A partition is released once it is read: it is read once."""

    before: Stage
    partitions: int
    number_of: Callable[[Any], int]
    _buckets: list[list[Any] | None] | None = None

    def read(self, number: int, check: Check) -> Iterable[Any]:
        if self._buckets is None:
            self._buckets = list(self._shuffled(check))
        rows, self._buckets[number] = self._buckets[number], None
        assert rows is not None, "rows that are read twice must be kept"
        # The iterator releases the list at its end. The task holds its argument until it returns.
        return iter(rows)

    def release(self) -> None:
        if self._buckets is not None:
            self._buckets = [None] * self.partitions
        self.before.release()

    def _shuffled(self, check: Check) -> list[list[Any]]:
        buckets: list[list[Any]] = [[] for _ in range(self.partitions)]
        for before in range(self.before.partitions):
            for row in self.before.read(before, check):
                buckets[self.number_of(row[0]) % self.partitions].append(row)
        return buckets


@dataclass
class Selected(Stage):
    """Some partitions of a stage."""

    before: Stage
    numbers: Sequence[int]

    def __post_init__(self) -> None:
        self.partitions = len(self.numbers)

    def read(self, number: int, check: Check) -> Iterable[Any]:
        return self.before.read(self.numbers[number], check)

    def release(self) -> None:
        self.before.release()


@dataclass(frozen=True)
class InlineRows:
    """The part of an RDD that jobs use. `run` computes the partitions of a stage."""

    stage: Stage
    run: Callable[[Stage], list[list[Any]]]

    def mapPartitions(  # noqa: N802 - Spark's names
        self, task: Callable[[Iterable[Any]], Iterable[Any]]
    ) -> InlineRows:
        return self.mapPartitionsWithIndex(partial(_without_number, task))

    def mapPartitionsWithIndex(  # noqa: N802
        self, task: Callable[[int, Iterable[Any]], Iterable[Any]]
    ) -> InlineRows:
        return replace(self, stage=Mapped(self.stage, task))

    def partitionBy(  # noqa: N802
        self, partitions: int, number_of: Callable[[Any], int]
    ) -> InlineRows:
        return replace(self, stage=Shuffled(self.stage, partitions, number_of))

    def persist(self) -> InlineRows:
        return replace(self, stage=InputRows(self.run(self.stage)))

    def unpersist(self) -> None:
        if isinstance(self.stage, InputRows):
            self.stage.lists = []

    def collect(self) -> list[Any]:
        return list(chain.from_iterable(self.run(self.stage)))


def _without_number(
    task: Callable[[Iterable[Any]], Iterable[Any]], number: int, rows: Iterable[Any]
) -> Iterable[Any]:
    return task(rows)


@dataclass(frozen=True)
class InlineContext:
    """The part of a SparkContext that jobs use."""

    run: Callable[[Stage], list[list[Any]]]
    defaultParallelism: int = CORES  # noqa: N815 - Spark's name

    def parallelize(self, items: Iterable[Any], partitions: int, /) -> InlineRows:
        listed = list(items)
        bounds = [number * len(listed) // partitions for number in range(partitions + 1)]
        lists = [listed[start:end] for start, end in pairwise(bounds)]
        return InlineRows(InputRows(lists), self.run)

    def runJob(  # noqa: N802 - Spark's name
        self,
        rows: InlineRows,
        task: Callable[[Iterable[Any]], list[Any]],
        partitions: Sequence[int],
        /,
    ) -> list[Any]:
        return replace(rows, stage=Selected(rows.stage, partitions)).mapPartitions(task).collect()


class InlineEngine(Engine):
    """The engine. One thread runs jobs; others may cancel them."""

    name = INLINE
    # Spark also fails a job for any error that a task raises.
    failures = (Exception,)

    def __init__(self, cores: int = CORES) -> None:
        self.context = InlineContext(self._run, cores)
        self.progress: InlineProgress = InlineProgress()
        self._group, self._cancelled_group = "", ""
        # Set with the second, while its job runs.
        self._cancelled = threading.Event()
        self._is_isolated = False
        self._process: TaskProcess | None = None

    @property
    def tasks_at_once(self) -> int:
        return 1

    @contextmanager
    def job_group(self, name: str, topic: str) -> Iterator[None]:
        # An earlier group of that name may have been cancelled.
        self._group, self._cancelled_group = name, ""
        self._cancelled.clear()
        try:
            yield
        finally:
            self._group = ""

    def cancel(self, group: str) -> None:
        self._cancelled_group = group
        process = self._process
        if group != self._group:
            return
        self._cancelled.set()
        if process is not None:
            process.kill()

    @contextmanager
    def code_of(self, own: Own | None) -> Iterator[None]:
        self._is_isolated = own is not None
        try:
            yield
        finally:
            self._is_isolated = False

    def keep(self, rows: InlineRows) -> InlineRows:
        return rows.persist()

    def sentence_of(self, error: Exception) -> str:
        return str(error).partition("\n")[0] or type(error).__name__

    def is_end_of_process(self, error: Exception) -> bool:
        return isinstance(error, ProcessEnded)

    def _run(self, stage: Stage) -> list[list[Any]]:
        if self._is_isolated:
            return self._isolated(stage)
        try:
            with pauses_by(self._pause):
                return stage.lists_of(self._check)
        except BaseException as error:
            _release_frames(error)
            raise
        finally:
            stage.release()

    def _isolated(self, stage: Stage) -> list[list[Any]]:
        self._check()
        with TaskProcess(self.progress) as process:
            self._process = process
            try:
                # A cancellation may have come before there was a process to kill.
                self._check()
                return process.computed(stage)
            finally:
                self._process = None

    def _pause(self, seconds: float) -> None:
        """Waits. Raises Interrupted when the work is cancelled."""
        self._cancelled.wait(seconds)
        self._check()

    def _check(self) -> None:
        if self._group and self._cancelled_group == self._group:
            raise Interrupted("the work was cancelled")


def _release_frames(error: BaseException) -> None:
    """Releases the rows in the frames of the tasks, which live as long as their error."""
    at: BaseException | None = error
    while at is not None:
        clear_frames(at.__traceback__)
        at = at.__cause__ or at.__context__
