"""What the runs did with the versions of a key, run after run, each by its own strategy. Pure.

A run's input is what the one before left, and what lies above that one's horizon, up to its own.
The versions come in order of id, once; a run's judge hears of those that are in its input, and what
it keeps is the next one's. Where a horizon lies before that of the run before (run_line.py), the
next run meets what lies between once more.

Not everything can be known: raw ledgers are trimmed, and only what the compacted ledger holds is
left of them; old runs are forgotten; the code of a strategy of one's own is not asked. What such
things may have had a part in is not sure (Case.is_sure): then the caller believes the compacted
ledger.

Bounds: what the next run meets, and what is met once more, HELD_MAX versions each, the newest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ledgerfold.broker.explain.evaluation import Case, Evaluation
from ledgerfold.broker.explain.run_line import RunLine, strategy_of
from ledgerfold.broker.explain.strategies import OWN, rules_of
from ledgerfold.broker.explain.strategies.evaluator import HELD_MAX, Asked, Decision
from ledgerfold.broker.explain.versions import Found
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.strategies.catalogue import settings_of
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import CompactionStrategy, RunRecord


class Past:
    """`is_whole`: every message that runs have read still lies in raw ledgers."""

    def __init__(
        self, line: RunLine, read: Callable[[Found], StoredMessage], *, is_whole: bool
    ) -> None:
        self._line, self._read = line, read
        # Of the input of the present run everything is known.
        self._is_known = is_whole and line.is_complete
        self._at = -1
        self._kept: deque[Case] = deque(maxlen=HELD_MAX)
        self._again: deque[Case] = deque(maxlen=HELD_MAX)
        self._begin_run()

    def meet(self, case: Case) -> None:
        """The next version that lies at or below the horizon of one of the runs."""
        while case.found.position > self._line.read_upto(self._at):
            self._end_run()
            self._begin_run()
        if self._line.reads_again(case.found.position, self._at):
            self._again.append(case)
        self._judge(case)

    def end(self) -> None:
        """No more versions come."""
        self._end_run()
        while self._at + 1 < len(self._line.runs):
            self._begin_run()
            self._end_run()

    # One run

    def _begin_run(self) -> None:
        self._at += 1
        run = self._line.runs[self._at]
        strategy = strategy_of(run)
        self._rules = rules_of(strategy.name)
        time_ms = run.plan_time_ms or run.started_ms
        judge = self._rules.judge(asked_of(strategy, time_ms, self._read))
        self._sitting = Evaluation(judge, self._conclude, self._forget)
        met, self._kept = list(self._kept), deque(maxlen=HELD_MAX)
        for case in sorted(met, key=lambda case: case.found.identity):
            self._judge(case)
        if self._at > 0:
            low, high = self._line.horizon(self._at - 1), self._line.horizon(self._at)
            for case in self._again:
                if low < case.found.position <= high:
                    self._judge(case)

    def _judge(self, case: Case) -> None:
        is_forgotten = self._at == 0 and not self._line.is_complete
        if is_forgotten or (self._rules.looks_back and not self._is_known):
            case.is_sure = False
        self._sitting.meet(case)

    def _end_run(self) -> None:
        self._sitting.end()
        if self._rules is OWN:
            self._is_known = False

    def _conclude(self, case: Case, verdict: Decision) -> None:
        run, span = self._line.runs[self._at], self._line.span(self._at)
        if verdict.keeps:
            self._kept.append(case)
            if case.dropped is not None or case.kept is None:
                case.is_back = case.dropped is not None
                case.kept, case.dropped = span, None
            if not _is_reason(case, verdict.rule, run):
                case.since = span
            case.verdict, case.run = verdict, run
        elif case.dropped is None:
            case.dropped, case.verdict, case.run = span, verdict, run
            if self._rules is OWN and self._at + 1 < len(self._line.runs):
                # It may as well have been a later run.
                case.is_sure = False

    def _forget(self, case: Case) -> None:
        case.is_sure, self._is_known = False, False


def _is_reason(case: Case, rule: pb.CompactionRule, run: RunRecord) -> bool:
    """Whether the run before had that rule, and the same strategy."""
    if case.verdict is None or case.run is None:
        return False
    return case.verdict.rule == rule and strategy_of(case.run) == strategy_of(run)


def asked_of(
    strategy: CompactionStrategy, time_ms: int, read: Callable[[Found], StoredMessage]
) -> Asked:
    return Asked(strategy.name, settings_of(strategy), time_ms, read)
