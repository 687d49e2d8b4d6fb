"""Groups messages into batches, each of which becomes an entry.

A container collects messages until a batch is sealed. `take` returns the batches, each of which
becomes one entry (or several, if it would be too large), in the order in which they must be sent:
sequence ids rise from message to message over all of them, because the broker treats an entry whose
id is not above the last one as a resend. A message whose sequence id is -1 gets the next one; a
given one is above `last_sequence_id`, that of the last message so far. A delayed message is taken
alone.

* `PlainContainer`: no batching. Every message is an entry and has no batch index.
* `DefaultContainer`: all messages share a batch (Pulsar's BatchMessageContainer).
* `KeyBasedContainer`: one batch per key (Pulsar's BatchMessageKeyBasedContainer). The limits apply
  to the container as a whole. Messages are numbered in the order of the batches.

    >>> container = KeyBasedContainer("p", -1)
    >>> for key in (b"a", b"b", b"a"):
    ...     container.add(NewMessage(b"v", key), None)
    >>> [(len(batch.builder), batch.sequence_id) for batch in container.take()]
    [(1, 0), (2, 2)]
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future as ThreadFuture
from typing import Any, TypeAlias, TypeVar

from ledgerfold.broker.client.messages.configs import ProducerConfig
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.new_message import NewMessage
from ledgerfold.broker.client.messages.options import BatchingType, Result
from ledgerfold.storage.native import NativeBatchBuilder

Cell = TypeVar("Cell")
# Receives the result of a send: a callback or a future.
Listener = (
    Callable[[Result, MessageId | None], object]
    | ThreadFuture[MessageId]
    | asyncio.Future[MessageId]
    | None
)


class Batch:
    """The messages of one entry, and a listener for each."""

    __slots__ = ("builder", "listeners", "sequence_id")

    def __init__(self, producer_name: str) -> None:
        self.builder = NativeBatchBuilder(producer_name)
        self.listeners: list[Listener] = []
        # The sequence id of the last message.
        self.sequence_id = -1

    def add(self, message: NewMessage, listener: Listener, *, names_sequence_id: bool) -> None:
        self.builder.add(
            message.value,
            message.key,
            key_is_base64=message.key_is_base64,
            properties=message.properties,
            event_time_ms=message.event_time_ms,
            ordering_key=message.ordering_key,
            sequence_id=message.sequence_id if names_sequence_id else None,
        )
        self.builder.deliver_at_ms = message.deliver_at_ms
        self.listeners.append(listener)
        self.sequence_id = message.sequence_id

    def halves(self) -> tuple[Batch, Batch]:
        """Splits the batch in two. The messages keep their sequence ids."""
        middle = len(self.listeners) // 2
        return self._part(0, middle), self._part(middle, len(self.listeners))

    def _part(self, first: int, end: int) -> Batch:
        batch, part = self.builder, Batch(self.builder.producer_name)
        batch.complete_flags()
        builder, rows = part.builder, range(first, end)
        builder.keys, builder.values = batch.keys[first:end], batch.values[first:end]
        builder.flags = batch.flags[first:end]
        builder.sequence_ids = batch.sequence_ids[first:end]
        builder.event_times = _of_rows(batch.event_times, rows)
        builder.properties = _of_rows(batch.properties, rows)
        builder.ordering_keys = _of_rows(batch.ordering_keys, rows)
        part.listeners = self.listeners[first:end]
        part.sequence_id = self.sequence_id - len(self.listeners) + end
        if builder.sequence_ids:
            part.sequence_id = builder.sequence_ids[-1]
        return part


def _of_rows(column: dict[int, Cell], rows: range) -> dict[int, Cell]:
    return {row - rows.start: cell for row, cell in column.items() if row in rows}


class QuickRows:
    """A buffer on the fast path: messages with only content and key, before they are added to a
    batch.

    For a producer that does not batch, they become entries of one message each.

    `items` holds content, key, listener of one message after the other. Appending the three is one
    step under the interpreter's lock, so it takes no other lock; sealing takes all at once.
    `size_bytes` may lag a little when several threads send.
    """

    __slots__ = ("is_watched", "items", "items_max", "size_bytes", "size_max", "watch")

    def __init__(self, watch: Callable[[], None]) -> None:
        self.items: list[Any] = []
        self.items_max = 0
        self.size_bytes = 0
        self.size_max = 0
        # A timer is set that seals the buffer. A caller that finds it False must call `watch`.
        self.is_watched = False
        self.watch = watch

    def take(self) -> list[Any]:
        count = len(self.items)
        taken = self.items[:count]
        del self.items[:count]
        return taken


class DefaultContainer:
    """A container with one batch for all messages."""

    is_plain = False

    def __init__(self, producer_name: str, last_sequence_id: int) -> None:
        self.producer_name = producer_name
        self._base_sequence_id = last_sequence_id
        self._begin()

    def _begin(self) -> None:
        self.batch = Batch(self.producer_name)
        self.size_bytes = 0
        # Sequence ids that do not rise by one are stored explicitly.
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
        if message.sequence_id < 0:
            message = message._replace(sequence_id=expected)
        elif message.sequence_id != expected and not self.names_sequence_ids:
            if rows:
                batch.builder.sequence_ids = list(range(expected - rows, expected))
                self.names_sequence_ids = True
            else:
                self._base_sequence_id = message.sequence_id - 1
        batch.add(message, listener, names_sequence_id=self.names_sequence_ids)
        self.size_bytes += message.size_bytes

    def extend(self, items: list[Any], size_bytes: int) -> None:
        """Adds the result of `QuickRows.take`; `size_bytes` is the size of the whole batch then.

        Must not be called while sequence ids are stored explicitly.
        """
        builder = self.batch.builder
        builder.complete_flags()
        builder.values += items[0::3]
        builder.keys += items[1::3]
        self.batch.listeners += items[2::3]
        self.size_bytes = max(self.size_bytes, size_bytes)

    def take(self) -> list[Batch]:
        """Removes and returns the batch, if there is one."""
        if not self.rows:
            return []
        batch = self.batch
        batch.sequence_id = self._base_sequence_id = self.last_sequence_id
        self._begin()
        return [batch]


class PlainContainer(DefaultContainer):
    """A container of one message, which becomes an entry that is not a batch."""

    is_plain = True

    def skip(self, messages: int) -> None:
        """Counts messages that became entries without a batch: their sequence ids are taken."""
        self._base_sequence_id += messages


class KeyBasedContainer:
    """A container with one batch per key; the ordering key has priority over the partition key, as
    in Pulsar.

    Batches are ordered by their last messages. They are numbered when they are taken, one after the
    other: all messages of an entry precede all of the next one's, even if a batch is split later,
    so the broker drops none as a resend because of a higher stored sequence id.

    A sequence id that the caller gave is never changed: a message with one shares a batch only with
    adjacent messages of the same key that have one, too.
    """

    is_plain = False

    def __init__(self, producer_name: str, last_sequence_id: int) -> None:
        self._producer_name = producer_name
        # Batches that take no more messages, and the last sequence id of them.
        self._closed: list[Batch] = []
        self._last_closed_id = last_sequence_id
        self._open: dict[bytes | None, Batch] = {}
        # True if the caller gave the sequence ids of the open batches.
        self._is_given = False
        self._last_sequence_id = last_sequence_id
        self.rows = 0
        self.size_bytes = 0

    @property
    def last_sequence_id(self) -> int:
        return self._last_sequence_id

    def add(self, message: NewMessage, listener: Listener) -> None:
        key = message.key if message.ordering_key is None else message.ordering_key
        is_given = message.sequence_id >= 0
        if is_given != self._is_given or (is_given and key not in self._open):
            self._close_open()
            self._is_given = is_given
        # Reinserted, so that the batch with the last message is last.
        batch = self._open.pop(key) if key in self._open else Batch(self._producer_name)
        self._open[key] = batch
        batch.add(message, listener, names_sequence_id=is_given)
        self._last_sequence_id = message.sequence_id if is_given else self._last_sequence_id + 1
        self.rows += 1
        self.size_bytes += message.size_bytes

    def _close_open(self) -> None:
        for batch in self._open.values():
            if not self._is_given:
                batch.sequence_id = self._last_closed_id + len(batch.listeners)
            self._last_closed_id = batch.sequence_id
            self._closed.append(batch)
        self._open = {}

    def take(self) -> list[Batch]:
        """Removes and returns all batches, in order of sequence id."""
        self._close_open()
        batches, self._closed = self._closed, []
        self.rows = self.size_bytes = 0
        return batches


Container: TypeAlias = DefaultContainer | KeyBasedContainer


def container_for(config: ProducerConfig, producer_name: str, last_sequence_id: int) -> Container:
    if not config.batching_enabled:
        return PlainContainer(producer_name, last_sequence_id)
    if config.batching_type == BatchingType.KeyBased:
        return KeyBasedContainer(producer_name, last_sequence_id)
    return DefaultContainer(producer_name, last_sequence_id)
