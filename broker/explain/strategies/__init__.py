"""What each strategy does with the versions of a key, told in its own words: one judge for each.

As compactor/strategies/ says it on columns, for all keys at once; here it is said again, version by
version, for one key, with the reason. tests/model/test_explain_model.py holds both to the same.
A new strategy is a module here, and its line in `_RULES`; without one it is told as one's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ledgerfold.broker.explain.strategies.evaluator import Asked, Evaluator
from ledgerfold.broker.explain.strategies.event_time import EventTime
from ledgerfold.broker.explain.strategies.event_time_window import EventTimeWindow
from ledgerfold.broker.explain.strategies.keep_n import KeepN
from ledgerfold.broker.explain.strategies.own import Own
from ledgerfold.broker.explain.strategies.publishing_order import PublishingOrder
from ledgerfold.broker.explain.strategies.strategic import Strategic


class Rules(NamedTuple):
    """`looks_back`: what became of a version may depend on those before it, not on later ones
    alone. `is_steady`: with more of those before it, it can only be dropped sooner."""

    judge: Callable[[Asked], Evaluator]
    looks_back: bool = True
    is_steady: bool = True


_STRATEGIC: Final = Rules(Strategic)
OWN: Final = Rules(lambda asked: Own(asked.name), is_steady=False)
_RULES: Final[dict[str, Rules]] = {
    "publishing-order": Rules(lambda _: PublishingOrder(), looks_back=False),
    "event-time": Rules(lambda _: EventTime()),
    "newest": Rules(Strategic, looks_back=False),
    "numeric": _STRATEGIC,
    "keep-first": _STRATEGIC,
    "header-version": _STRATEGIC,
    "keep-n": Rules(lambda asked: KeepN(int(asked.settings["n"])), looks_back=False),
    "event-time-window": Rules(
        lambda asked: EventTimeWindow(int(asked.settings["lag_ms"]), asked.time_ms),
        is_steady=False,
    ),
}


def rules_of(name: str) -> Rules:
    return _RULES.get(name, OWN)
