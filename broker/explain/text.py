"""The sentences of `explain` about past and future decisions. Pure.

The reason itself is a strategy's text (broker/explain/strategies/).

    >>> version = pb.ExplainedVersion(
    ...     state=pb.VERSION_STATE_DROPPED,
    ...     rule=pb.COMPACTION_RULE_OBSCURED,
    ...     dropped_by=pb.RunSpan(first=7, last=7),
    ... )
    >>> describe(version, Words(why="superseded by 12:40:3"))
    'superseded by 12:40:3, dropped by run 7'
"""

from __future__ import annotations

from typing import NamedTuple

from ledgerfold.broker.explain.strategies.evaluator import Decision
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.message_ids import id_text
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import MessageId

# These rules hold up to the horizon.
_UP_TO_HORIZON = frozenset(
    {
        pb.COMPACTION_RULE_NEWEST,
        pb.COMPACTION_RULE_LATEST_EVENT,
        pb.COMPACTION_RULE_LAST_N,
        pb.COMPACTION_RULE_CHOSEN,
    }
)
# The rules by which a next run keeps a message.
KEEPS = _UP_TO_HORIZON | {
    pb.COMPACTION_RULE_YOUNG,
    pb.COMPACTION_RULE_NULL_KEY_RETAINED,
    pb.COMPACTION_RULE_UNREADABLE,
}
_SELF_EVIDENT = (pb.COMPACTION_RULE_NEWEST, pb.COMPACTION_RULE_NULL_KEY_RETAINED)


class Words(NamedTuple):
    """The parts of a sentence. `why`: "" if unknown.

    `under`: the strategy, or the possible ones, if worth stating; `in_force`: that of the next run.
    `is_back`: dropped, then read again.
    """

    why: str = ""
    horizon: Position | None = None
    floor: Position = EARLIEST
    under: str = ""
    in_force: str = ""
    is_back: bool = False


def describe(version: pb.ExplainedVersion, words: Words) -> str:
    """Describes the decisions of past runs."""
    state = version.state
    if state == pb.VERSION_STATE_ABOVE_HORIZON:
        return (
            "not compacted yet" if words.horizon is None else f"above the horizon {words.horizon}"
        )
    if state == pb.VERSION_STATE_NEVER_MET:
        return "if it existed, it was trimmed before a run read it"
    if state == pb.VERSION_STATE_UNKNOWN:
        return f"if it existed, dropped by {_runs(version.dropped_by)}; reason no longer known"
    if state == pb.VERSION_STATE_INCONSISTENT:
        holds = version.place != pb.VERSION_PLACE_RAW
        difference = "holds it and should not" if holds else "does not hold it and should"
        return f"INCONSISTENT: the compacted ledger {difference} ({_why(version, words)})"
    if state == pb.VERSION_STATE_KEPT:
        return _kept_text(version, words)
    return _dropped(version, words)


def _kept_text(version: pb.ExplainedVersion, words: Words) -> str:
    by = f"kept by {_runs(version.kept_by)}{_under(words)}"
    if words.why:
        back = "read again, " if words.is_back else ""
        sentence = f"{back}{_why(version, words)}, {by}"
    else:
        sentence = f"{by}; reason no longer known"
    if version.is_hidden:
        return f"{sentence}, but retention hides messages before {words.floor}"
    return sentence


def _dropped(version: pb.ExplainedVersion, words: Words) -> str:
    kept_text = f"kept by {_runs(version.kept_by)}, " if version.HasField("kept_by") else ""
    by = f"dropped by {_runs(version.dropped_by)}{_under(words)}"
    missed = f"; {words.in_force} would have kept it" if version.is_missed else ""
    if not words.why:
        return f"{by}; reason no longer known{missed}"
    return f"{kept_text}{words.why}, {by}{missed}"


def _why(version: pb.ExplainedVersion, words: Words) -> str:
    is_so = version.rule in _UP_TO_HORIZON
    return f"{words.why} up to the horizon {words.horizon}" if is_so else words.why


def _under(words: Words) -> str:
    return f" under {words.under}" if words.under else ""


def next_change(version: pb.ExplainedVersion, decision: Decision | None) -> str:
    """Describes the next change and its condition. `decision`: of a run that started now."""
    if decision is None:
        return f"its raw copy is removed when ledger {version.id.ledger_id} is trimmed"
    if decision.rule == pb.COMPACTION_RULE_OWN_CODE:
        return f"{decision.why}; only the next run shows its decision"
    if not decision.keeps:
        return f"the next run drops it: {decision.why}"
    if version.state != pb.VERSION_STATE_ABOVE_HORIZON:
        return decision.stays
    why = "" if decision.rule in _SELF_EVIDENT else f": {decision.why}"
    return f"the next run keeps it{why}"


def record_text(message_id: MessageId) -> str:
    """Formats the id as commands accept it."""
    return id_text(
        message_id.ledger_id, message_id.entry_id, message_id.partition, message_id.batch_index
    )


def _runs(span: pb.RunSpan) -> str:
    if span.first == span.last:
        return f"run {span.last}"
    if span.first == 1:
        return f"run {span.last} or an earlier one"
    return f"one of the runs {span.first} to {span.last}"
