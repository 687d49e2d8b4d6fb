"""Stats: a path of field names, as Pulsar's, is a step.

stats.subscriptions.s.msgBacklog -> 5     internal.numberOfEntries -> 0     CL.entries -> 10

Short forms stand for the catalogue's own names. A number is an index in a list, `count` at the end
is the length.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.cases.compare import StepFailed
from tests.cases.model import Step
from tests.cases.protocol import Unsupported
from tests.cases.verbs import verb

if TYPE_CHECKING:
    from tests.cases.runner import Run

# First word of a path -> the path that it stands for.
PATHS = {
    "stats": "stats",
    "internal": "internal",
    "CL": "internal.compactedLedger",
    "H": "internal.cursors.__compaction.markDeletePosition",
    "removed": "stats.compaction.lastCompactionRemovedEventCount",
    "subscriptions": "stats.subscriptions",
    "cursors": "internal.cursors",
    "log": "kafka-log",
    "checkpoint": "kafka-log.checkpoint",
    "segments": "kafka-log.segments",
    "plan": "kafka-plan",
    "map": "kafka-map",
    "cleaner": "kafka-cleaner",
    "gauges": "kafka-cleaner.gauges",
    "round": "last-round",
}
LOOK = "look"
# The answer of the case's last pass: no request is sent.
_LAST_ROUND = "last-round"


@verb(f"{LOOK} PATH")
def look(run: Run, step: Step) -> Any:
    """Returns the value at a path of stats, of a Kafka log, or of its cleaner."""
    first, dot, rest = str(step.arguments["path"]).partition(".")
    operation, *names = (PATHS[first] + dot + rest).split(".")
    found = run.turn if operation == _LAST_ROUND else run.on_topic(operation)["stats"]
    for name in names:
        found = within(found, name)
    return found


def within(value: Any, name: str) -> Any:
    """Returns the field of that name. Raises Unsupported (it does not exist), StepFailed."""
    if value is None:
        raise Unsupported(f"{name} is not told here.")
    if name == "count" and isinstance(value, list | dict):
        return len(value)
    if isinstance(value, list) and name.lstrip("-").isdecimal() and int(name) < len(value):
        return value[int(name)]
    if isinstance(value, dict) and name in value:
        return value[name]
    there = ", ".join(value) if isinstance(value, dict) else str(value)
    raise StepFailed(f"no field {name!r} in: {there}")
