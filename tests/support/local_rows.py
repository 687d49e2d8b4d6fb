"""The part of pyspark's context and RDDs that a cleaning uses, in this process and at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, pairwise
from typing import Any

from ledgerfold.compactor.job.progress import Parts


class LocalContext:
    """Give it where a SparkContext is asked for."""

    def __init__(self, cores: int = 2) -> None:
        self.defaultParallelism = cores

    def parallelize(self, rows: Iterable[Any], partitions: int) -> LocalRows:
        listed = list(rows)
        bounds = [number * len(listed) // partitions for number in range(partitions + 1)]
        return LocalRows([listed[start:end] for start, end in pairwise(bounds)])


class LocalRows:
    """An RDD whose partitions are lists."""

    def __init__(self, partitions: list[list[Any]]) -> None:
        self._partitions = partitions

    def mapPartitions(  # noqa: N802 - pyspark's names
        self, task: Callable[[Iterable[Any]], Iterator[Any]]
    ) -> LocalRows:
        return LocalRows([list(task(rows)) for rows in self._partitions])

    def mapPartitionsWithIndex(  # noqa: N802
        self, task: Callable[[int, Iterable[Any]], Iterator[Any]]
    ) -> LocalRows:
        return LocalRows([list(task(number, rows)) for number, rows in enumerate(self._partitions)])

    def partitionBy(  # noqa: N802
        self, partitions: int, number_of: Callable[[Any], int]
    ) -> LocalRows:
        found = defaultdict[int, list[Any]](list)
        for row in chain.from_iterable(self._partitions):
            found[number_of(row[0]) % partitions].append(row)
        return LocalRows([found[number] for number in range(partitions)])

    def filter(self, wanted: Callable[[Any], bool]) -> LocalRows:
        return LocalRows([list(filter(wanted, rows)) for rows in self._partitions])

    def persist(self, level: object) -> LocalRows:
        return self

    def unpersist(self) -> None:
        """Nothing is held elsewhere."""

    def collect(self) -> list[Any]:
        return list(chain.from_iterable(self._partitions))

    toLocalIterator = collect  # noqa: N815


class LocalProgress:
    """An accumulator."""

    def __init__(self) -> None:
        self.value = Parts()

    def add(self, parts: Parts) -> None:
        self.value = self.value.plus(parts)
