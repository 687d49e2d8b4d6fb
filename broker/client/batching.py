"""How messages become entries.

A container holds the messages that wait for company; `take` gives the batches that become one entry
each, in the order in which they must be sent: the sequence ids of the entries rise, because that is
what the broker recognises a resent entry by.

* `PlainContainer`: no batching. Every message is an entry and has no batch index.
* `DefaultContainer`: all messages share a batch (Pulsar's BatchMessageContainer).
* `KeyBasedContainer`: one batch per key (Pulsar's BatchMessageKeyBasedContainer). The limits hold
  for the container as a whole. Messages of different keys interleave, so each names its own id.

    >>> container = KeyBasedContainer("p", -1)
    >>> for sequence_id, key in enumerate([b"a", b"b", b"a"]):
    ...     container.add(NewMessage(b"v", key, sequence_id), None)
    >>> [(len(batch.builder), batch.sequence_id) for batch in container.take()]
    [(1, 1), (2, 2)]
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from typing import Any, Protocol

from broker.client.message_id import MessageId
from broker.client.new_message import NewMessage
from broker.client.options import BatchingType, Result
from storage.codec import key_bytes
from storage.native import NativeBatchBuilder

# Who learns what became of a message: a callback, someone who waits, nobody.
Listener = (
    Callable[[Result, MessageId | None], object]
    | ThreadFuture[MessageId]
    | asyncio.Future[MessageId]
    | None
)


class Batch:
    """The messages of one entry, and who waits for each."""

    __slots__ = ("builder", "listeners", "sequence_id")

    def __init__(self, producer_name: str) -> None:
        self.builder = NativeBatchBuilder(producer_name)
        self.listeners: list[Listener] = []
        # The last message's.
        self.sequence_id = -1

    def add(self, message: NewMessage, listener: Listener, *, names_sequence_id: bool) -> None:
        self.builder.add(
            message.value,
            message.key,
            properties=message.properties,
            event_time_ms=message.event_time_ms,
            ordering_key=message.ordering_key,
            sequence_id=message.sequence_id if names_sequence_id else None,
        )
        self.listeners.append(listener)
        self.sequence_id = message.sequence_id

    def single_messages(self) -> list[Batch]:
        """The same messages, a batch each."""
        builder, batches = self.builder, []
        builder.complete_flags()
        rows = len(builder)
        ids = builder.sequence_ids or range(self.sequence_id - rows + 1, self.sequence_id + 1)
        for row in range(rows):
            message = NewMessage(
                builder.values[row],
                key_bytes(builder.keys[row]),
                ids[row],
                builder.properties.get(row),
                builder.event_times.get(row, 0),
                builder.ordering_keys.get(row),
            )
            batch = Batch(builder.producer_name)
            batch.add(message, self.listeners[row], names_sequence_id=False)
            # Whether there is a key, and a value, is told by the flags alone.
            batch.builder.flags[0] = builder.flags[row]
            batches.append(batch)
        return batches


class Container(Protocol):
    """Messages that wait for company. A message's sequence id is above `last_sequence_id`."""

    is_plain: bool
    size_bytes: int

    @property
    def rows(self) -> int: ...

    @property
    def last_sequence_id(self) -> int: ...

    def add(self, message: NewMessage, listener: Listener) -> None: ...

    def take(self) -> list[Batch]:
        """All batches, in order of sequence id; the container is empty then."""
        ...


class QuickRows:
    """The quick way in: messages of content and key, before they are put into their batch.

    `items` holds content, key, listener of one message after the other. Adding the three at once is
    one step under the interpreter's lock, so it takes no other; whoever seals takes all at once.
    `size_bytes` may lag a little when several threads send.
    """

    __slots__ = ("is_watched", "items", "items_max", "size_bytes", "size_max", "watch")

    def __init__(self, watch: Callable[[], None]) -> None:
        self.items: list[Any] = []
        self.items_max = 0
        self.size_bytes = 0
        self.size_max = 0
        # A timer will come and seal what is here. Whoever finds it false must call `watch`.
        self.is_watched = False
        self.watch = watch

    def take(self) -> list[Any]:
        count = len(self.items)
        taken = self.items[:count]
        del self.items[:count]
        return taken


class DefaultContainer:
    """One batch for all."""

    is_plain = False

    def __init__(self, producer_name: str, last_sequence_id: int) -> None:
        self._producer_name = producer_name
        self._base_sequence_id = last_sequence_id
        self._begin()

    def _begin(self) -> None:
        self.batch = Batch(self._producer_name)
        self.size_bytes = 0
        # Sequence ids that do not just rise by one are named, each.
        self.names_sequence_ids = False

    @property
    def rows(self) -> int:
        return len(self.batch.listeners)

    @property
    def last_sequence_id(self) -> int:
        if self.names_sequence_ids:
            return self.batch.sequence_id
        return self._base_sequence_id + len(self.batch.listeners)

    def add(self, message: NewMessage, listener: Listener) -> None:
        batch, rows, expected = self.batch, self.rows, self.last_sequence_id + 1
        if message.sequence_id != expected and not self.names_sequence_ids:
            if rows:
                batch.builder.sequence_ids = list(range(expected - rows, expected))
                self.names_sequence_ids = True
            else:
                self._base_sequence_id = message.sequence_id - 1
        batch.add(message, listener, names_sequence_id=self.names_sequence_ids)
        self.size_bytes += message.size_bytes

    def extend(self, items: list[Any], size_bytes: int) -> None:
        """Adds what `QuickRows.take` gave; `size_bytes` is the batch's then.

        Not while sequence ids are named.
        """
        builder = self.batch.builder
        builder.complete_flags()
        builder.values += items[0::3]
        builder.keys += items[1::3]
        self.batch.listeners += items[2::3]
        self.size_bytes = max(self.size_bytes, size_bytes)

    def take(self) -> list[Batch]:
        if not self.rows:
            return []
        batch = self.batch
        batch.sequence_id = self._base_sequence_id = self.last_sequence_id
        self._begin()
        return [batch]


class PlainContainer(DefaultContainer):
    """One message, which becomes an entry that is no batch."""

    is_plain = True


class KeyBasedContainer:
    """A batch per key; the ordering key goes before the partition key, as in Pulsar."""

    is_plain = False

    def __init__(self, producer_name: str, last_sequence_id: int) -> None:
        self._producer_name = producer_name
        self._batches: dict[bytes | None, Batch] = {}
        self._last_sequence_id = last_sequence_id
        self.rows = 0
        self.size_bytes = 0

    @property
    def last_sequence_id(self) -> int:
        return self._last_sequence_id

    def add(self, message: NewMessage, listener: Listener) -> None:
        key = message.key if message.ordering_key is None else message.ordering_key
        batch = self._batches.get(key)
        if batch is None:
            batch = self._batches[key] = Batch(self._producer_name)
        batch.add(message, listener, names_sequence_id=True)
        self._last_sequence_id = message.sequence_id
        self.rows += 1
        self.size_bytes += message.size_bytes

    def take(self) -> list[Batch]:
        batches = sorted(self._batches.values(), key=lambda batch: batch.sequence_id)
        self._batches = {}
        self.rows = self.size_bytes = 0
        return batches


def container_for(
    producer_name: str,
    last_sequence_id: int,
    *,
    batching_enabled: bool,
    batching_type: BatchingType,
) -> Container:
    if not batching_enabled:
        return PlainContainer(producer_name, last_sequence_id)
    if batching_type == BatchingType.KeyBased:
        return KeyBasedContainer(producer_name, last_sequence_id)
    return DefaultContainer(producer_name, last_sequence_id)
