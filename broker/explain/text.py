"""The sentences of `explain`: what became of a version, and what comes next. Pure.

>>> version = pb.ExplainedVersion(
...     state=pb.VERSION_STATE_DROPPED,
...     rule=pb.COMPACTION_RULE_OBSCURED,
...     by=MessageId(ledger_id=12, entry_id=40, batch_index=3, partition=-1),
...     dropped_by=pb.RunSpan(first=7, last=7),
... )
>>> what(version, Position(12, 55), EARLIEST)
'obscured by 12:40:3, dropped by run 7'
"""

from __future__ import annotations

from ledgerfold.broker.ground.message_ids import id_text
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import MessageId

KEEPS = frozenset({pb.COMPACTION_RULE_NEWEST, pb.COMPACTION_RULE_NULL_KEY_RETAINED})
_KEPT = {
    pb.COMPACTION_RULE_NEWEST: "newest up to the horizon {horizon}",
    pb.COMPACTION_RULE_NULL_KEY_RETAINED: "null key, retain_null_key=true",
}


def what(version: pb.ExplainedVersion, horizon: Position | None, floor: Position) -> str:
    """What runs did with it."""
    state, rule = version.state, version.rule
    if state == pb.VERSION_STATE_ABOVE_HORIZON:
        return "not compacted yet" if horizon is None else f"above the horizon {horizon}"
    if state == pb.VERSION_STATE_NEVER_MET:
        return "if it was there, it was trimmed before a run looked at it"
    if state == pb.VERSION_STATE_UNKNOWN:
        return f"if it was there, dropped by {_runs(version.dropped_by)}; why is not known any more"
    if state == pb.VERSION_STATE_INCONSISTENT:
        holds = version.place != pb.VERSION_PLACE_RAW
        there = "holds it and should not" if holds else "does not hold it and should"
        return f"INCONSISTENT: the compacted ledger {there} ({reason(rule, version.by)})"
    if state == pb.VERSION_STATE_KEPT:
        why = _KEPT[rule].format(horizon=horizon)
        hidden = f", but retention hides what lies before {floor}" if version.is_hidden else ""
        return f"{why}, kept by {_runs(version.kept_by)}{hidden}"
    kept = f"kept by {_runs(version.kept_by)}, " if version.HasField("kept_by") else ""
    return f"{kept}{reason(rule, version.by)}, dropped by {_runs(version.dropped_by)}"


def next_change(version: pb.ExplainedVersion, floor: Position) -> str:
    """What happens to it next, and what it takes."""
    rule = version.next_rule
    if rule == pb.COMPACTION_RULE_UNSPECIFIED:
        return f"its raw copy goes when ledger {version.id.ledger_id} is trimmed"
    if rule not in KEEPS:
        return f"the next run drops it: {reason(rule, version.next_by, floor)}"
    if version.state == pb.VERSION_STATE_ABOVE_HORIZON:
        return "the next run keeps it"
    if rule == pb.COMPACTION_RULE_NEWEST:
        return "stays until a newer value or a tombstone of its key is compacted"
    return "stays as long as retain_null_key is true"


def reason(rule: pb.CompactionRule, by: MessageId, floor: Position = EARLIEST) -> str:
    """A rule in a few words."""
    return {
        pb.COMPACTION_RULE_NEWEST: "the newest of its key",
        pb.COMPACTION_RULE_NULL_KEY_RETAINED: "null key, retain_null_key=true",
        pb.COMPACTION_RULE_OBSCURED: f"obscured by {record_text(by)}",
        pb.COMPACTION_RULE_DELETED: f"deleted by {record_text(by)}",
        pb.COMPACTION_RULE_TOMBSTONE: "a tombstone",
        pb.COMPACTION_RULE_NULL_KEY: "null key, retain_null_key=false",
        pb.COMPACTION_RULE_RETENTION: f"retention removed what lies before {floor}",
    }[rule]


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
