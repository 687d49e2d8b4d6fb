"""The evaluators that explain each strategy's decisions about the versions of a key.

compactor/strategies/ implements the strategies on columns, for all keys at once; here they are
implemented again, version by version, for one key, with the reasons.
tests/model/test_explain_model.py compares both. A new strategy needs a module here, and an entry in
`_RULES`; without one it is explained as a user-defined strategy.
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
    """The rules of a strategy. `looks_back`: earlier versions, not only later ones, may affect a
    decision.

    `is_steady`: with additional earlier versions, a version can only be dropped sooner.
    """

    evaluator: Callable[[Asked], Evaluator]
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
