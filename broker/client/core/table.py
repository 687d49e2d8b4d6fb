"""What a table view holds: the last value of each key, and who listens. No I/O, no event loop.

Rules (Pulsar's TableViewImpl.handleMessage):

* A message without a key is left out.
* One without content removes its key, and listeners get (key, None). (Of a Kafka topic only one of
  a null value does.)
* Any other is decoded and put, and listeners get (key, value).
* A strategy, where there is one, is asked first (table_strategy.py).
* A decoder, a strategy or a listener that raises is logged; the other messages and listeners are
  served.

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
from typing import Any, Protocol

from ledgerfold.broker.client.messages.message import Message
from ledgerfold.broker.client.messages.table_strategy import Standing, TableMessage
from ledgerfold.strategies.strategic import TopicCompactionStrategy

_log = logging.getLogger(__name__)
# Called with a key and its new value; None: the key is gone.
Listener = Callable[[str, Any], object]


class Schema(Protocol):
    """How contents become values. Those of Pulsar's Python client fit."""

    def decode(self, data: bytes) -> Any: ...


class Table:
    """May be read by any thread while one applies messages.

    NOTE: reads take no lock, so a slow listener holds nobody up: looking a key up in a dictionary
    and copying one are atomic.
    """

    def __init__(
        self, decode: Callable[[bytes], Any], strategy: TopicCompactionStrategy | None = None
    ) -> None:
        """Raises InvalidRequest: no strategy can be that."""
        self._decode = decode
        self._standing = None if strategy is None else Standing(strategy)
        self._values: dict[str, Any] = {}
        self._listeners: tuple[Listener, ...] = ()
        # Held while messages are applied and while a listener catches up: between the two there is
        # no gap. Re-entrant, for listeners may add listeners.
        self._lock = threading.RLock()
        self._has_met_keyless = False

    # Reading.

    def get(self, key: str) -> Any:
        """None when there is no such key."""
        return self._values.get(key)

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def __len__(self) -> int:
        return len(self._values)

    def snapshot(self) -> dict[str, Any]:
        """A copy."""
        return self._values.copy()

    def for_each(self, action: Listener) -> None:
        for key, value in self.snapshot().items():
            action(key, value)

    # Listening.

    def listen(self, listener: Listener) -> None:
        """Calls it for every update from now on."""
        with self._lock:
            self._listeners += (listener,)

    def for_each_and_listen(self, listener: Listener) -> None:
        """Calls it for what is here, then for every update: none is missed, none comes twice."""
        with self._lock:
            self.for_each(listener)
            self.listen(listener)

    # Writing.

    def apply(self, messages: Iterable[Message]) -> None:
        with self._lock:
            for message in messages:
                try:
                    self._apply(message)
                except Exception:  # decoder and strategy are a person's code, the content another's
                    _log.exception("A table view cannot use %r", message)

    def _apply(self, message: Message) -> None:
        key = message.partition_key()
        if key or message.has_key():
            if self._standing is None or self._standing.takes(TableMessage.of(message)):
                self.put(key, message.data(), is_gone=message.is_tombstone())
        elif not self._has_met_keyless:
            self._has_met_keyless = True
            _log.warning("A table view leaves messages without a key out; %r is one.", message)

    def put(self, key: str, content: bytes, *, is_gone: bool | None = None) -> None:
        """One message's worth. Raises what the decoder raises; the key then keeps its value.

        `is_gone`: that it has none any more; None: an empty content says so.
        """
        value = None
        if content if is_gone is None else not is_gone:
            value = self._values[key] = self._decode(content)
        else:
            self._values.pop(key, None)
        for listener in self._listeners:
            try:
                listener(key, value)
            except Exception:  # a person's code: its failure must not reach the others
                _log.exception("A listener of a table view failed at key %r.", key)
