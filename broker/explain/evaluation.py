"""The evaluation of a key's versions in one run, and the versions that await a decision."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ledgerfold.broker.explain.run_line import RunSpan
from ledgerfold.broker.explain.strategies.evaluator import HELD_MAX, Decision, Evaluator
from ledgerfold.broker.explain.versions import Found
from ledgerfold.storage.entry import Position
from ledgerfold.v1.records_pb2 import RunRecord


@dataclass(eq=False, slots=True)
class Version:
    """A version, and the findings about it.

    `kept`, `dropped`: the runs that did so; `decision`: that of `run`, the last one that changed or
    confirmed it. `since`: the first of the runs that have kept it by that strategy and rule.
    `is_back`: dropped, read again, and kept. `is_sure`: nothing unknown has influenced it. `next`:
    the next run's decision, None if that run does not read it. `hypothetical`: the decision of the
    strategy in force, if it had read every message.
    """

    found: Found
    kept: RunSpan | None = None
    dropped: RunSpan | None = None
    decision: Decision | None = None
    run: RunRecord | None = None
    since: RunSpan | None = None
    is_back: bool = False
    is_sure: bool = True
    next: Decision | None = None
    hypothetical: Decision | None = None


class Evaluation:
    """The evaluation of one run. Calls `conclude` with each decision.

    Bound: HELD_MAX versions; for older ones no decision is reported, and `forget` is called
    instead.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        conclude: Callable[[Version, Decision], None],
        forget: Callable[[Version], None] = lambda version: None,
    ) -> None:
        self._evaluator, self._conclude, self._forget = evaluator, conclude, forget
        self._open: dict[tuple[Position, int], Version] = {}

    def meet(self, version: Version) -> None:
        self._open[version.found.identity] = version
        for decision in self._evaluator.meet(version.found):
            self._report(decision)
        if len(self._open) > HELD_MAX:
            self._forget(self._open.pop(next(iter(self._open))))

    def end(self) -> None:
        for decision in self._evaluator.keeps():
            self._report(decision)
        for version in self._open.values():
            self._forget(version)
        self._open.clear()

    def _report(self, decision: Decision) -> None:
        version = self._open.pop(decision.found.identity, None)
        if version is not None:
            self._conclude(version, decision)
