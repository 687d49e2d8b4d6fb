"""The strategies there are: which message of a key wins is chosen here, by name, and nowhere else.

A new one is a module beside publishing_order.py, its maker in MAKERS, its name, version and
settings in ledgerfold/strategies/catalogue.py, its documentation and its tests. Scan and merge call
what the plan's strategy holds:

    begin      messages of one stretch of the log        -> fragments, and a count
    join       fragments of each key, from any stretches -> fragments, and a count
    survivors  the fragments of all keys, of the whole   -> the positions that stay

**It gets** what key sections tell of the messages that have a key (Facts): the position, whether it
is a value or a tombstone, and, when it says that it reads them, event times. Another fact of the
key section or the entry's header (a sequence id) is one more column of Facts, filled in by
key_columns.py. Values are no facts: phase one never touches their sections. Messages without a
key are none of its business: the topic's policy keeps or drops them.

**It gives** positions in any order, and the number of removed events, as its original counts them.
Its version rises when its rules change, that is, what is kept or counted.

A strategy that must look at the messages themselves is a MessageStrategy (strategic.py).

Laws (tests/unit/compactor/test_strategies.py asks every strategy about the first):
* What `begin` gives for stretches of the log that do not overlap, cut anywhere, neighbours joined
  in any order and number of steps, is what it gives for the whole: the same survivors, and the
  same count, or the strategy's documentation says where not. A winner that is the greatest by some
  order keeps the law by itself.
* A run's input is what the run before left, and what is new. So a strategy comes to the same from
  the survivors of the beginning and the rest as from the whole. Mind tombstones, which are gone
  after one run: where something of one is remembered, as by event-time-window, which may apply it
  in a later run, the strategy's documentation says what comes of it.

* What survives the whole survives each stretch that it lies in. A forecast tells how large the
  survivors of a chunk are, and nothing of its other messages (what_if/scan.py).

The survivors may be any messages of the stretch, several of a key, and tombstones. A strategy that
sorts takes the order of `Facts.ordered` where there is one. One that comes down to another, given
what a stretch is made of, says so (`simpler`): then the two are asked as one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ledgerfold.compactor.strategies.event_time import EVENT_TIME
from ledgerfold.compactor.strategies.event_time_window import event_time_window
from ledgerfold.compactor.strategies.keep_n import keep_n
from ledgerfold.compactor.strategies.publishing_order import PUBLISHING_ORDER
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.compactor.strategies.strategy import Strategy
from ledgerfold.storage.errors import UnknownStrategy
from ledgerfold.strategies.catalogue import LISTED, settings_of
from ledgerfold.strategies.ready_made import HeaderVersion, KeepFirst, Newest, Numeric
from ledgerfold.strategies.strategic import TopicCompactionStrategy
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import CompactionStrategy

AnyStrategy = Strategy | MessageStrategy


class Asked(NamedTuple):
    """What a strategy is made of: its settings, all of them, and what time it is (ms)."""

    settings: dict[str, str]
    time_ms: int


class Maker(NamedTuple):
    """How a strategy comes to be, and the version of its rules."""

    version: int
    make: Callable[[Asked], AnyStrategy]


def fixed(strategy: Strategy) -> Maker:
    """The maker of one that has no settings."""
    return Maker(int(strategy.version), lambda _: strategy)


def strategic(name: str, made_of: type[TopicCompactionStrategy]) -> tuple[str, Maker]:
    """One that decides message by message; its settings are the class's keyword arguments."""
    version = LISTED[name].version
    return name, Maker(
        version, lambda asked: MessageStrategy(name, version, made_of, asked.settings)
    )


MAKERS: dict[str, Maker] = {
    PUBLISHING_ORDER.name: fixed(PUBLISHING_ORDER),
    EVENT_TIME.name: fixed(EVENT_TIME),
    "keep-n": Maker(LISTED["keep-n"].version, lambda asked: keep_n(int(asked.settings["n"]))),
    "event-time-window": Maker(
        LISTED["event-time-window"].version,
        lambda asked: event_time_window(int(asked.settings["lag_ms"]), asked.time_ms),
    ),
    **dict(
        (
            strategic("newest", Newest),
            strategic("numeric", Numeric),
            strategic("keep-first", KeepFirst),
            strategic("header-version", HeaderVersion),
        )
    ),
}


def strategy_of(plan: CompactionPlan) -> AnyStrategy:
    """Raises UnknownStrategy, InvalidRequest (its settings)."""
    asked = CompactionStrategy(name=plan.strategy, settings=plan.strategy_settings)
    maker = MAKERS.get(plan.strategy)
    if maker is None or plan.strategy_version not in (0, maker.version):
        known = {name: each.version for name, each in MAKERS.items()}
        raise UnknownStrategy(plan.strategy, plan.strategy_version, known)
    return maker.make(Asked(settings_of(asked), plan.time_ms))
