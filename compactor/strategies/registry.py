"""The registry of strategies, by name.

To add a strategy, add a module like publishing_order.py, its maker in MAKERS, its name, version and
settings in ledgerfold/strategies/catalogue.py, its documentation and its tests. Scan and merge call
the functions of the plan's strategy:

    begin      messages of one run of the log        -> fragments, and a count
    join       fragments of each key, from any runs  -> fragments, and a count
    survivors  the fragments of all keys             -> the positions that stay

**Input**: the facts that key sections contain about the messages with a key (Facts): the position,
value or tombstone, and, if the strategy declares that it reads them, event times. Another fact of
the key section or the entry's header (a sequence id) is one more column of Facts, filled in by
compactor/job/key_columns.py. Values are not facts: phase one never reads their sections. Strategies
do not see messages without a key: the topic's policy keeps or drops them.

**Output**: positions in any order, and the number of removed events, as its original counts them. A
strategy's version rises when its rules change, that is, which messages are kept or counted.

A strategy that must read the messages themselves is a MessageStrategy (strategic.py).

Laws (tests/unit/compactor/test_strategies.py tests the first for every strategy):

* The results of `begin` for runs of the log that do not overlap, split anywhere, joined with their
  neighbours in any order and number of steps, equal the result for the whole: the same survivors,
  and the same count, unless the strategy's documentation says otherwise. A winner that is the
  greatest by some total order satisfies the law.
* A run's input is the output of the previous run, and new messages. So a strategy must yield the
  same from the survivors of the beginning and the rest as from the whole log. Consider tombstones,
  which are removed by one run: if a later run may apply one, as with event-time-window, the
  strategy's documentation describes the effect.
* Survivors of the whole also survive each run of the log that contains them. A forecast reads only
  the sizes of a chunk's survivors, and nothing of its other messages (compactor/what_if/scan.py).

The survivors may be any messages of the input, several of a key, and tombstones. A strategy that
sorts uses `Facts.ordered` if it is set. A strategy that is equivalent to another for certain facts
returns that one (`simpler`): then the two are evaluated once.
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
from ledgerfold.strategies.ready_made import READY_MADE
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import CompactionStrategy

AnyStrategy = Strategy | MessageStrategy


class Maker(NamedTuple):
    """A factory of a strategy, and the version of the strategy's rules.

    `make`: takes all settings of the strategy, and the run's time, in ms.
    """

    version: int
    make: Callable[[dict[str, str], int], AnyStrategy]


def fixed(strategy: Strategy) -> Maker:
    """Returns the maker of a strategy without settings."""
    return Maker(int(strategy.version), lambda settings, time_ms: strategy)


def strategic(name: str) -> Maker:
    """Returns the maker of a message strategy; its settings are the class's keyword arguments."""
    version, made_of = LISTED[name].version, READY_MADE[name]
    return Maker(
        version, lambda settings, time_ms: MessageStrategy(name, version, made_of, settings)
    )


MAKERS: dict[str, Maker] = {
    PUBLISHING_ORDER.name: fixed(PUBLISHING_ORDER),
    EVENT_TIME.name: fixed(EVENT_TIME),
    "keep-n": Maker(LISTED["keep-n"].version, lambda settings, time_ms: keep_n(int(settings["n"]))),
    "event-time-window": Maker(
        LISTED["event-time-window"].version,
        lambda settings, time_ms: event_time_window(int(settings["lag_ms"]), time_ms),
    ),
    **{name: strategic(name) for name in READY_MADE},
}


def strategy_of(plan: CompactionPlan) -> AnyStrategy:
    """Creates the plan's strategy. Raises UnknownStrategy, InvalidRequest (its settings)."""
    requested = CompactionStrategy(name=plan.strategy, settings=plan.strategy_settings)
    maker = MAKERS.get(plan.strategy)
    if maker is None or plan.strategy_version not in (0, maker.version):
        known = {name: each.version for name, each in MAKERS.items()}
        raise UnknownStrategy(plan.strategy, plan.strategy_version, known)
    return maker.make(settings_of(requested), plan.time_ms)
