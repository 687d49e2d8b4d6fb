"""What an explanation rests on: how far runs and trimming went, when the next run comes. Pure.

>>> decision = Decision(False, "no threshold", 100, 0, "broker")
>>> notes(Outlook(last=Position(3, 7), has_news=True, decision=decision), Facts(), older=0)[0]
'Not compacted; the log ends at 3:7.'
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ledgerfold.broker.compaction.threshold import Decision
from ledgerfold.broker.explain.rules import Facts
from ledgerfold.broker.explain.run_line import strategy_of
from ledgerfold.broker.explain.strategies import rules_of
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.text import counted
from ledgerfold.strategies.catalogue import told as strategy_text
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import RunRecord


@dataclass(frozen=True)
class Outlook:
    """`last`: the last durable entry. `decision`: of the threshold monitor, now.

    `has_news`: a trigger would start a run. `running`: number of the run on its way, 0 if none.
    `raw_messages`: how many lie in raw ledgers at or below the horizon.
    """

    last: Position
    has_news: bool
    decision: Decision
    running: int = 0
    raw_messages: int = 0


def notes(
    outlook: Outlook, facts: Facts, older: int, told: Iterable[pb.ExplainedVersion] = ()
) -> list[str]:
    """`older`: versions that are not listed; `told`: those that are."""
    found = []
    if older:
        unlisted = counted(older, "older version is", "older versions are")
        found.append(f"{unlisted} not listed.")
    if facts.line is None:
        found.append(f"Not compacted; the log ends at {outlook.last}.")
    else:
        horizon, run = facts.horizon, facts.line.last
        found.append(f"Horizon {horizon}, set by run {run}; the log ends at {outlook.last}.")
        found += _trimmed(facts.line.messages_read, outlook.raw_messages)
        if not facts.is_whole and any(_looks_back(run) for run in facts.line.runs):
            found.append("What is no longer there, or not known, may have had a part in the rest.")
    if facts.floor > EARLIEST:
        found.append(f"Retention removed what lies before {facts.floor}.")
    found.append(_strategy(facts))
    if any(version.is_missed for version in told):
        found.append("What a run dropped does not come back, whatever strategy follows.")
    found.append(_next_run(outlook))
    return found


def _trimmed(read: int | None, left: int) -> list[str]:
    """`read`: raw messages that runs have read. `left`: how many of them still lie there."""
    known = "known are those of them that the compacted ledger holds"
    if read is None:
        return [f"Of what earlier runs read nobody knows how much is trimmed; {known}."]
    match read - left:
        case 1:
            return ["1 message is trimmed; it is known if the compacted ledger holds it."]
        case trimmed if trimmed > 1:
            return [f"{trimmed:,} messages are trimmed; {known}."]
    return []


def _looks_back(run: RunRecord) -> bool:
    return rules_of(strategy_of(run).name).looks_back


def _strategy(facts: Facts) -> str:
    """The one in force, and the last that was another."""
    name = strategy_text(facts.strategy)
    runs = facts.line.runs if facts.line is not None else ()
    for run in reversed(runs):
        if (before := strategy_of(run)) != facts.strategy:
            return f"Strategy {name}; up to run {run.number} it was {strategy_text(before)}."
    return f"Strategy {name}."


def _next_run(outlook: Outlook) -> str:
    decision = outlook.decision
    if outlook.running:
        return f"Run {outlook.running} is on its way."
    if not outlook.has_news:
        return "Nothing is new since the horizon: a trigger starts no run."
    if decision.threshold_bytes <= 0:
        return "The next run comes with a trigger; no threshold is set."
    return (
        f"The next run comes with a trigger, or above {decision.threshold_bytes:,} bytes of backlog"
        f" (the threshold of the {decision.source}); now there are {decision.backlog_bytes:,}."
    )
