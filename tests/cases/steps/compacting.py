"""Compaction: runs and their status."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cases.compare import Difference, StepFailed
from tests.cases.model import Step
from tests.cases.verbs import verb

if TYPE_CHECKING:
    from tests.cases.runner import Run


@verb("compact")
def compact(run: Run, step: Step) -> str:
    """Triggers a run and waits for its end, which must be SUCCESS unless another result is
    expected.
    """
    answer = run.on_topic("compact")
    if step.expected is None and answer["status"] != "SUCCESS":
        got = f"{answer['status']}: {answer['lastError']}"
        raise StepFailed("the run failed", Difference("SUCCESS", got))
    return str(answer["status"])


@verb("compact-outside [type=PUBLISHING|EVENT_TIME]")
def compact_outside(run: Run, step: Step) -> None:
    """Pulsar's compactor tool: a run without the broker. Open objects are closed.

    Without `type`, by the topic's strategy.
    """
    run.on_topic("compact-outside", order=step.arguments.get("type"))
    run.opened.clear()


@verb("strategy SCOPE NAME [n=N] [lag=TIME] [property=NAME]")
def strategy(run: Run, step: Step) -> None:
    """Sets the strategy of compaction, with its settings; `none` removes it."""
    arguments = step.arguments
    if arguments["name"] == "none":
        run.ask("strategy", **run.scope(step), remove=True)
        return
    given = {"n": "n", "lag_ms": "lag", "property": "property"}
    settings = {name: str(arguments[each]) for name, each in given.items() if each in arguments}
    run.ask("strategy", **run.scope(step), order=arguments["name"], settings=settings)


@verb("trigger")
def trigger(run: Run, step: Step) -> None:
    """Triggers a run without waiting for it."""
    run.on_topic("trigger")


@verb("cancel")
def cancel(run: Run, step: Step) -> None:
    """Cancels the run in progress."""
    run.on_topic("cancel")


@verb("status")
def status(run: Run, step: Step) -> str:
    """Returns NOT_RUN, RUNNING, SUCCESS or ERROR."""
    return str(run.on_topic("compaction-status")["status"])


@verb("last-error")
def last_error(run: Run, step: Step) -> str:
    """Returns the failure in the status; empty without one."""
    return run.on_topic("compaction-status").get("lastError") or ""


@verb("hold [for=TIME]")
def hold(run: Run, step: Step) -> None:
    """Suspends the process that compacts, at any point.

    `for`: the duration, if nothing can resume it because the next step waits for it.
    """
    run.ask("hold", ms=step.arguments.get("for"))
    run.is_held = True


@verb("release")
def release(run: Run, step: Step) -> None:
    """Resumes it."""
    run.ask("release")
    run.is_held = False
