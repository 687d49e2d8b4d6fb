"""The table of a table view: the last value of each key, and the listeners. No I/O, no event loop.

Rules (Pulsar's TableViewImpl.handleMessage):

* A message without a key is ignored.
* A message without content removes its key, and listeners get (key, None). (On a Kafka topic, only
  a null value removes it.)
* Any other message is decoded and stored, and listeners get (key, value).
* A strategy, if given, decides first whether the message is used. A
  skipped message changes nothing and is not passed to listeners.
* Errors of the decoder, the strategy or a listener are logged; other messages and listeners are not
  affected.

    >>> table = Table(bytes.decode)
    >>> table.listen(print)
    >>> table.put("p3", b"10")
    p3 10
    >>> table.put("p3", b"")
    p3 None
    >>> table.snapshot()
    {}
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ledgerfold.broker.client.messages.message import Message
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.strategies.strategic import TopicCompactionStrategy

_log = logging.getLogger(__name__)
# Called with a key and its new value; None: the key was removed.
Listener = Callable[[str, Any], object]


class Table:
    """A table that any thread may read while one applies messages.

    NOTE: reads take no lock, so a slow listener blocks no reader. They are safe, because looking a
    key up in a dictionary and copying a dictionary are atomic.
    """

    def __init__(
        self, decode: Callable[[bytes], Any], strategy: TopicCompactionStrategy | None = None
    ) -> None:
        """Raises InvalidRequest if `strategy` is not a table view's strategy."""
        self._decode = decode
        self._current = None if strategy is None else CurrentMessages(strategy)
        self._values: dict[str, Any] = {}
        self._listeners: tuple[Listener, ...] = ()
        # Held while messages are applied and while a listener gets existing keys, so that it misses
        # no update. Re-entrant, because listeners may add listeners.
        self._lock = threading.RLock()
        self._has_warned_keyless = False

    # Reading.

    def get(self, key: str) -> Any:
        """Returns the key's value; None without one."""
        return self._values.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def snapshot(self) -> dict[str, Any]:
        """Returns a copy."""
        return self._values.copy()

    def for_each(self, action: Listener) -> None:
        for key, value in self.snapshot().items():
            action(key, value)

    # Listening.

    def listen(self, listener: Listener) -> None:
        """Calls `listener` for every later update."""
        with self._lock:
            self._listeners += (listener,)

    def for_each_and_listen(self, listener: Listener) -> None:
        """Calls `listener` for every key, then for every update: none is missed or repeated."""
        with self._lock:
            self.for_each(listener)
            self.listen(listener)

    # Writing.

    def apply(self, messages: Iterable[Message]) -> None:
        with self._lock:
            for message in messages:
                try:
                    self._apply(message)
                except Exception:  # user code on foreign content
                    _log.exception("A table view ignores %r, which failed", message)

    def _apply(self, message: Message) -> None:
        key = message.partition_key()
        if key or message.has_key():
            if self._current is None or self._current.takes(TableMessage.of(message)):
                self.put(key, message.data(), is_removal=message.is_tombstone())
        elif not self._has_warned_keyless:
            self._has_warned_keyless = True
            _log.warning("A table view ignores messages without a key, such as %r.", message)

    def put(self, key: str, content: bytes, *, is_removal: bool | None = None) -> None:
        """Stores or removes one key's value. If the decoder raises, the key keeps its value.

        `is_removal`: whether to remove the key; None: if the content is empty.
        """
        value = None
        if content if is_removal is None else not is_removal:
            value = self._values[key] = self._decode(content)
        else:
            self._values.pop(key, None)
        for listener in self._listeners:
            try:
                listener(key, value)
            except Exception:  # user code: its failure must not affect the others
                _log.exception("A listener of a table view failed at key %r.", key)


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
        message_id = message.message_id()
        return cls(
            message.partition_key(),
            message.data(),
            message.properties(),
            message.event_timestamp(),
            message.publish_timestamp(),
            (*message_id.position, message_id.batch_index()),
        )


class CurrentMessages:
    """The current message of each key, under a strategy. Raises InvalidRequest if `strategy` is not
    an object with should_keep_left.

    The rules (Pulsar's TableViewImpl with a topicCompactionStrategyClassName) are those of
    strategic compaction (ledgerfold/strategies/strategic.py), so that the view equals the compacted
    topic. A skipped message is passed only to the strategy's `handle_skipped`.

    >>> from ledgerfold.strategies.ready_made import KeepFirst
    >>> first = TableMessage("a", b"1", {}, 0, 0, (0, 0, -1))
    >>> current = CurrentMessages(KeepFirst())
    >>> current.takes(first), current.takes(first)
    (True, False)
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
