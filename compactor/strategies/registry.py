"""The strategies there are: which message of a key wins is chosen here, by name, and nowhere else.

A new one is a module beside latest.py, its place in STRATEGIES (and, once a broker may ask for it,
in storage/strategies.py), its documentation and its tests. Scan and merge call what the plan's
strategy holds:

    pack       facts, one row a message                  -> a fragment for each
    fold       fragments of each key, from any stretches -> one for each key, and a count
    survivors  a fragment for each key of the whole log  -> the positions that stay

**It gets** what key sections tell of the messages that have a key (Facts): the position, whether it
is a value or a tombstone, and, when it says that it reads them, event times. Another fact of the
key section or the entry's header (publish time, sequence id) is one more column of Facts, filled in
by key_columns.py. Values are no facts: phase one never touches their sections. Messages without a
key are none of its business: the topic's policy keeps or drops them.

**It gives** positions in any order, and the number of values that lost against another one. Each
tombstone counts as a removed event beside those: none may be among the survivors. Its version rises
when its rules change, that is, what is kept or counted.

Laws (tests/unit/compactor/test_strategies.py asks every strategy about the first):
* A fold of folds is the fold of all. Fragments come from stretches of the log that do not overlap,
  cut anywhere, and in any order. A winner that is the greatest by some order keeps the law by
  itself: `latest` by position; one by event time would carry (event time, position), so that the
  position decides ties. Pulsar's `should_keep_left(previous, current)` can be said like that when
  of three messages the same one is left whichever two are asked about first, and when it asks for
  nothing but facts. (Pulsar hands it decoded values.)
* A run's input is what the run before left, and what is new. So a strategy comes to the same from
  the survivors of the beginning and the rest as from the whole. Mind tombstones, which are gone
  after one run: where one can win against what is published later, as by event time, the older
  event comes back once the tombstone is gone, and the strategy's documentation says so.
"""

from __future__ import annotations

from ledgerfold.compactor.strategies.latest import LATEST
from ledgerfold.compactor.strategies.strategy import Strategy
from ledgerfold.storage.errors import UnknownStrategy

STRATEGIES: dict[str, Strategy] = {each.name: each for each in (LATEST,)}


def strategy_named(name: str, version: int = 0) -> Strategy:
    """`version` 0: whichever there is. Raises UnknownStrategy."""
    found = STRATEGIES.get(name)
    if found is None or version not in (0, found.version):
        raise UnknownStrategy(
            name, version, {each.name: each.version for each in STRATEGIES.values()}
        )
    return found
