"""The user-defined strategies that may be loaded: loading one runs its code.

A broker and a worker each load only those that

* an installed package offers as an entry point of the group `ledgerfold.strategies`, where it runs;
* were named at its start (`--allow-strategy module:Class`);
* come with Ledgerfold (READY_MADE), named as a user would name a class.

A client that can only reach a port can neither install a package nor choose these options. A name
without a colon can only be that of an entry point: the worker looks it up
(ledgerfold/strategies/loading.py).

    >>> allowed = AllowedStrategies(("shop:Best",), "this broker")
    >>> allowed.check("shop:Best")
    >>> allowed.check("os:system")
    Traceback (most recent call last):
      ...
    ledgerfold.errors.StrategyNotAllowed: Strategy 'os:system' cannot be used: ...
"""

from __future__ import annotations

from dataclasses import dataclass

from ledgerfold.storage.errors import InvalidRequest, StrategyNotAllowed
from ledgerfold.strategies.catalogue import ENTRY_POINTS, check_own_name, installed
from ledgerfold.strategies.ready_made import READY_MADE

# Ledgerfold's own classes need no permission.
_NEED_NONE = frozenset(f"ledgerfold.strategies:{each.__name__}" for each in READY_MADE.values())
# An error lists this many of the allowed ones.
_LISTED_MAX = 10


@dataclass(frozen=True, slots=True)
class AllowedStrategies:
    """The allowed strategies. `named`: each "module:Class". `where`: the process, for the error."""

    named: tuple[str, ...] = ()
    where: str = "this broker"

    def knows(self, name: str) -> bool:
        """Returns whether `check` passes without a lookup of installed packages, which reads the
        disk.
        """
        return ":" not in name or name in _NEED_NONE or name in self.named

    def check(self, name: str) -> None:
        """Raises StrategyNotAllowed unless the strategy is allowed. Loads nothing."""
        if self.knows(name):
            return
        offered = installed()
        if any(each.value == name for each in offered):
            return
        packages, named = _listed({each.name for each in offered}), _listed(set(self.named))
        raise StrategyNotAllowed(
            name,
            f"{self.where} does not allow it. It allows entry points {ENTRY_POINTS!r} of installed "
            f"packages ({packages}), and the strategies of its --allow-strategy options ({named}). "
            f"If you trust the code, start {self.where} with --allow-strategy {name}",
        )

    def also(self, *names: str) -> AllowedStrategies:
        """Returns a copy that also allows those of `names` that need it."""
        more = tuple(name for name in names if not self.knows(name))
        return AllowedStrategies(self.named + more, self.where) if more else self


def parse_allowed(name: str) -> str:
    """Parses a value of --allow-strategy. Raises InvalidRequest."""
    check_own_name(name)
    if ":" not in name:
        raise InvalidRequest(
            f"Write --allow-strategy {name} as module:Class. The entry points of installed "
            "packages need no --allow-strategy."
        )
    return name


def _listed(names: set[str]) -> str:
    shown = sorted(names)[:_LISTED_MAX]
    more = ["..."] if len(names) > _LISTED_MAX else []
    return ", ".join(shown + more) or "none"
