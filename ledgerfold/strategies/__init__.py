"""Compaction strategies, which choose the messages of a key that are kept (docs/STRATEGIES.md).

To define a strategy, write a class with `should_keep_left`, as in Pulsar's TopicCompactionStrategy
(PIP-215), and refer to it as "module:Class", or give it a name with an entry point in the group
`ledgerfold.strategies`:

    >>> class Highest:
    ...     version = "1"
    ...     def should_keep_left(self, previous, current):
    ...         return previous is not None and int(previous.value) >= int(current.value)
"""

from __future__ import annotations

from ledgerfold.exports import export
from ledgerfold.strategies.ready_made import HeaderVersion as HeaderVersion
from ledgerfold.strategies.ready_made import KeepFirst as KeepFirst
from ledgerfold.strategies.ready_made import Newest as Newest
from ledgerfold.strategies.ready_made import Numeric as Numeric
from ledgerfold.strategies.strategic import StrategicMessage as StrategicMessage
from ledgerfold.strategies.strategic import TopicCompactionStrategy as TopicCompactionStrategy

export(globals())
