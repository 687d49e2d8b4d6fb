"""The lifetimes of messages under a message strategy, for replays: found in one pass, by Spark.

    segments -> scan -> (bucket, messages) -> ask -> lifetimes

Built-in message strategies accept any message if none is current, and have no other state. So a run
continues from the result of the previous one, and runs with any horizons yield the same as one run
up to the last horizon. One pass over the history in its order therefore finds the current messages
at every horizon (tests/unit/compactor/test_replay.py compares run by run).

    >>> from collections import namedtuple
    >>> Message = namedtuple("Message", "place value")
    >>> from ledgerfold.strategies.ready_made import Numeric
    >>> recorder = Recorder(Numeric())
    >>> five, three, seven = Message(1, b"5"), Message(3, b"3"), Message(5, b"7")
    >>> [recorder.should_keep_left(*each) for each in ((None, five), (five, three), (five, seven))]
    [False, True, False]
    >>> recorder.starts.tolist(), recorder.ends.tolist()
    ([0], [2])

Memory of a task: that of a run's task (compactor/job/merge_messages.py) and 16 bytes a message.
Memory of the driver: 16 bytes for each message that is ever current.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain
from operator import index
from typing import Any, NamedTuple

import numpy as np

from ledgerfold.compactor.job.engine import Context
from ledgerfold.compactor.job.merge_messages import Spool, decided
from ledgerfold.compactor.job.plan import Cut, InputSegment
from ledgerfold.compactor.job.rows import Failure, Messages, guarded, succeeded
from ledgerfold.compactor.job.scan_messages import scan_messages
from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.storage.errors import LedgerfoldError

# The end of messages that stay until the history ends.
NEVER = -1


class Lifetimes(NamedTuple):
    """Positions of messages that were current, and of those that replaced or removed them."""

    starts: Integers
    ends: Integers


class Recorder:
    """A strategy object that records the ends of current messages, as pairs of positions."""

    def __init__(self, strategy: Any) -> None:
        self._ask = strategy.should_keep_left
        self.starts, self.ends = array("q"), array("q")

    def should_keep_left(self, previous: Any, current: Any) -> bool:
        answer: bool = self._ask(previous, current)
        if previous is not None and answer is False:
            self.starts.append(previous.place >> 1)
            self.ends.append(current.place >> 1)
        return answer


@dataclass(frozen=True)
class Lives:
    """The tasks of the job."""

    cut: Cut
    strategy: MessageStrategy

    def scan(
        self, runs: Iterable[tuple[InputSegment, ...]]
    ) -> Iterator[tuple[int, Messages | Failure]]:
        segments, buckets = tuple(chain.from_iterable(runs)), self.cut.buckets
        rows = guarded(scan_messages(segments, self.strategy.reads, buckets), [0])
        for bucket, content in rows:
            if isinstance(content, Messages | Failure):
                yield bucket, content

    def ask(self, rows: Iterable[tuple[int, Messages | Failure]]) -> Iterator[Lifetimes | Failure]:
        """Passes all messages of a bucket to the strategy, in log order."""
        with Spool() as spool:
            for _, content in rows:
                if isinstance(content, Failure):
                    yield content
                    return
                spool.add(content)
            try:
                recorder = Recorder(self.strategy.create())
                requested = replace(self.strategy, made_of=lambda: recorder, settings={})
                standing = decided(requested, spool).survivors()
            except LedgerfoldError as error:
                yield Failure.of(error)
                return
        begun = np.concatenate((np.array(recorder.starts, np.int64), standing))
        ended = np.concatenate((np.array(recorder.ends, np.int64), np.full(len(standing), NEVER)))
        yield Lifetimes(begun, ended)


def read_lifetimes(context: Context, cut: Cut, strategy: MessageStrategy) -> Lifetimes:
    """Finds lifetimes. Raises errors of tasks: Corruption, MissingFile, DiskFailure,
    StrategyFailed; or Spark's own.
    """
    if not cut.scans:
        return lifetimes_of([])
    lives = Lives(cut, strategy)
    rows = context.parallelize(cut.scans, len(cut.scans)).mapPartitions(lives.scan)
    if cut.buckets > 1 or len(cut.scans) > 1:
        rows = rows.partitionBy(cut.buckets, index)
    return lifetimes_of(rows.mapPartitions(lives.ask).collect())


def lifetimes_of(results: Iterable[Lifetimes | Failure]) -> Lifetimes:
    """Joins results. Raises the error of a failed task."""
    none = np.empty(0, np.int64)
    begun, ended = zip(Lifetimes(none, none), *succeeded(results), strict=True)
    return Lifetimes(np.concatenate(begun), np.concatenate(ended))
