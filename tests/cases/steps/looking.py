"""Looking at stats: a path of fields, as Pulsar names them, is a step.

stats.subscriptions.s.msgBacklog -> 5     internal.numberOfEntries -> 0     CL.entries -> 10

Short forms stand for what the catalogue calls by a name of its own. A number is a place in a list,
`count` at the end is the length of what is there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.cases.compare import StepFailed
from tests.cases.model import Step
from tests.cases.protocol import Unsupported
from tests.cases.verbs import verb

if TYPE_CHECKING:
    from tests.cases.runner import Run

# First word of a path -> what it stands for.
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
# What the last turn of the case answered: nobody is asked.
_LAST_ROUND = "last-round"


@verb(f"{LOOK} PATH")
def look(run: Run, step: Step) -> Any:
    """The value at a path of stats, of a Kafka log, of its cleaner."""
    first, dot, rest = str(step.arguments["path"]).partition(".")
    operation, *names = (PATHS[first] + dot + rest).split(".")
    found = run.turn if operation == _LAST_ROUND else run.on_topic(operation)["stats"]
    for name in names:
        found = within(found, name)
    return found


def within(value: Any, name: str) -> Any:
    """The field of that name. Raises Unsupported (there is nothing), StepFailed."""
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
