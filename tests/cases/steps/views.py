"""Table views: a topic as a dictionary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.cases.compare import Received
from tests.cases.model import Step
from tests.cases.verbs import verb

if TYPE_CHECKING:
    from tests.cases.runner import Run


@verb("view NAME [listen=updates|all]")
def open_view(run: Run, step: Step) -> None:
    """Opens a table view; `listen` adds a listener for updates, or also for existing entries."""
    run.open("view", step.arguments["name"], listen=step.arguments.get("listen"))


@verb("view-state NAME")
def view_state(run: Run, step: Step) -> list[Received]:
    """Returns the present contents of the view, in any order."""
    entries = run.ask("view-state", name=step.arguments["name"])["entries"]
    return [{"key": key, "value": entries[key]} for key in sorted(entries)]


@verb("heard NAME")
def heard(run: Run, step: Step) -> list[Received]:
    """Returns the updates that the view's listener received, in order; a removal is `∅`."""
    updates = run.ask("view-state", name=step.arguments["name"])["heard"]
    return [{"key": key, "value": value} for key, value in updates]


@verb("refresh NAME")
def refresh(run: Run, step: Step) -> None:
    """Waits until the view holds everything that is in the topic now."""
    run.ask("view-refresh", name=step.arguments["name"])
