"""The evaluators that explain each strategy's decisions about the versions of a key.

tests/model/test_explain_model.py compares them with runs. A new strategy needs an evaluator, and an
entry in `_RULES`; without these it is explained as a user-defined strategy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ledgerfold.broker.explain.strategies.evaluator import (
    ByEventTime,
    ByRules,
    ByWindow,
    Evaluator,
    LastN,
    Own,
    RunParameters,
)
from ledgerfold.broker.explain.strategies.strategic import Strategic
from ledgerfold.strategies.plain import EventTime, PublishingOrder
from ledgerfold.strategies.ready_made import READY_MADE


class Rules(NamedTuple):
    """The rules of a strategy. `looks_back`: earlier versions, not only later ones, may affect a
    decision.

    `is_steady`: with additional earlier versions, a version can only be dropped sooner.
    """

    evaluator: Callable[[RunParameters], Evaluator]
    looks_back: bool = True
    is_steady: bool = True


OWN: Final = Rules(lambda requested: Own(requested.name), is_steady=False)
_RULES: Final[dict[str, Rules]] = {
    "publishing-order": Rules(lambda _: ByRules(PublishingOrder()), looks_back=False),
    "event-time": Rules(lambda _: ByEventTime(EventTime())),
    **dict.fromkeys(READY_MADE, Rules(Strategic)),
    "newest": Rules(Strategic, looks_back=False),
    "keep-n": Rules(lambda requested: LastN(int(requested.settings["n"])), looks_back=False),
    "event-time-window": Rules(
        lambda requested: ByWindow(int(requested.settings["lag_ms"]), requested.time_ms),
        is_steady=False,
    ),
}


def rules_of(name: str) -> Rules:
    return _RULES.get(name, OWN)
