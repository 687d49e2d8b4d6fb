"""Reading: at once from a position to the end, or with a reader that stays open; last ids."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.cases.compare import Received, StepFailed
from tests.cases.model import Step
from tests.cases.verbs import verb
from tests.support.waiting import WAIT_MS

if TYPE_CHECKING:
    from tests.cases.runner import Run

_WHOLE = "[from=POSITION] [inclusive] [max=N] [queue=N] [seek=POSITION] [seek-time=MARK]"


@verb(f"RC-read {_WHOLE}")
def read_compacted(run: Run, step: Step) -> list[Received]:
    """Reads with a new read-compacted reader, by default from earliest, until has-more is false."""
    return _read(run, step, compacted=True)


@verb(f"raw-read {_WHOLE}")
def read_raw(run: Run, step: Step) -> list[Received]:
    """The same, not read-compacted."""
    return _read(run, step, compacted=False)


def _read(run: Run, step: Step, *, compacted: bool) -> list[Received]:
    arguments = step.arguments
    mark = arguments.get("seek-time")
    answer = run.on_topic(
        "read",
        compacted=compacted,
        inclusive=arguments.get("inclusive"),
        max=arguments.get("max"),
        queue=arguments.get("queue"),
        seek=run.position(arguments.get("seek")),
        seekTimestamp=None if mark is None else run.time(mark),
        **{"from": run.position(arguments.get("from"))},
    )
    return _complete(answer["messages"])


@verb("reader NAME [RC] [from=POSITION] [inclusive] [queue=N]")
def open_reader(run: Run, step: Step) -> None:
    """Opens a reader and keeps it."""
    arguments = step.arguments
    run.open(
        "reader",
        arguments["name"],
        compacted=arguments.get("RC", False),
        inclusive=arguments.get("inclusive"),
        queue=arguments.get("queue"),
        **{"from": run.position(arguments.get("from", "earliest"))},
    )


@verb("read NAME [max=N]")
def read_on(run: Run, step: Step) -> list[Received]:
    """Reads messages while the reader has more, at most `max`."""
    name, most = step.arguments["name"], step.arguments.get("max")
    found: list[Received] = []
    while most is None or len(found) < int(most):
        if not run.ask("has-more", name=name)["more"]:
            break
        more = run.ask("receive", name=name, max=1, timeoutMs=WAIT_MS)["messages"]
        if not more:
            raise StepFailed("has-more was true and nothing came")
        found += more
    return found


@verb("has-more NAME")
def has_more(run: Run, step: Step) -> Any:
    """Returns whether the reader has more: true or false."""
    return run.ask("has-more", name=step.arguments["name"])["more"]


@verb("last-id [NAME] [RC]")
def last_id(run: Run, step: Step) -> Any:
    """Returns the last id that this reader or consumer gets, or a new reader if none is named."""
    name = step.arguments.get("name")
    if name is not None:
        return run.last_id(name)
    run.open("reader", "last-id", compacted=step.arguments.get("RC", False))
    try:
        return run.last_id("last-id")
    finally:
        run.close("last-id")


@verb("id-by-time MARK")
def id_by_time(run: Run, step: Step) -> Any:
    """Returns the id that the administration finds for a time."""
    return run.on_topic("id-by-time", timestamp=run.time(step.arguments["mark"]))["id"]


def _complete(messages: list[Received]) -> list[Received]:
    if any("hang" in each for each in messages):
        raise StepFailed("has-more was true and nothing came")
    return messages
