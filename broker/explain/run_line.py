"""The line of runs that produced the compacted view, as far as their records are kept. Pure.

Each successful run replaced the compacted ledger of the previous run. So the line is followed
backwards from the current ledger. It is complete if it ends with a run that started without a
compacted ledger. The history forgets old runs: then the oldest known run represents all earlier
ones.

The horizon of a run may be below its predecessor's (Pulsar's run without new data ends with the
compacted ledger's last entry): then the next one reads the messages in between again. Messages with
a key are not affected; messages without one may return if the policy has changed.

    >>> from ledgerfold.v1.records_pb2 import Position as At
    >>> def run(number, ledger, previous, horizon, retains):
    ...     return RunRecord(
    ...         number=number, state=RUN_STATE_SUCCESS, ledger_id=ledger,
    ...         previous_ledger_id=previous, horizon=At(ledger_id=1, entry_id=horizon),
    ...         retain_null_key=retains,
    ...     )
    >>> view = CompactedView(ledger_id=9, run_number=3)
    >>> line = RunLine.of([run(1, 7, -1, 10, True), run(3, 9, 7, 20, False)], view)
    >>> line.first_over(Position(1, 10)) == RunSpan(first=1, last=1)
    True
    >>> line.null_keys_dropped_by(Position(1, 0)) == RunSpan(first=3, last=3)
    True
    >>> line.first_over(Position(1, 11)).first, line.first_over(Position(1, 21))
    (3, None)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate

from ledgerfold.storage.entry import Position, position_of
from ledgerfold.strategies.catalogue import DEFAULT, drops_null_keys
from ledgerfold.v1.explain_pb2 import RunSpan
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_SUCCESS,
    CompactedView,
    CompactionStrategy,
    RunRecord,
)


class RunLine:
    """The line of runs, in order, at least one. A complete line has its first run."""

    def __init__(self, runs: Sequence[RunRecord], *, is_complete: bool) -> None:
        self.runs = runs
        self.horizons = [position_of(run.horizon) for run in runs]
        # The highest position that each run and those before it have read.
        self.read_through = list(accumulate(self.horizons, max))
        # The lowest horizon of each run and those after it.
        self._lowest_since = list(accumulate(reversed(self.horizons), min))[::-1]
        self.is_complete = is_complete
        # The first one includes the forgotten ones before it.
        self.spans = [
            RunSpan(first=self._earliest(at), last=run.number) for at, run in enumerate(runs)
        ]

    @classmethod
    def of(cls, history: Sequence[RunRecord], view: CompactedView) -> RunLine:
        """Returns the line that ends in `view`. `history`: all recorded runs of the topic."""
        by_ledger = {run.ledger_id: run for run in history if run.state == RUN_STATE_SUCCESS}
        line: list[RunRecord] = []
        ledger_id = view.ledger_id
        while ledger_id >= 0 and ledger_id in by_ledger:
            line.append(by_ledger.pop(ledger_id))
            ledger_id = line[-1].previous_ledger_id
        if not line:
            forgotten = RunRecord(number=view.run_number, horizon=view.horizon)
            return cls([forgotten], is_complete=False)
        return cls(line[::-1], is_complete=ledger_id < 0)

    @property
    def last(self) -> int:
        """The number of the run that produced the view."""
        return self.runs[-1].number

    @property
    def is_uniform(self) -> bool:
        """True if all runs had the same strategy, with the same settings."""
        return all(strategy_of(run) == strategy_of(self.runs[0]) for run in self.runs)

    def first_over(self, position: Position) -> RunSpan | None:
        """Returns the first run whose range held `position`; None if it is above all of them."""
        at = bisect_left(self.read_through, position)
        return self.spans[at] if at < len(self.spans) else None

    def strategies(self, span: RunSpan) -> list[CompactionStrategy]:
        """Returns the distinct strategies of these runs, in order, as far as recorded."""
        strategies: list[CompactionStrategy] = []
        for run in self.runs:
            strategy = strategy_of(run)
            if span.first <= run.number <= span.last and strategy not in strategies:
                strategies.append(strategy)
        return strategies

    def with_strategy_of(self, run: RunRecord) -> RunSpan:
        """Returns the consecutive runs through this one that had its strategy."""
        first = next(at for at, each in enumerate(self.runs) if each.number == run.number)
        while first > 0 and strategy_of(self.runs[first - 1]) == strategy_of(run):
            first -= 1
        return RunSpan(first=self._earliest(first), last=run.number)

    def run(self, number: int) -> RunRecord:
        """Returns the run with this number, which must be in the line."""
        return next(run for run in self.runs if run.number == number)

    def null_keys_dropped_by(self, position: Position) -> RunSpan | None:
        """Returns the run that dropped messages without a key at `position`; None if no run did."""
        at = bisect_left(self.read_through, position)
        if at == len(self.runs):
            return None
        if self.reads_again(position, at):
            return RunSpan(first=self._earliest(at), last=self.last)
        suspects = [run for run in self.runs[at:] if not _retains(run)]
        if not self.is_complete and at == 0:
            suspects.insert(0, self.runs[0])
        if not suspects:
            return None
        certain = [run for run in suspects if run.HasField("retain_null_key") and not _retains(run)]
        last = certain[0] if certain else suspects[-1]
        first = self._earliest(0) if suspects[0] is self.runs[0] else suspects[0].number
        return RunSpan(first=first, last=last.number)

    def null_keys_kept_by(self, position: Position) -> RunSpan | None:
        """Returns the run that kept messages without a key at this compacted position."""
        at = bisect_left(self.read_through, position)
        if self.reads_again(position, at):
            return RunSpan(first=self._earliest(at), last=self.last)
        return self.first_over(position)

    @property
    def messages_read(self) -> int | None:
        """The number of raw messages in the ranges of all these runs; None if unknown."""
        if not self.is_complete or self.read_through != self.horizons:
            return None
        again = sum(run.counts.messages_out for run in self.runs[:-1])
        return sum(run.counts.messages_in for run in self.runs) - again

    def reads_again(self, position: Position, at: int) -> bool:
        """Returns whether a run after that one may have read `position` again."""
        return at < len(self.runs) and self._lowest_since[at] < position

    def may_come_back(self, position: Position) -> bool:
        """Returns whether a run may have read the position after another dropped it."""
        return self.reads_again(position, bisect_left(self.read_through, position))

    def _earliest(self, at: int) -> int:
        return 1 if at == 0 and not self.is_complete else self.runs[at].number


def strategy_of(run: RunRecord) -> CompactionStrategy:
    """Returns the run's strategy: unknown for forgotten runs, whose decisions are not sure."""
    return CompactionStrategy(name=run.strategy or DEFAULT, settings=run.strategy_settings)


def _retains(run: RunRecord) -> bool:
    """Returns whether the run is known to have kept messages without a key."""
    is_policy = run.HasField("retain_null_key") and run.retain_null_key
    return is_policy and not drops_null_keys(run.strategy or DEFAULT)
