"""The decisions about messages without a key: each run keeps or drops all of them. Pure.

The policy `retain_null_key` decides; message strategies keep none.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledgerfold.broker.explain.evaluation import Version
from ledgerfold.broker.explain.run_line import RunLine, drops_null_keys, strategy_of
from ledgerfold.broker.explain.strategies.evaluator import Decision, dropped
from ledgerfold.broker.explain.versions import Found
from ledgerfold.v1 import explain_pb2 as pb


def decided(found: Found, strategy: str, *, keeps: bool) -> Decision:
    """Returns the decision of a run that keeps, or drops, messages without a key."""
    if keeps:
        return Decision(
            found,
            True,
            pb.COMPACTION_RULE_NULL_KEY_RETAINED,
            "null key, retain_null_key=true",
            stays="stays as long as retain_null_key is true",
        )
    if drops_null_keys(strategy):
        why = f"null key, which {strategy} never keeps"
        return Decision(found, False, pb.COMPACTION_RULE_NULL_KEY_STRATEGIC, why)
    why = "null key, retain_null_key=false"
    return Decision(found, False, pb.COMPACTION_RULE_NULL_KEY, why)


def add_past(version: Version, line: RunLine) -> None:
    """Fills in the decisions of past runs about a message."""
    found = version.found
    first = line.first_over(found.position)
    if found.in_compacted:
        version.kept = line.null_keys_kept_by(found.position) or first
        version.run = line.run(line.last)
        version.since = line.with_strategy_of(version.run)
        version.decision = decided(found, version.run.strategy, keeps=True)
        return
    version.dropped = line.null_keys_dropped_by(found.position)
    version.run = line.run(version.dropped.last if version.dropped else line.last)
    suspects = line.strategies(version.dropped) if version.dropped else [strategy_of(version.run)]
    version.decision = _dropped(found, [each.name for each in suspects])
    if first and (version.dropped is None or first.last < version.dropped.first):
        version.kept = first


def _dropped(found: Found, suspects: Sequence[str]) -> Decision:
    """Returns the decision of a run of one of these strategies, with the reason if it is common to
    all.
    """
    decision, *others = [decided(found, each, keeps=False) for each in suspects]
    if all(other == decision for other in others):
        return decision
    return dropped(found, pb.COMPACTION_RULE_UNSPECIFIED, "null key")
