"""The notes of an explanation: the extent of runs and trimming, and the next run. Pure.

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
from ledgerfold.strategies.catalogue import strategy_text
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import RunRecord


@dataclass(frozen=True)
class Outlook:
    """The state of the topic's compaction. `last`: the last durable entry.

    `decision`: of the threshold monitor, now. `has_news`: a trigger would start a run. `running`:
    the number of the run in progress, 0 if none. `raw_messages`: the messages in raw ledgers at or
    below the horizon.
    """

    last: Position
    has_news: bool
    decision: Decision
    running: int = 0
    raw_messages: int = 0


def notes(
    outlook: Outlook, facts: Facts, older: int, listed: Iterable[pb.ExplainedVersion] = ()
) -> list[str]:
    """Returns the notes. `older`: versions that are not listed; `listed`: the others."""
    texts = []
    if older:
        unlisted = counted(older, "older version is", "older versions are")
        texts.append(f"{unlisted} not listed.")
    if facts.line is None:
        texts.append(f"Not compacted; the log ends at {outlook.last}.")
    else:
        horizon, run = facts.horizon, facts.line.last
        texts.append(f"Horizon {horizon}, set by run {run}; the log ends at {outlook.last}.")
        texts += _trimmed(facts.line.messages_read, outlook.raw_messages)
        if not facts.is_whole and any(_looks_back(run) for run in facts.line.runs):
            texts.append("Removed or unknown messages may have influenced the other decisions.")
    if facts.floor > EARLIEST:
        texts.append(f"Retention removed messages before {facts.floor}.")
    texts.append(_strategy(facts))
    if any(version.is_missed for version in listed):
        texts.append("A message that a run dropped does not return under a later strategy.")
    texts.append(_next_run(outlook))
    return texts


def _trimmed(read: int | None, remaining: int) -> list[str]:
    """Describes trimming.

    `read`: the raw messages that runs have read; `remaining`: those that remain.
    """
    known = "those in the compacted ledger are listed"
    if read is None:
        return [f"An unknown number of messages that earlier runs read is trimmed; {known}."]
    match read - remaining:
        case 1:
            return ["1 message is trimmed; it is listed if it is in the compacted ledger."]
        case trimmed if trimmed > 1:
            return [f"{trimmed:,} messages are trimmed; {known}."]
    return []


def _looks_back(run: RunRecord) -> bool:
    return rules_of(strategy_of(run).name).looks_back


def _strategy(facts: Facts) -> str:
    """Describes the strategy in force, and the last different one."""
    name = strategy_text(facts.strategy)
    runs = facts.line.runs if facts.line is not None else ()
    for run in reversed(runs):
        if (before := strategy_of(run)) != facts.strategy:
            return f"Strategy {name}; up to run {run.number} it was {strategy_text(before)}."
    return f"Strategy {name}."


def _next_run(outlook: Outlook) -> str:
    decision = outlook.decision
    if outlook.running:
        return f"Run {outlook.running} is in progress."
    if not outlook.has_news:
        return "No messages are above the horizon: a trigger starts no run."
    if decision.threshold_bytes <= 0:
        return "The next run starts with a trigger; no threshold is set."
    return (
        f"The next run starts with a trigger, or above {decision.threshold_bytes:,} bytes of "
        f"backlog (the threshold of the {decision.source}); the backlog is "
        f"{decision.backlog_bytes:,} bytes."
    )
