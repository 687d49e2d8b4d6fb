"""The runs that made the compacted view, one upon the other, as far as the history goes. Pure.

Each run that succeeded replaced the compacted ledger of the one before; so the line is followed
from the current ledger back. It is complete when it ends with a run that began from nothing. The
history forgets old runs: then the oldest one that is known stands for all before it.

The horizon of a run may lie before its predecessor's (Pulsar's run without new data ends with the
compacted ledger's last entry): then the next one reads what lies between again. For messages with
a key that changes nothing; those without one may come back when the policy has changed.

    >>> from ledgerfold.v1.records_pb2 import Position as At
    >>> def run(number, ledger, previous, upto, retains):
    ...     return RunRecord(
    ...         number=number, state=RUN_STATE_SUCCESS, ledger_id=ledger,
    ...         previous_ledger_id=previous, horizon=At(ledger_id=1, entry_id=upto),
    ...         retain_null_key=retains,
    ...     )
    >>> view = CompactedView(ledger_id=9, run_number=3)
    >>> line = RunLine.of([run(1, 7, -1, 10, True), run(3, 9, 7, 20, False)], view)
    >>> line.first_over(Position(1, 10)), line.first_over(Position(1, 11))
    (RunSpan(first=1, last=1), RunSpan(first=3, last=3))
    >>> line.null_keys_dropped_by(Position(1, 0)), line.first_over(Position(1, 21))
    (RunSpan(first=3, last=3), None)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from ledgerfold.storage.entry import Position
from ledgerfold.strategies.catalogue import DEFAULT, listed
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_SUCCESS,
    CompactedView,
    CompactionStrategy,
    RunRecord,
)


class RunSpan(NamedTuple):
    """One of the runs from `first` to `last`; one alone when it is known which."""

    first: int
    last: int


class RunLine:
    """`runs` in order, at least one. A complete line lacks none at its beginning."""

    def __init__(self, runs: Sequence[RunRecord], *, is_complete: bool) -> None:
        self.runs = runs
        self._horizons = [Position(run.horizon.ledger_id, run.horizon.entry_id) for run in runs]
        # Up to where each run and those before it have read.
        self._read_upto = list(accumulate(self._horizons, max))
        self.is_complete = is_complete

    @classmethod
    def of(cls, history: Sequence[RunRecord], view: CompactedView) -> RunLine:
        """The line that ends in `view`. `history`: all runs of the topic that are remembered."""
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
        """Number of the run that made the view."""
        return self.runs[-1].number

    def span(self, at: int) -> RunSpan:
        """The run at this place; what the first one did, forgotten ones may have done."""
        return RunSpan(self._earliest(at), self.runs[at].number)

    def horizon(self, at: int) -> Position:
        return self._horizons[at]

    def read_upto(self, at: int) -> Position:
        """Up to where this run and those before it have read."""
        return self._read_upto[at]

    @property
    def is_uniform(self) -> bool:
        """Whether all of them had the same strategy, with the same settings."""
        return all(strategy_of(run) == strategy_of(self.runs[0]) for run in self.runs)

    def first_over(self, position: Position) -> RunSpan | None:
        """The first run whose range held `position`; None when it lies behind them all."""
        at = bisect_left(self._read_upto, position)
        if at == len(self.runs):
            return None
        return self.span(at)

    def strategies(self, span: RunSpan) -> list[CompactionStrategy]:
        """That of each of these runs, as far as they are remembered; each once, in their order."""
        found: list[CompactionStrategy] = []
        for run in self.runs:
            strategy = strategy_of(run)
            if span.first <= run.number <= span.last and strategy not in found:
                found.append(strategy)
        return found

    def alike(self, run: RunRecord) -> RunSpan:
        """The runs up to this one that had its strategy, and none of another between them."""
        upto = next(at for at, each in enumerate(self.runs) if each.number == run.number)
        first = upto
        while first > 0 and strategy_of(self.runs[first - 1]) == strategy_of(run):
            first -= 1
        return RunSpan(self._earliest(first), run.number)

    def run(self, number: int) -> RunRecord:
        """With this number, which one of these has."""
        return next(run for run in self.runs if run.number == number)

    def null_keys_dropped_by(self, position: Position) -> RunSpan | None:
        """The run that dropped messages without a key there; None when none of them did so."""
        at = bisect_left(self._read_upto, position)
        if at == len(self.runs):
            return None
        if self.reads_again(position, at):
            return RunSpan(self._earliest(at), self.last)
        suspects = [run for run in self.runs[at:] if not _retains(run)]
        if not self.is_complete and at == 0:
            suspects.insert(0, self.runs[0])
        if not suspects:
            return None
        certain = [run for run in suspects if run.HasField("retain_null_key") and not _retains(run)]
        last = certain[0] if certain else suspects[-1]
        first = self._earliest(0) if suspects[0] is self.runs[0] else suspects[0].number
        return RunSpan(first, last.number)

    def null_keys_kept_by(self, position: Position) -> RunSpan | None:
        """The run that kept messages without a key there, which are in the compacted ledger."""
        at = bisect_left(self._read_upto, position)
        if self.reads_again(position, at):
            return RunSpan(self._earliest(at), self.last)
        return self.first_over(position)

    @property
    def messages_read(self) -> int | None:
        """Raw messages in the ranges of all these runs; None when that is not known."""
        if not self.is_complete or self._read_upto != self._horizons:
            return None
        again = sum(run.counts.messages_out for run in self.runs[:-1])
        return sum(run.counts.messages_in for run in self.runs) - again

    def reads_again(self, position: Position, at: int) -> bool:
        """Whether a run after that one may have met `position` once more."""
        return any(horizon < position for horizon in self._horizons[at:])

    def may_come_back(self, position: Position) -> bool:
        """Whether a run may have met it after it had been dropped."""
        return self.reads_again(position, bisect_left(self._read_upto, position))

    def _earliest(self, at: int) -> int:
        return 1 if at == 0 and not self.is_complete else self.runs[at].number


def strategy_of(run: RunRecord) -> CompactionStrategy:
    """Of a run that stands for forgotten ones nobody knows it; nothing that it did is sure then."""
    return CompactionStrategy(name=run.strategy or DEFAULT, settings=run.strategy_settings)


def drops_null_keys(strategy: str) -> bool:
    """Whatever the policy says: those that decide message by message, and one's own."""
    known = listed(strategy)
    return known is None or known.is_strategic


def _retains(run: RunRecord) -> bool:
    """Whether it is known to have kept messages without a key."""
    is_policy = run.HasField("retain_null_key") and run.retain_null_key
    return is_policy and not drops_null_keys(run.strategy or DEFAULT)
