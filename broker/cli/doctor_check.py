"""The result of one check of `doctor`."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple


class State(StrEnum):
    """`warning`: limits or slows a broker; `problem`: prevents or endangers one."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


class Check(NamedTuple):
    """A result. `found`: what the check found; `what_to_do`: "" if there is nothing to do."""

    name: str
    state: State
    found: str
    what_to_do: str = ""

    @property
    def row(self) -> dict[str, Any]:
        return self._asdict() | {"state": str(self.state)}
