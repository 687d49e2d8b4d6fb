"""The strategy of a table view: whether a message takes the place of the one that stands.

Rules (Pulsar's TableViewImpl with a topicCompactionStrategyClassName): as strategic compaction
decides (ledgerfold/strategies/strategic.py), so that the view ends up equal to the compacted topic.
A skipped message changes nothing and no listener hears of it; the class's `handle_skipped` does.

    >>> from ledgerfold.strategies.ready_made import KeepFirst
    >>> first = TableMessage("a", b"1", {}, 0, 0, (0, 0, -1))
    >>> standing = Standing(KeepFirst())
    >>> standing.takes(first), standing.takes(first)
    (True, False)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ledgerfold.broker.client.messages.message import Message
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.strategies.strategic import TopicCompactionStrategy


@dataclass(frozen=True, slots=True)
class TableMessage:
    """A StrategicMessage that holds nothing of the entry it came in."""

    key: str
    value: bytes
    properties: dict[str, str]
    event_time_ms: int
    publish_time_ms: int
    message_id: tuple[int, int, int]

    @classmethod
    def of(cls, message: Message) -> TableMessage:
        """Raises Corruption."""
        place = message.message_id()
        return cls(
            message.partition_key(),
            message.data(),
            message.properties(),
            message.event_timestamp(),
            message.publish_timestamp(),
            (*place.position, place.batch_index()),
        )


class Standing:
    """What stands of each key, and who is asked. Raises InvalidRequest: nobody can ask that."""

    def __init__(self, strategy: TopicCompactionStrategy) -> None:
        if isinstance(strategy, type) or not callable(getattr(strategy, "should_keep_left", None)):
            raise InvalidRequest(
                f"A table view's strategy is an object with should_keep_left, and not {strategy!r}."
            )
        self._strategy = strategy
        self._handle_skipped: Callable[[str, Any], object] | None
        self._handle_skipped = getattr(strategy, "handle_skipped", None)
        self._messages: dict[str, TableMessage] = {}

    def takes(self, message: TableMessage) -> bool:
        """Whether it takes its key's place. Raises TypeError, and what the object raises."""
        answer = self._strategy.should_keep_left(self._messages.get(message.key), message)
        if not isinstance(answer, bool):
            raise TypeError(f"should_keep_left answered {answer!r:.100}, which is no bool")
        if answer:
            if self._handle_skipped is not None:
                self._handle_skipped(message.key, message)
            return False
        if message.value:
            self._messages[message.key] = message
        else:
            self._messages.pop(message.key, None)
        return True
