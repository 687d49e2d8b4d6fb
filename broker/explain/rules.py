"""Past and future decisions of compaction about a key's versions, or messages without a key. Pure.

A version is a message of the key. It is in a raw ledger, in the compacted ledger, or in both. Rules
(docs/GLOSSARY.md, docs/STRATEGIES.md):

1. Messages above the horizons of all runs have not been read yet.
2. A run's input is the previous compacted ledger and the messages above the horizon. So a dropped
   message is not in the input of later runs, even while its raw ledger exists; nor is a message
   that retention has removed from the compacted ledger.
3. The strategy decides which messages of its input a run keeps (broker/explain/strategies/); each
   run had its own (past.py), and the next one has the one in force now.
4. Messages without a key are dropped by the first run with retain_null_key=false (past.py).

The actual contents of the compacted ledger are compared with the expected result of the runs. A
difference is reported as damage, unless it may be due to unknown messages, or a user-defined
strategy.

    >>> from ledgerfold.storage.key_scan import KeyVersion
    >>> a, b = KeyVersion(Position(1, 0), -1, 5, 0, 2, False), Position(1, 1)
    >>> deletion = a._replace(position=b, value_bytes=0)
    >>> history = [each._replace(in_raw=True) for each in (a, deletion)]
    >>> explained = explain(history, Facts())
    >>> [version.next for version in explained.versions]
    ['the next run drops it: deleted by 1:1', 'the next run drops it: a tombstone']

Bound: the newest VERSIONS_MAX versions are explained, older ones are counted: about a megabyte. The
input may have any length: it is read once, with the memory of
broker/explain/strategies/evaluator.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ledgerfold.broker.explain import text as explain_text
from ledgerfold.broker.explain.past import (
    Evaluation,
    Past,
    Version,
    add_null_key_past,
    null_key_decision,
    run_parameters,
)
from ledgerfold.broker.explain.run_line import RunLine, strategy_of
from ledgerfold.broker.explain.strategies import OWN, rules_of
from ledgerfold.broker.explain.strategies.evaluator import Decision, dropped
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import EARLIEST, Position, position_of
from ledgerfold.storage.key_scan import KeyVersion
from ledgerfold.strategies.catalogue import DEFAULT, drops_null_keys, strategy_text
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import CompactionStrategy, MessageId

VERSIONS_MAX = 1_000


def _nothing_to_read(version: KeyVersion) -> StoredMessage:
    raise LookupError(version.name)


@dataclass(frozen=True)
class Facts:
    """The facts about the topic. `line` is set if and only if `horizon` is.

    `floor`: retention removed messages before it. `retain_null_key`, `strategy`: the policies in
    force. `time_ms`: now. `is_whole`: raw ledgers still hold every message that runs have read.
    `read`: reads a message with value and properties, for strategies that need them.
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
    read: Callable[[KeyVersion], StoredMessage] = _nothing_to_read


class Explained(NamedTuple):
    """The explained versions. `older`: the number of versions before them."""

    versions: list[pb.ExplainedVersion]
    older: int


def explain(
    history: Iterable[KeyVersion],
    facts: Facts,
    *,
    is_requested: Callable[[KeyVersion], bool] = lambda version: True,
    versions_max: int = VERSIONS_MAX,
) -> Explained:
    """Explains versions. `history`: all existing versions of one key, in order of id.

    `is_requested`: selects the versions to explain.
    """
    newest: deque[Version] = deque(maxlen=versions_max)
    count, account = 0, _Account(facts)
    for found in history:
        version = account.process(found)
        if is_requested(found):
            newest.append(version)
            count += 1
    account.end()
    return Explained([_explained(version, facts) for version in newest], count - len(newest))


def explain_trimmed(message_id: MessageId, facts: Facts) -> pb.ExplainedVersion:
    """Explains a message that no longer exists, as far as runs allow."""
    explained = pb.ExplainedVersion(id=message_id, place=pb.VERSION_PLACE_TRIMMED)
    explained.id.partition = facts.partition
    first = None
    if facts.line is not None:
        first = facts.line.first_over(position_of(message_id))
    if first is None or facts.line is None:
        explained.state = pb.VERSION_STATE_NEVER_MET
    else:
        explained.state = pb.VERSION_STATE_UNKNOWN
        explained.dropped_by.first, explained.dropped_by.last = first.first, facts.line.last
    explained.what = explain_text.describe(explained, explain_text.Words())
    return explained


class _Account:
    """The account of all decisions about the versions, in one pass."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._past, self._hypothetical = None, None
        requested = run_parameters(facts.strategy, facts.time_ms, facts.read)
        rules = rules_of(facts.strategy.name)
        self._next = Evaluation(rules.evaluator(requested), _conclude_next)
        if facts.line is not None and facts.has_key:
            self._past = Past(facts.line, facts.read, is_whole=facts.is_whole)
            if rules is not OWN and any(
                strategy_of(run) != facts.strategy for run in facts.line.runs
            ):
                self._hypothetical = Evaluation(rules.evaluator(requested), _conclude_hypothetical)

    def process(self, subject: KeyVersion) -> Version:
        version, line = Version(subject), self._facts.line
        if line is not None and subject.position <= line.read_through[-1]:
            if self._past is not None:
                self._past.process(version)
            else:
                add_null_key_past(version, line)
        if self._hypothetical is not None:
            self._hypothetical.process(version)
        self._process_next(version)
        return version

    def end(self) -> None:
        for each in (self._past, self._hypothetical, self._next):
            if each is not None:
                each.end()

    def _process_next(self, version: Version) -> None:
        facts, message = self._facts, version.subject
        is_above = facts.horizon is None or message.position > facts.horizon
        if not is_above and not message.in_compacted:
            return
        if message.position < facts.floor:
            why = f"retention removed messages before {facts.floor}"
            version.next = dropped(message, pb.COMPACTION_RULE_RETENTION, why)
        elif facts.has_key:
            self._next.process(version)
        else:
            name = facts.strategy.name
            keeps = facts.retain_null_key and not drops_null_keys(name)
            version.next = null_key_decision(message, name, keeps=keeps)


def _conclude_next(version: Version, decision: Decision) -> None:
    version.next = decision


def _conclude_hypothetical(version: Version, decision: Decision) -> None:
    version.hypothetical = decision


# A reason, and the run's strategies, or the possible ones; both empty if unknown.
_Reason = tuple[str, Sequence[CompactionStrategy]]


def _explained(version: Version, facts: Facts) -> pb.ExplainedVersion:
    message = version.subject
    explained = pb.ExplainedVersion(
        id=message.message_id,
        publish_time_ms=message.publish_time_ms,
        event_time_ms=message.event_time_ms,
        value_bytes=message.value_bytes,
        key_is_base64=message.key_is_base64,
        place=_place_of(message),
        is_hidden=not message.in_raw and message.position < facts.floor,
    )
    why, strategies = _add_past(explained, version, facts)
    explained.what = explain_text.describe(
        explained,
        explain_text.Words(
            why=why,
            horizon=facts.horizon,
            floor=facts.floor,
            under=_under(strategies, facts),
            in_force=strategy_text(facts.strategy),
            is_back=version.is_back,
        ),
    )
    if version.next is not None:
        explained.next_rule = version.next.rule
        if version.next.by is not None:
            explained.next_by.CopyFrom(version.next.by.message_id)
    explained.next = explain_text.next_change(explained, version.next)
    return explained


def _place_of(version: KeyVersion) -> pb.VersionPlace:
    if not version.in_compacted:
        return pb.VERSION_PLACE_RAW
    return pb.VERSION_PLACE_BOTH if version.in_raw else pb.VERSION_PLACE_COMPACTED


def _add_past(explained: pb.ExplainedVersion, version: Version, facts: Facts) -> _Reason:
    line, is_kept = facts.line, version.subject.in_compacted
    first = None if line is None else line.first_over(version.subject.position)
    if line is None or first is None:
        explained.state = pb.VERSION_STATE_ABOVE_HORIZON
        return "", ()
    explained.state = pb.VERSION_STATE_KEPT if is_kept else pb.VERSION_STATE_DROPPED
    is_so = version.decision is not None and (version.dropped_by is None) == is_kept
    decision = version.decision if is_so or version.is_sure else None
    if version.is_sure:
        if not is_so:
            explained.state = pb.VERSION_STATE_INCONSISTENT
        _add_runs(explained, version.kept_by, version.dropped_by)
    elif is_kept:
        again = line.may_come_back(version.subject.position)
        last = line.last if again else first.last
        _add_runs(explained, pb.RunSpan(first=first.first, last=last), None)
    else:
        last = line.last
        is_steady = version.run is not None and rules_of(strategy_of(version.run).name).is_steady
        if is_so and version.dropped_by and line.is_uniform and is_steady:
            last = version.dropped_by.last
        _add_runs(explained, None, pb.RunSpan(first=first.first, last=last))
    if decision is not None and decision.keeps and version.since is not None:
        # Earlier runs kept it for another reason.
        explained.kept_by.first = max(explained.kept_by.first, version.since.first)
        explained.kept_by.last = max(explained.kept_by.last, version.since.first)
    return _add_reason(explained, version, decision, facts)


def _add_reason(
    explained: pb.ExplainedVersion, version: Version, decision: Decision | None, facts: Facts
) -> _Reason:
    """Fills in strategy, rule and cause, if known. Returns the reason.

    One of several runs may have dropped it, or kept it when it returned, each by its own strategy.
    """
    suspects, span = [], explained.dropped_by if explained.HasField("dropped_by") else None
    if span is None and decision is None:
        span = explained.kept_by
    if facts.line is not None and span is not None:
        suspects = facts.line.strategies(span)
    if len(suspects) > 1:
        # Without a key the reason is common to all, or unknown (past.py).
        decision = None if facts.has_key else decision
    elif decision is None or version.run is None:
        return "", ()
    else:
        suspects = [strategy_of(version.run)]
        explained.strategy = suspects[0].name
    if decision is not None:
        explained.rule = decision.rule
        if decision.by is not None:
            explained.by.CopyFrom(decision.by.message_id)
    is_other = facts.strategy not in suspects
    explained.is_missed = (
        not version.subject.in_compacted
        and is_other
        and bool(version.hypothetical and version.hypothetical.keeps)
    )
    return decision.why if decision else "", suspects


def _under(suspects: Sequence[CompactionStrategy], facts: Facts) -> str:
    """Returns the names of the strategies, if another one was, or is now, in force."""
    if facts.line is None or (facts.line.is_uniform and suspects == [facts.strategy]):
        return ""
    *others, last = [strategy_text(each) for each in suspects] or [""]
    return f"{', '.join(others)} or {last}" if others else last


def _add_runs(
    explained: pb.ExplainedVersion, kept_by: pb.RunSpan | None, dropped_by: pb.RunSpan | None
) -> None:
    if kept_by is not None:
        explained.kept_by.CopyFrom(kept_by)
    if dropped_by is not None:
        explained.dropped_by.CopyFrom(dropped_by)
