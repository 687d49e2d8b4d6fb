"""Strategies of compaction: which message of a key is kept. (docs/STRATEGIES.md)

For a strategy of one's own, write a class with `should_keep_left`, as Pulsar's
TopicCompactionStrategy has it (PIP-215), and name it "module:Class", or give it a name by an entry
point in the group `ledgerfold.strategies`:

    >>> class Highest:
    ...     version = "1"
    ...     def should_keep_left(self, previous, current):
    ...         return previous is not None and int(previous.value) >= int(current.value)
"""

from __future__ import annotations

from ledgerfold.strategies.ready_made import HeaderVersion, KeepFirst, Newest, Numeric
from ledgerfold.strategies.strategic import StrategicMessage, TopicCompactionStrategy

__all__ = [
    "HeaderVersion",
    "KeepFirst",
    "Newest",
    "Numeric",
    "StrategicMessage",
    "TopicCompactionStrategy",
]
