"""The decisions of past runs about the versions of a key, each by its own strategy. Pure.

A run's input is the output of the previous run, and the messages between the two horizons. The
versions are read once, in order of id. A run's evaluator gets those in its input; the versions that
it keeps are input of the next run. If a horizon is below that of the previous run (run_line.py),
the next run reads the messages in between again.

Some facts are unknown: of trimmed raw ledgers, only the messages in the compacted ledger remain;
old runs are forgotten; the code of user-defined strategies is not called. A decision that depends
on such a fact is not sure (Version.is_sure): the caller then trusts the compacted ledger.

Bounds: the input of the next run, and the messages to read again, HELD_MAX versions each, the
newest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ledgerfold.broker.explain.run_line import RunLine, strategy_of
from ledgerfold.broker.explain.strategies import OWN, rules_of
from ledgerfold.broker.explain.strategies.evaluator import (
    HELD_MAX,
    Decision,
    Evaluator,
    RunParameters,
    dropped,
)
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import Position
from ledgerfold.storage.key_scan import KeyVersion
from ledgerfold.strategies.catalogue import drops_null_keys, settings_of
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import CompactionStrategy, RunRecord


@dataclass(eq=False, slots=True)
class Version:
    """A version, and the findings about it.

    `kept_by`, `dropped_by`: the runs that kept or dropped it; `decision`: that of `run`, the last
    one that changed or confirmed it. `since`: the first of the runs that have kept it by that
    strategy and rule. `is_back`: dropped, read again, and kept. `is_sure`: nothing unknown has
    influenced it. `next`: the next run's decision; None if that run does not read it.
    `hypothetical`: the decision of the strategy in force, if it had read every message.
    """

    subject: KeyVersion
    kept_by: pb.RunSpan | None = None
    dropped_by: pb.RunSpan | None = None
    decision: Decision | None = None
    run: RunRecord | None = None
    since: pb.RunSpan | None = None
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

    def process(self, version: Version) -> None:
        self._open[version.subject.identity] = version
        for decision in self._evaluator.process(version.subject):
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
        version = self._open.pop(decision.version.identity, None)
        if version is not None:
            self._conclude(version, decision)


class Past:
    """The past runs. `is_whole`: raw ledgers still hold every message that runs have read."""

    def __init__(
        self, line: RunLine, read: Callable[[KeyVersion], StoredMessage], *, is_whole: bool
    ) -> None:
        self._line, self._read = line, read
        # The input of the current run is completely known.
        self._is_known = is_whole and line.is_complete
        self._at = -1
        self._survivors: deque[Version] = deque(maxlen=HELD_MAX)
        self._read_again: deque[Version] = deque(maxlen=HELD_MAX)
        self._begin_run()

    def process(self, version: Version) -> None:
        """Adds the next version at or below the horizon of one of the runs."""
        while version.subject.position > self._line.read_through[self._at]:
            self._end_run()
            self._begin_run()
        if self._line.reads_again(version.subject.position, self._at):
            self._read_again.append(version)
        self._evaluate(version)

    def end(self) -> None:
        """Ends the input."""
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
        evaluator = self._rules.evaluator(run_parameters(strategy, time_ms, self._read))
        self._evaluation = Evaluation(evaluator, self._conclude, self._forget)
        met, self._survivors = list(self._survivors), deque(maxlen=HELD_MAX)
        for version in sorted(met, key=lambda version: version.subject.identity):
            self._evaluate(version)
        if self._at > 0:
            low, high = self._line.horizons[self._at - 1], self._line.horizons[self._at]
            for version in self._read_again:
                if low < version.subject.position <= high:
                    self._evaluate(version)

    def _evaluate(self, version: Version) -> None:
        is_forgotten = self._at == 0 and not self._line.is_complete
        if is_forgotten or (self._rules.looks_back and not self._is_known):
            version.is_sure = False
        self._evaluation.process(version)

    def _end_run(self) -> None:
        self._evaluation.end()
        if self._rules is OWN:
            self._is_known = False

    def _conclude(self, version: Version, decision: Decision) -> None:
        run, span = self._line.runs[self._at], self._line.spans[self._at]
        if decision.keeps:
            self._survivors.append(version)
            if version.dropped_by is not None or version.kept_by is None:
                version.is_back = version.dropped_by is not None
                version.kept_by, version.dropped_by = span, None
            if not _is_reason(version, decision.rule, run):
                version.since = span
            version.decision, version.run = decision, run
        elif version.dropped_by is None:
            version.dropped_by, version.decision, version.run = span, decision, run
            if self._rules is OWN and self._at + 1 < len(self._line.runs):
                # A later run may have dropped it as well.
                version.is_sure = False

    def _forget(self, version: Version) -> None:
        version.is_sure, self._is_known = False, False


def _is_reason(version: Version, rule: pb.CompactionRule, run: RunRecord) -> bool:
    """Returns whether the previous run had that rule, and the same strategy."""
    if version.decision is None or version.run is None:
        return False
    return version.decision.rule == rule and strategy_of(version.run) == strategy_of(run)


def run_parameters(
    strategy: CompactionStrategy, time_ms: int, read: Callable[[KeyVersion], StoredMessage]
) -> RunParameters:
    return RunParameters(strategy.name, settings_of(strategy), time_ms, read)


def null_key_decision(version: KeyVersion, strategy: str, *, keeps: bool) -> Decision:
    """Returns the decision of a run about a message without a key: it keeps or drops all of them.

    The policy `retain_null_key` decides; message strategies keep none. A batch that does not parse
    is not a message: every run keeps it.
    """
    if version.is_unreadable:
        return Decision(
            version,
            True,
            pb.COMPACTION_RULE_UNREADABLE,
            "the batch does not parse",
            stays="stays: every run keeps a batch that does not parse",
        )
    if keeps:
        return Decision(
            version,
            True,
            pb.COMPACTION_RULE_NULL_KEY_RETAINED,
            "null key, retain_null_key=true",
            stays="stays as long as retain_null_key is true",
        )
    if drops_null_keys(strategy):
        why = f"null key, which {strategy} never keeps"
        return Decision(version, False, pb.COMPACTION_RULE_NULL_KEY_STRATEGIC, why)
    why = "null key, retain_null_key=false"
    return Decision(version, False, pb.COMPACTION_RULE_NULL_KEY, why)


def add_null_key_past(version: Version, line: RunLine) -> None:
    """Fills in the decisions of past runs about a message without a key."""
    message = version.subject
    first = line.first_over(message.position)
    if message.in_compacted:
        is_unreadable = message.is_unreadable
        version.kept_by = (not is_unreadable and line.null_keys_kept_by(message.position)) or first
        version.run = line.run(line.last)
        version.since = line.with_strategy_of(version.run)
        version.decision = null_key_decision(message, version.run.strategy, keeps=True)
        return
    version.dropped_by = line.null_keys_dropped_by(message.position)
    version.run = line.run(version.dropped_by.last if version.dropped_by else line.last)
    suspects = (
        line.strategies(version.dropped_by) if version.dropped_by else [strategy_of(version.run)]
    )
    version.decision = _null_key_dropped(message, [each.name for each in suspects])
    if first and (version.dropped_by is None or first.last < version.dropped_by.first):
        version.kept_by = first


def _null_key_dropped(version: KeyVersion, suspects: Sequence[str]) -> Decision:
    """Returns the decision of a run of one of these strategies, with the reason if it is common to
    all.
    """
    decision, *others = [null_key_decision(version, each, keeps=False) for each in suspects]
    if all(other == decision for other in others):
        return decision
    return dropped(version, pb.COMPACTION_RULE_UNSPECIFIED, "null key")
