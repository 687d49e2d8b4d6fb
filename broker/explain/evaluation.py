"""A judge, and the cases before it: the versions of a key whose verdict is still to come."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ledgerfold.broker.explain.run_line import RunSpan
from ledgerfold.broker.explain.strategies.evaluator import HELD_MAX, Decision, Evaluator
from ledgerfold.broker.explain.versions import Found
from ledgerfold.storage.entry import Position
from ledgerfold.v1.records_pb2 import RunRecord


@dataclass(eq=False, slots=True)
class Case:
    """A version, and what was found out about it.

    `kept`, `dropped`: by which runs; `verdict`: of `run`, the last one that changed or confirmed
    it. `since`: the first of the runs that have kept it by that strategy and rule. `is_back`:
    dropped once, met once more, and kept. `is_sure`: nothing that had a part in it is unknown.
    `next`: what the next run does with it, None when it does not meet it. `anew`: what the strategy
    in force would have done, had it chosen from all there is.
    """

    found: Found
    kept: RunSpan | None = None
    dropped: RunSpan | None = None
    verdict: Decision | None = None
    run: RunRecord | None = None
    since: RunSpan | None = None
    is_back: bool = False
    is_sure: bool = True
    next: Decision | None = None
    anew: Decision | None = None


class Evaluation:
    """`conclude` is called with each verdict. Bound: HELD_MAX cases; of the oldest beyond them no
    verdict is told, and `forget` is called instead."""

    def __init__(
        self,
        judge: Evaluator,
        conclude: Callable[[Case, Decision], None],
        forget: Callable[[Case], None] = lambda case: None,
    ) -> None:
        self._judge, self._conclude, self._forget = judge, conclude, forget
        self._open: dict[tuple[Position, int], Case] = {}

    def meet(self, case: Case) -> None:
        self._open[case.found.identity] = case
        for verdict in self._judge.meet(case.found):
            self._hear(verdict)
        if len(self._open) > HELD_MAX:
            self._forget(self._open.pop(next(iter(self._open))))

    def end(self) -> None:
        for verdict in self._judge.keeps():
            self._hear(verdict)
        for case in self._open.values():
            self._forget(case)
        self._open.clear()

    def _hear(self, verdict: Decision) -> None:
        case = self._open.pop(verdict.found.identity, None)
        if case is not None:
            self._conclude(case, verdict)
