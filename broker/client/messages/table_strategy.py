"""The strategy of a table view: decides whether a message replaces its key's current one.

The rules (Pulsar's TableViewImpl with a topicCompactionStrategyClassName) are those of strategic
compaction (ledgerfold/strategies/strategic.py), so that the view equals the compacted topic. A
skipped message changes nothing and is not passed to listeners, only to the strategy's
`handle_skipped`.

    >>> from ledgerfold.strategies.ready_made import KeepFirst
    >>> first = TableMessage("a", b"1", {}, 0, 0, (0, 0, -1))
    >>> current = CurrentMessages(KeepFirst())
    >>> current.takes(first), current.takes(first)
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
    """A StrategicMessage that holds no reference to its entry."""

    key: str
    value: bytes
    properties: dict[str, str]
    event_time_ms: int
    publish_time_ms: int
    message_id: tuple[int, int, int]

    @classmethod
    def of(cls, message: Message) -> TableMessage:
        """Copies the parts of `message`. Raises Corruption."""
        place = message.message_id()
        return cls(
            message.partition_key(),
            message.data(),
            message.properties(),
            message.event_timestamp(),
            message.publish_timestamp(),
            (*place.position, place.batch_index()),
        )


class CurrentMessages:
    """The current message of each key, under a strategy.

    Raises InvalidRequest if `strategy` is not an object with should_keep_left.
    """

    def __init__(self, strategy: TopicCompactionStrategy) -> None:
        if isinstance(strategy, type) or not callable(getattr(strategy, "should_keep_left", None)):
            raise InvalidRequest(
                f"A table view's strategy must be an object with should_keep_left: {strategy!r}."
            )
        self._strategy = strategy
        self._handle_skipped: Callable[[str, Any], object] | None
        self._handle_skipped = getattr(strategy, "handle_skipped", None)
        self._messages: dict[str, TableMessage] = {}

    def takes(self, message: TableMessage) -> bool:
        """Returns whether `message` replaces its key's current message, and replaces it.

        Raises TypeError for an answer that is not a bool, and every error of the strategy.
        """
        answer = self._strategy.should_keep_left(self._messages.get(message.key), message)
        if not isinstance(answer, bool):
            raise TypeError(f"should_keep_left returned {answer!r:.100}, which is not a bool")
        if answer:
            if self._handle_skipped is not None:
                self._handle_skipped(message.key, message)
            return False
        if message.value:
            self._messages[message.key] = message
        else:
            self._messages.pop(message.key, None)
        return True
