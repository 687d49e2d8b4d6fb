"""The sentences of `explain`: what became of a version, and what comes next. Pure.

The reason itself is in the words of a strategy (broker/explain/strategies/).

>>> version = pb.ExplainedVersion(
...     state=pb.VERSION_STATE_DROPPED,
...     rule=pb.COMPACTION_RULE_OBSCURED,
...     dropped_by=pb.RunSpan(first=7, last=7),
... )
>>> what(version, Words(why="obscured by 12:40:3"))
'obscured by 12:40:3, dropped by run 7'
"""

from __future__ import annotations

from typing import NamedTuple

from ledgerfold.broker.explain.strategies.judge import Verdict
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.message_ids import id_text
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import MessageId

# True as far as the horizon goes.
_UP_TO_HORIZON = frozenset(
    {
        pb.COMPACTION_RULE_NEWEST,
        pb.COMPACTION_RULE_LATEST_EVENT,
        pb.COMPACTION_RULE_LAST_N,
        pb.COMPACTION_RULE_CHOSEN,
    }
)
# Of the rules of a next run: those by which it keeps.
KEEPS = _UP_TO_HORIZON | {pb.COMPACTION_RULE_YOUNG, pb.COMPACTION_RULE_NULL_KEY_RETAINED}
_SELF_EVIDENT = (pb.COMPACTION_RULE_NEWEST, pb.COMPACTION_RULE_NULL_KEY_RETAINED)


class Words(NamedTuple):
    """What a sentence is made of. `why`: "" when it is not known. `under`: the strategy, or those
    that come into question, where that is worth naming; `in_force`: that of the next run.
    `is_back`: dropped once, met once more.
    """

    why: str = ""
    horizon: Position | None = None
    floor: Position = EARLIEST
    under: str = ""
    in_force: str = ""
    is_back: bool = False


def what(version: pb.ExplainedVersion, words: Words) -> str:
    """What runs did with it."""
    state = version.state
    if state == pb.VERSION_STATE_ABOVE_HORIZON:
        return (
            "not compacted yet" if words.horizon is None else f"above the horizon {words.horizon}"
        )
    if state == pb.VERSION_STATE_NEVER_MET:
        return "if it was there, it was trimmed before a run looked at it"
    if state == pb.VERSION_STATE_UNKNOWN:
        return f"if it was there, dropped by {_runs(version.dropped_by)}; why is not known any more"
    if state == pb.VERSION_STATE_INCONSISTENT:
        holds = version.place != pb.VERSION_PLACE_RAW
        there = "holds it and should not" if holds else "does not hold it and should"
        return f"INCONSISTENT: the compacted ledger {there} ({_why(version, words)})"
    if state == pb.VERSION_STATE_KEPT:
        return _kept(version, words)
    return _dropped(version, words)


def _kept(version: pb.ExplainedVersion, words: Words) -> str:
    by = f"kept by {_runs(version.kept_by)}{_under(words)}"
    if words.why:
        back = "met once more, " if words.is_back else ""
        sentence = f"{back}{_why(version, words)}, {by}"
    else:
        sentence = f"{by}; why is not known any more"
    if version.is_hidden:
        return f"{sentence}, but retention hides what lies before {words.floor}"
    return sentence


def _dropped(version: pb.ExplainedVersion, words: Words) -> str:
    kept = f"kept by {_runs(version.kept_by)}, " if version.HasField("kept_by") else ""
    by = f"dropped by {_runs(version.dropped_by)}{_under(words)}"
    missed = f"; {words.in_force} would have kept it" if version.is_missed else ""
    if not words.why:
        return f"{by}; why is not known any more{missed}"
    return f"{kept}{words.why}, {by}{missed}"


def _why(version: pb.ExplainedVersion, words: Words) -> str:
    is_so = version.rule in _UP_TO_HORIZON
    return f"{words.why} up to the horizon {words.horizon}" if is_so else words.why


def _under(words: Words) -> str:
    return f" under {words.under}" if words.under else ""


def next_change(version: pb.ExplainedVersion, verdict: Verdict | None) -> str:
    """What happens to it next, and what it takes. `verdict`: of a run that started now."""
    if verdict is None:
        return f"its raw copy goes when ledger {version.id.ledger_id} is trimmed"
    if verdict.rule == pb.COMPACTION_RULE_OWN_CODE:
        return f"{verdict.why}; only a run can tell what the next one does"
    if not verdict.keeps:
        return f"the next run drops it: {verdict.why}"
    if version.state != pb.VERSION_STATE_ABOVE_HORIZON:
        return verdict.stays
    why = "" if verdict.rule in _SELF_EVIDENT else f": {verdict.why}"
    return f"the next run keeps it{why}"


def record_text(message_id: MessageId) -> str:
    """As every command takes it."""
    return id_text(
        message_id.ledger_id, message_id.entry_id, message_id.partition, message_id.batch_index
    )


def _runs(span: pb.RunSpan) -> str:
    if span.first == span.last:
        return f"run {span.last}"
    if span.first == 1:
        return f"run {span.last} or an earlier one"
    return f"one of the runs {span.first} to {span.last}"
