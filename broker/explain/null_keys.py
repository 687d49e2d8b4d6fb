"""Messages without a key: each run keeps or drops them all, whatever else there is. Pure.

By its policy `retain_null_key`; a strategy that decides message by message keeps none.
"""

from __future__ import annotations

from collections.abc import Sequence

from ledgerfold.broker.explain.evaluation import Case
from ledgerfold.broker.explain.run_line import RunLine, drops_null_keys, strategy_of
from ledgerfold.broker.explain.strategies.evaluator import Decision, dropped
from ledgerfold.broker.explain.versions import Found
from ledgerfold.v1 import explain_pb2 as pb


def judged(found: Found, strategy: str, *, keeps: bool) -> Decision:
    """By a run that keeps them, or does not."""
    if keeps:
        return Decision(
            found,
            True,
            pb.COMPACTION_RULE_NULL_KEY_RETAINED,
            "null key, retain_null_key=true",
            stays="stays as long as retain_null_key is true",
        )
    if drops_null_keys(strategy):
        why = f"null key, of which {strategy} keeps none"
        return Decision(found, False, pb.COMPACTION_RULE_NULL_KEY_STRATEGIC, why)
    why = "null key, retain_null_key=false"
    return Decision(found, False, pb.COMPACTION_RULE_NULL_KEY, why)


def tell_past(case: Case, line: RunLine) -> None:
    """Of a message that runs have met."""
    found = case.found
    first = line.first_over(found.position)
    if found.in_compacted:
        case.kept = line.null_keys_kept_by(found.position) or first
        case.run = line.run(line.last)
        case.since = line.alike(case.run)
        case.verdict = judged(found, case.run.strategy, keeps=True)
        return
    case.dropped = line.null_keys_dropped_by(found.position)
    case.run = line.run(case.dropped.last if case.dropped else line.last)
    suspects = line.strategies(case.dropped) if case.dropped else [strategy_of(case.run)]
    case.verdict = _dropped(found, [each.name for each in suspects])
    if first and (case.dropped is None or first.last < case.dropped.first):
        case.kept = first


def _dropped(found: Found, suspects: Sequence[str]) -> Decision:
    """By a run of one of these strategies: the reason, if it is that of each."""
    verdict, *others = [judged(found, each, keeps=False) for each in suspects]
    if all(other == verdict for other in others):
        return verdict
    return dropped(found, pb.COMPACTION_RULE_UNSPECIFIED, "null key")
