"""Which strategies of one's own may be loaded: loading one runs its code.

A broker and a worker each load no others than those that

* an installed package offers as an entry point of the group `ledgerfold.strategies`, where it runs;
* were named when it was started (`--allow-strategy module:Class`).

Nobody who only reaches a port can make either. A name without a colon can only be an entry point's:
whether there is one, the worker looks up (ledgerfold/strategies/loading.py).

    >>> allowed = AllowedStrategies(("shop:Best",), "this broker")
    >>> allowed.check("shop:Best")
    >>> allowed.check("os:system")
    Traceback (most recent call last):
      ...
    ledgerfold.storage.errors.StrategyNotAllowed: Strategy 'os:system' cannot be used: ...
"""

from __future__ import annotations

import importlib.metadata
from dataclasses import dataclass

from ledgerfold.storage.errors import InvalidRequest, StrategyNotAllowed
from ledgerfold.strategies.catalogue import ENTRY_POINTS, check_own_name

# An error lists so many of those that are allowed.
_LISTED_MAX = 10


@dataclass(frozen=True, slots=True)
class AllowedStrategies:
    """`named`: "module:Class" each. `where`: who was started with them, for the error."""

    named: tuple[str, ...] = ()
    where: str = "this broker"

    def knows(self, name: str) -> bool:
        """Whether `check` passes without a look at what is installed, which reads the disk."""
        return ":" not in name or name in self.named

    def check(self, name: str) -> None:
        """Raises StrategyNotAllowed. Loads nothing."""
        if self.knows(name):
            return
        offered = importlib.metadata.entry_points(group=ENTRY_POINTS)
        if any(each.value == name for each in offered):
            return
        packages, named = _listed({each.name for each in offered}), _listed(set(self.named))
        raise StrategyNotAllowed(
            name,
            f"{self.where} does not allow it. Allowed are entry points {ENTRY_POINTS!r} of "
            f"installed packages ({packages}), and what --allow-strategy named at its start "
            f"({named}). If the code is to be trusted, start {self.where} with --allow-strategy "
            f"{name}",
        )

    def also(self, *names: str) -> AllowedStrategies:
        """With those of `names` that are of one's own and would need it."""
        more = tuple(name for name in names if not self.knows(name))
        return AllowedStrategies(self.named + more, self.where) if more else self


def parse_allowed(name: str) -> str:
    """What --allow-strategy takes. Raises InvalidRequest."""
    check_own_name(name)
    if ":" not in name:
        raise InvalidRequest(
            f"--allow-strategy {name}: write it as module:Class. The entry points of installed "
            "packages are allowed as they are."
        )
    return name


def _listed(names: set[str]) -> str:
    shown = sorted(names)[:_LISTED_MAX]
    more = ["..."] if len(names) > _LISTED_MAX else []
    return ", ".join(shown + more) or "none"
