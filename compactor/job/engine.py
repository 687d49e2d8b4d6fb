"""The interface of engines, which run the tasks of a job: Spark, and the inline engine.

A job is a chain of plain functions over partitions of rows, with shuffles by number between them
(pipeline.py). It is written against the part of Spark's contexts and RDDs that all jobs use, under
Spark's names, so that Spark itself needs no adapter:

    context.parallelize(items, partitions)                     one list a partition
    rows.mapPartitions(task), rows.mapPartitionsWithIndex(task)
    rows.partitionBy(partitions, index)                        the shuffle
    rows.collect(), rows.unpersist()                           and Engine.keep(rows)
    context.runJob(rows, list, partitions)                     the rows of these partitions

Engines differ only in where tasks run: the same plan, divided for the same number of cores, yields
the same files byte for byte.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Literal, Protocol

from ledgerfold.compactor.job.progress import Parts
from ledgerfold.compactor.user_strategies.own import Own

SPARK: Literal["spark"] = "spark"
INLINE: Literal["inline"] = "inline"
# An RDD, or inline.Rows: pyspark's type of an RDD is not checked.
Rows = Any


class Context(Protocol):
    """The part of a SparkContext that jobs use."""

    @property
    def defaultParallelism(self) -> int: ...  # noqa: N802 - Spark's name

    def parallelize(self, items: Iterable[Any], partitions: int, /) -> Rows: ...

    def runJob(  # noqa: N802 - Spark's name
        self, rows: Rows, task: Callable[[Iterable[Any]], list[Any]], partitions: Sequence[int], /
    ) -> list[Any]: ...


class Progress(Protocol):
    """The part of a Spark accumulator that jobs use: tasks add to it."""

    @property
    def value(self) -> Parts: ...

    def add(self, parts: Parts, /) -> None: ...


class Engine(ABC):
    """A started engine. All runs share `progress`: use differences."""

    name: str
    context: Context
    progress: Progress
    # The errors of a job that are not the tasks' own: EngineRun and AnalysisWork explain them.
    failures: tuple[type[Exception], ...]

    @property
    def cores(self) -> int:
        """The number of cores for which jobs are divided."""
        return max(1, self.context.defaultParallelism)

    @property
    def tasks_at_once(self) -> int:
        """The number of tasks that run concurrently."""
        return self.cores

    @abstractmethod
    def job_group(self, name: str, topic: str) -> AbstractContextManager[None]:
        """Assigns the jobs that this thread starts inside to a group, which can be cancelled."""

    @abstractmethod
    def cancel(self, group: str) -> None:
        """Stops the jobs of the group soon. Any thread may call it."""

    @abstractmethod
    def code_of(self, own: Own | None) -> AbstractContextManager[None]:
        """Runs the tasks created in the block in processes that have not loaded older code of
        `own`.
        """

    @abstractmethod
    def keep(self, rows: Rows) -> Rows:
        """Returns the same rows, which end with a shuffle; they are computed once, and kept until
        `unpersist`.
        """

    def check_folder(self, folder: Path) -> None:
        """Checks that tasks elsewhere can write there, if any run. Raises CompactorUnavailable."""
        return

    def end_causing(self, error: Exception) -> str | None:
        """Returns how the engine ended, if that is the cause of one of `failures`.

        None if it ends only with its worker.
        """
        return None

    @abstractmethod
    def sentence_of(self, error: Exception) -> str:
        """Describes one of `failures` for people, without the stack trace (the log has it)."""

    @abstractmethod
    def is_end_of_process(self, error: Exception) -> bool:
        """Returns whether the error is the end of a task's process."""

    def stop(self) -> None:
        """Ends the engine, unless it ends with its worker."""
        return
