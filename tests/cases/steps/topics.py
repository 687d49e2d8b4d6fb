"""A topic's life cycle, its policies, time, and restarts of the broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.cases.model import Step
from tests.cases.verbs import verb

if TYPE_CHECKING:
    from tests.cases.runner import Run


@verb("topic NAME")
def use_topic(run: Run, step: Step) -> None:
    """Selects another topic of the case for the following steps."""
    run.use(str(step.arguments["name"]))


@verb("create [partitions=N]")
def create(run: Run, step: Step) -> None:
    """The administration creates the topic."""
    run.on_topic("create", partitions=step.arguments.get("partitions"))


@verb("grow N")
def grow(run: Run, step: Step) -> None:
    """Gives a partitioned topic more partitions."""
    run.on_topic("grow", partitions=step.arguments["n"])


@verb("delete [force]")
def delete(run: Run, step: Step) -> None:
    """Deletes the topic, with its data."""
    run.on_topic("delete", force="force" in step.arguments)


@verb("unload")
def unload(run: Run, step: Step) -> None:
    """Closes the topic and loads it again: its raw ledger ends."""
    run.on_topic("unload")


@verb("trim")
def trim(run: Run, step: Step) -> None:
    """Deletes raw ledgers that nothing retains."""
    run.on_topic("trim")


@verb("roll+trim")
def roll_and_trim(run: Run, step: Step) -> None:
    """The catalogue's: unloads, and deletes the raw ledgers that every cursor has passed."""
    run.on_topic("unload")
    run.on_topic("trim")


@verb("truncate")
def truncate(run: Run, step: Step) -> None:
    """Deletes all data of the topic."""
    run.on_topic("truncate")


@verb("terminate")
def terminate(run: Run, step: Step) -> None:
    """Forbids publishing to the topic permanently."""
    run.on_topic("terminate")


@verb("threshold SCOPE BYTES")
def threshold(run: Run, step: Step) -> None:
    """Sets the compaction threshold of `topic` or `namespace`; `none` removes it."""
    value = step.arguments["bytes"]
    if value == "none":
        run.ask("threshold", **run.scope(step), remove=True)
    else:
        run.ask("threshold", **run.scope(step), bytes=int(value))


@verb("get-threshold SCOPE [applied]")
def get_threshold(run: Run, step: Step) -> Any:
    """Returns the threshold that is set there; `applied`: the one in force."""
    return run.ask("get-threshold", **run.scope(step), applied=step.arguments.get("applied"))[
        "bytes"
    ]


@verb("retention SCOPE [minutes=N] [megabytes=N]")
def retention(run: Run, step: Step) -> None:
    """Sets how long, and how much, raw data are retained after every cursor has passed them.

    -1, or omitted, is no limit.
    """
    run.ask(
        "retention",
        **run.scope(step),
        minutes=step.arguments.get("minutes", -1),
        megabytes=step.arguments.get("megabytes", -1),
    )


@verb("ttl TIME")
def time_to_live(run: Run, step: Step) -> None:
    """Sets the namespace's message TTL."""
    run.ask("ttl", namespace=run.namespace, seconds=int(step.arguments["time"]) // 1000)


@verb("null-keys CHOICE")
def null_keys(run: Run, step: Step) -> None:
    """Sets whether compaction retains (`retain`) or drops (`drop`) messages without a key."""
    retain = step.arguments["choice"] == "retain"
    run.ask("retain-null-key", namespace=run.namespace, retain=retain)


@verb("emulate FIELD BOOLEAN")
def emulate(run: Run, step: Step) -> None:
    """Sets one field of the profile on the case's namespace: true or false."""
    value = step.arguments["boolean"] == "true"
    run.ask("emulate", namespace=run.namespace, field=step.arguments["field"], value=value)


@verb("mark NAME [plus=TIME]")
def mark(run: Run, step: Step) -> None:
    """Saves a time after all published messages, and before all later ones.

    `plus`: a time that much later.
    """
    plus_ms = int(step.arguments.get("plus", 0))
    run.marks[str(step.arguments["name"])] = run.ask("mark")["ms"] + plus_ms


@verb("advance TIME")
def advance(run: Run, step: Step) -> None:
    """Advances the clock."""
    run.ask("advance", ms=step.arguments["time"])


@verb("restart")
def restart(run: Run, step: Step) -> None:
    """Stops the broker and starts it again on its data. Open objects are closed."""
    run.ask("restart")
    run.opened.clear()


@verb("kill")
def kill(run: Run, step: Step) -> None:
    """Kills the broker (SIGKILL) and starts it again on its data. Open objects are closed."""
    run.ask("kill")
    run.opened.clear()
