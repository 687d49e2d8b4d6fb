"""What compaction did, and will do, with each version of a key, or each message without one. Pure.

A version is a message of the key. It lies in a raw ledger, in the compacted ledger, or in both.
Rules (docs/GLOSSARY.md, docs/STRATEGIES.md):

1. Beyond the horizons of all runs nobody has looked at it yet.
2. A run's input is the previous compacted ledger and what lies above the horizon. So what was
   dropped stays out, even while its raw ledger exists; and so does what retention has removed from
   the compacted ledger.
3. What a run keeps of its input is its strategy's to say (broker/explain/strategies/); each run had
   its own (past.py), and the next one has that which is in force now.
4. Without a key: dropped by the first run that had retain_null_key=false (null_keys.py).

What the compacted ledger really holds is compared with what the runs should have left. A difference
is damage, and said; unless something that may have had a part in it is not known any more, or was
decided by a strategy of one's own.

    >>> from ledgerfold.storage.key_scan import KeyVersion
    >>> a, b = KeyVersion(Position(1, 0), -1, 5, 0, 2, False), Position(1, 1)
    >>> history = [Found(a, in_raw=True), Found(a._replace(position=b, value_bytes=0), in_raw=True)]
    >>> explained = explain(history, Facts())
    >>> [version.next for version in explained.versions]
    ['the next run drops it: deleted by 1:1', 'the next run drops it: a tombstone']

Bound: the newest VERSIONS_MAX versions are told, older ones are counted: a megabyte or so. The
input may be as long as it likes: it is looked at once. What is held beside: strategies/judge.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ledgerfold.broker.explain import null_keys
from ledgerfold.broker.explain import text as explain_text
from ledgerfold.broker.explain.evaluation import Case, Evaluation
from ledgerfold.broker.explain.past import Past, asked_of
from ledgerfold.broker.explain.run_line import (
    RunLine,
    RunSpan,
    drops_null_keys,
    strategy_of,
)
from ledgerfold.broker.explain.strategies import OWN, rules_of
from ledgerfold.broker.explain.strategies.evaluator import Decision, dropped
from ledgerfold.broker.explain.versions import Found
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.strategies.catalogue import DEFAULT
from ledgerfold.strategies.catalogue import told as strategy_text
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import CompactionStrategy, MessageId

VERSIONS_MAX = 1_000


def _nothing_to_read(found: Found) -> StoredMessage:
    raise LookupError(found.name)


@dataclass(frozen=True)
class Facts:
    """What is known of the topic. `line` is there exactly when `horizon` is.

    `floor`: retention removed what lies before it. `retain_null_key`, `strategy`: the policies in
    force. `time_ms`: now. `is_whole`: all that runs have read still lies in raw ledgers. `read`: a
    message with value and properties, for the strategies that look at them.
    """

    horizon: Position | None = None
    line: RunLine | None = None
    floor: Position = EARLIEST
    retain_null_key: bool = False
    has_key: bool = True
    partition: int = -1
    strategy: CompactionStrategy = field(default_factory=lambda: CompactionStrategy(name=DEFAULT))
    time_ms: int = 0
    is_whole: bool = False
    read: Callable[[Found], StoredMessage] = _nothing_to_read


class Explained(NamedTuple):
    """`older`: versions before those listed."""

    versions: list[pb.ExplainedVersion]
    older: int


def explain(
    history: Iterable[Found],
    facts: Facts,
    *,
    wanted: Callable[[Found], bool] = lambda found: True,
    versions_max: int = VERSIONS_MAX,
) -> Explained:
    """`history`: all versions of one key that exist, in order of id. `wanted`: which of them to
    tell about."""
    newest: deque[Case] = deque(maxlen=versions_max)
    count, account = 0, _Account(facts)
    for found in history:
        case = account.meet(found)
        if wanted(found):
            newest.append(case)
            count += 1
    account.end()
    return Explained([_tell(case, facts) for case in newest], count - len(newest))


def explain_trimmed(message_id: MessageId, facts: Facts) -> pb.ExplainedVersion:
    """Of a message that lies nowhere any more, what the runs can tell."""
    told = pb.ExplainedVersion(id=message_id, place=pb.VERSION_PLACE_TRIMMED)
    told.id.partition = facts.partition
    first = None
    if facts.line is not None:
        first = facts.line.first_over(Position(message_id.ledger_id, message_id.entry_id))
    if first is None or facts.line is None:
        told.state = pb.VERSION_STATE_NEVER_MET
    else:
        told.state = pb.VERSION_STATE_UNKNOWN
        told.dropped_by.CopyFrom(_span(RunSpan(first.first, facts.line.last)))
    told.what = explain_text.what(told, explain_text.Words())
    return told


class _Account:
    """All that is found out about the versions, while they pass by."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._past, self._anew = None, None
        asked = asked_of(facts.strategy, facts.time_ms, facts.read)
        rules = rules_of(facts.strategy.name)
        self._next = Evaluation(rules.judge(asked), _conclude_next)
        if facts.line is not None and facts.has_key:
            self._past = Past(facts.line, facts.read, is_whole=facts.is_whole)
            if rules is not OWN and any(
                strategy_of(run) != facts.strategy for run in facts.line.runs
            ):
                self._anew = Evaluation(rules.judge(asked), _conclude_anew)

    def meet(self, found: Found) -> Case:
        case, line = Case(found), self._facts.line
        if line is not None and line.first_over(found.position) is not None:
            if self._past is not None:
                self._past.meet(case)
            else:
                null_keys.tell_past(case, line)
        if self._anew is not None:
            self._anew.meet(case)
        self._meet_next(case)
        return case

    def end(self) -> None:
        for each in (self._past, self._anew, self._next):
            if each is not None:
                each.end()

    def _meet_next(self, case: Case) -> None:
        facts, found = self._facts, case.found
        is_above = facts.horizon is None or found.position > facts.horizon
        if not is_above and not found.in_compacted:
            return
        if found.position < facts.floor:
            why = f"retention removed what lies before {facts.floor}"
            case.next = dropped(found, pb.COMPACTION_RULE_RETENTION, why)
        elif facts.has_key:
            self._next.meet(case)
        else:
            name = facts.strategy.name
            keeps = facts.retain_null_key and not drops_null_keys(name)
            case.next = null_keys.judged(found, name, keeps=keeps)


def _conclude_next(case: Case, verdict: Decision) -> None:
    case.next = verdict


def _conclude_anew(case: Case, verdict: Decision) -> None:
    case.anew = verdict


class _Reason(NamedTuple):
    """`strategies`: of the run, or of those that come into question; none where it is not known."""

    why: str = ""
    strategies: Sequence[CompactionStrategy] = ()


def _tell(case: Case, facts: Facts) -> pb.ExplainedVersion:
    found, version = case.found, case.found.version
    told = pb.ExplainedVersion(
        id=found.message_id,
        publish_time_ms=version.publish_time_ms,
        event_time_ms=version.event_time_ms,
        value_bytes=version.value_bytes,
        key_is_base64=version.key_is_base64,
        place=_place(found),
        is_hidden=not found.in_raw and found.position < facts.floor,
    )
    reason = _tell_past(told, case, facts)
    told.what = explain_text.what(
        told,
        explain_text.Words(
            why=reason.why,
            horizon=facts.horizon,
            floor=facts.floor,
            under=_under(reason.strategies, facts),
            in_force=strategy_text(facts.strategy),
            is_back=case.is_back,
        ),
    )
    if case.next is not None:
        told.next_rule = case.next.rule
        if case.next.by is not None:
            told.next_by.CopyFrom(case.next.by.message_id)
    told.next = explain_text.next_change(told, case.next)
    return told


def _place(found: Found) -> pb.VersionPlace:
    if not found.in_compacted:
        return pb.VERSION_PLACE_RAW
    return pb.VERSION_PLACE_BOTH if found.in_raw else pb.VERSION_PLACE_COMPACTED


def _tell_past(told: pb.ExplainedVersion, case: Case, facts: Facts) -> _Reason:
    line, is_kept = facts.line, case.found.in_compacted
    first = None if line is None else line.first_over(case.found.position)
    if line is None or first is None:
        told.state = pb.VERSION_STATE_ABOVE_HORIZON
        return _Reason()
    told.state = pb.VERSION_STATE_KEPT if is_kept else pb.VERSION_STATE_DROPPED
    is_so = case.verdict is not None and (case.dropped is None) == is_kept
    verdict = case.verdict if is_so or case.is_sure else None
    if case.is_sure:
        if not is_so:
            told.state = pb.VERSION_STATE_INCONSISTENT
        _tell_runs(told, case.kept, case.dropped)
    elif is_kept:
        again = line.may_come_back(case.found.position)
        _tell_runs(told, RunSpan(first.first, line.last) if again else first, None)
    else:
        last = line.last
        is_steady = case.run is not None and rules_of(strategy_of(case.run).name).is_steady
        if is_so and case.dropped and line.is_uniform and is_steady:
            last = case.dropped.last
        _tell_runs(told, None, RunSpan(first.first, last))
    if verdict is not None and verdict.keeps and case.since is not None:
        # Those that kept it before had another reason.
        told.kept_by.first = max(told.kept_by.first, case.since.first)
        told.kept_by.last = max(told.kept_by.last, case.since.first)
    return _tell_reason(told, case, verdict, facts)


def _tell_reason(
    told: pb.ExplainedVersion, case: Case, verdict: Decision | None, facts: Facts
) -> _Reason:
    """Strategy, rule and cause, where it is known whose they are: one of several runs may have
    dropped it, or kept it when it came back, each by its own strategy."""
    suspects, span = [], told.dropped_by if told.HasField("dropped_by") else None
    if span is None and verdict is None:
        span = told.kept_by
    if facts.line is not None and span is not None:
        suspects = facts.line.strategies(RunSpan(span.first, span.last))
    if len(suspects) > 1:
        # Without a key it is one reason, or none of them (null_keys.py).
        verdict = None if facts.has_key else verdict
    elif verdict is None or case.run is None:
        return _Reason()
    else:
        suspects = [strategy_of(case.run)]
        told.strategy = suspects[0].name
    if verdict is not None:
        told.rule = verdict.rule
        if verdict.by is not None:
            told.by.CopyFrom(verdict.by.message_id)
    is_other = facts.strategy not in suspects
    told.is_missed = (
        not case.found.in_compacted and is_other and bool(case.anew and case.anew.keeps)
    )
    return _Reason(verdict.why if verdict else "", suspects)


def _under(suspects: Sequence[CompactionStrategy], facts: Facts) -> str:
    """Their names, where there was another, or is now."""
    if facts.line is None or (facts.line.is_uniform and suspects == [facts.strategy]):
        return ""
    *others, last = [strategy_text(each) for each in suspects] or [""]
    return f"{', '.join(others)} or {last}" if others else last


def _tell_runs(told: pb.ExplainedVersion, kept: RunSpan | None, dropped: RunSpan | None) -> None:
    if kept is not None:
        told.kept_by.CopyFrom(_span(kept))
    if dropped is not None:
        told.dropped_by.CopyFrom(_span(dropped))


def _span(span: RunSpan) -> pb.RunSpan:
    return pb.RunSpan(first=span.first, last=span.last)
