"""Ledgerfold's answers to requests about data: publish, read, consume, views.

Through the client library, as a user would. Open objects are kept by name.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from typing import Any

from ledgerfold.broker.client import (
    Client,
    CompressionType,
    Consumer,
    ConsumerType,
    InitialPosition,
    Message,
    MessageId,
    Reader,
    Result,
    TableView,
)
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.core.consumer_core import ConsumerCore
from ledgerfold.storage.entry import Compression
from ledgerfold.storage.errors import Timeout
from tests.cases.compare import Received
from tests.cases.protocol import Refused
from tests.support.waiting import WAIT_MS, wait_until

_COMPRESSIONS = {each.name.upper(): each for each in CompressionType}
_TYPES = {each.name: each for each in ConsumerType} | {"Key_Shared": ConsumerType.KeyShared}
_QUEUE = 1000
# A batch of the notation is one entry, regardless of its size.
_ANY_SIZE = 2**31 - 1
# Redelivered soon: no test waits for Pulsar's minute.
_NACK_DELAY_MS = 100
Answer = dict[str, Any]
Heard = list[list[str | None]]


class DataAnswers:
    """Methods are named after the operations that they answer."""

    def __init__(self, client: Client, admin: Admin) -> None:
        self._client, self._admin = client, admin
        self._readers: dict[str, tuple[Reader, str, bool]] = {}
        self._consumers: dict[str, Consumer] = {}
        self._views: dict[str, tuple[TableView, Heard]] = {}
        self._held: dict[str, Message] = {}

    def produce(
        self,
        topic: str,
        messages: list[dict[str, Any]],
        batch: bool = False,
        batchMax: int = 1,  # noqa: N803 - the protocol's name
        compression: str = "NONE",
        producer: str | None = None,
    ) -> Answer:
        publisher = self._client.create_producer(
            topic,
            producer,
            batching_enabled=batch,
            batching_max_messages=batchMax,
            batching_max_allowed_size_in_bytes=_ANY_SIZE,
            batching_max_publish_delay_ms=60_000,
            block_if_queue_full=True,
            compression_type=_COMPRESSIONS[compression],
        )
        sent: list[tuple[Result, MessageId | None]] = []
        try:
            for each in messages:
                publisher.send_async(_value(each), lambda *got: sent.append(got), **_fields(each))
            publisher.flush()
        finally:
            publisher.close()
        return {"ids": [_sent_id(*got) for got in sent]}

    def read(
        self,
        topic: str,
        compacted: bool = False,
        inclusive: bool = False,
        max: int | None = None,
        queue: int = _QUEUE,
        seek: Any = None,
        seekTimestamp: int | None = None,  # noqa: N803
        **start: Any,
    ) -> Answer:
        with self._open_reader(topic, compacted, inclusive, queue, **start) as reader:
            if seek is not None or seekTimestamp is not None:
                reader.seek(seekTimestamp if seek is None else position(seek))  # type: ignore[arg-type]
            found: list[Received] = []
            while (max is None or len(found) < max) and reader.has_message_available():
                found.append(_received(reader.read_next(timeout_millis=WAIT_MS)))
        return {"messages": found}

    def reader(
        self,
        topic: str,
        name: str,
        compacted: bool = False,
        inclusive: bool = False,
        queue: int = _QUEUE,
        **start: Any,
    ) -> Answer:
        opened = self._open_reader(topic, compacted, inclusive, queue, **start)
        self._readers[name] = opened, topic, compacted
        return {}

    def _open_reader(
        self, topic: str, compacted: bool, inclusive: bool, queue: int, **start: Any
    ) -> Reader:
        return self._client.create_reader(
            topic,
            position(start.get("from", "earliest")),
            is_read_compacted=compacted,
            start_message_id_inclusive=inclusive,
            receiver_queue_size=queue,
        )

    def has_more(self, name: str) -> Answer:
        if name in self._readers:
            return {"more": self._readers[name][0].has_message_available()}
        return {"more": self._consumers[name].has_message_available()}

    def last_id(self, name: str) -> Answer:
        if name in self._consumers:
            return {"id": id_of(self._consumers[name].get_last_message_id())}
        _, topic, compacted = self._readers[name]
        return {"id": id_of(self._admin.last_message_id(topic, read_compacted=compacted))}

    def consumer(
        self,
        topic: str,
        name: str,
        sub: str,
        type: str = "Exclusive",
        compacted: bool = False,
        position: str = "earliest",
        inclusive: bool = False,
        queue: int = _QUEUE,
    ) -> Answer:
        self._consumers[name] = self._client.subscribe(
            topic,
            sub,
            _TYPES[type],
            consumer_name=name,
            is_read_compacted=compacted,
            initial_position=InitialPosition[position.capitalize()],
            start_message_id_inclusive=inclusive,
            receiver_queue_size=queue,
            negative_ack_redelivery_delay_ms=_NACK_DELAY_MS,
        )
        return {}

    def receive(self, name: str, max: int, timeoutMs: int) -> Answer:  # noqa: N803
        take: Callable[[int], Message]
        if name in self._readers:
            take = self._readers[name][0].read_next
        else:
            take = self._consumers[name].receive
        found: list[Received] = []
        while len(found) < max:
            try:
                message = take(timeoutMs)
            except Timeout:
                break
            handle = f"{name} {message.message_id()}"
            self._held[handle] = message
            found.append(_received(message) | {"handle": handle})
        return {"messages": found}

    def ack(self, name: str, handle: str) -> Answer:
        self._consumers[name].acknowledge(self._held[handle])
        _await_answer(self._consumers[name])
        return {}

    def ack_cumulative(self, name: str, handle: str) -> Answer:
        self._consumers[name].acknowledge_cumulative(self._held[handle])
        _await_answer(self._consumers[name])
        return {}

    def nack(self, name: str, handle: str) -> Answer:
        self._consumers[name].negative_acknowledge(self._held[handle])
        return {}

    def seek(self, name: str, to: Any = None, timestamp: int | None = None) -> Answer:
        opened = self._consumers[name] if name in self._consumers else self._readers[name][0]
        opened.seek(position(to) if timestamp is None else timestamp)
        return {}

    def close(self, name: str) -> Answer:
        if name in self._readers:
            self._readers.pop(name)[0].close()
        elif name in self._views:
            self._views.pop(name)[0].close()
        else:
            self._consumers.pop(name).close()
        return {}

    def view(self, topic: str, name: str, listen: str | None = None) -> Answer:
        opened = self._client.create_table_view(topic)
        heard: Heard = []

        def hear(key: str, value: bytes | None) -> None:
            heard.append([key, None if value is None else value.decode(errors="replace")])

        if listen == "updates":
            opened.listen(hear)
        elif listen == "all":
            opened.for_each_and_listen(hear)
        self._views[name] = opened, heard
        return {}

    def view_state(self, name: str) -> Answer:
        opened, heard = self._views[name]
        entries = opened.snapshot().items()
        return {
            "entries": {key: value.decode(errors="replace") for key, value in entries},
            "heard": list(heard),
        }

    def view_refresh(self, name: str) -> Answer:
        self._views[name][0].refresh()
        return {}


def _value(message: dict[str, Any]) -> bytes | None:
    if "valueB64" in message:
        return b64decode(message["valueB64"])
    value = message["value"]
    return None if value is None else value.encode()


def _fields(message: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of a send. A byte key is converted to base64, as Pulsar's Python client
    does.
    """
    return {
        "partition_key": message.get("key", message.get("keyB64")),
        "properties": message.get("props"),
        "event_timestamp": message.get("eventTime"),
        "sequence_id": message.get("sequence"),
    }


def _sent_id(result: Result, at: MessageId | None) -> list[int]:
    if at is None:
        raise Refused("A message was not stored.", frozenset({result.name}))
    return id_of(at)


def id_of(at: MessageId) -> list[int]:
    found = [at.ledger_id(), at.entry_id(), at.batch_index()]
    return found if at.partition() < 0 else [*found, at.partition()]


def position(at: Any) -> MessageId:
    """Returns a position in the form of requests: "earliest", "latest" or an id."""
    if isinstance(at, str):
        return MessageId.latest if at == "latest" else MessageId.earliest
    ledger, entry, batch_index, *partition = at
    return MessageId(partition[0] if partition else -1, ledger, entry, batch_index)


def _told(value: bytes | None) -> dict[str, str | None]:
    """Returns a text, and the bytes if the text is ambiguous."""
    try:
        return {"value": None if value is None else value.decode()}
    except UnicodeDecodeError as error:
        text = error.object.decode(errors="replace")
        return {"value": text, "valueB64": b64encode(error.object).decode()}


def _received(message: Message) -> Received:
    value = message.value()
    return {
        "id": id_of(message.message_id()),
        "key": message.partition_key() if message.has_key() else None,
        **_told(value),
        "size": len(message.data()),
        "eventTime": message.event_timestamp(),
        "props": message.properties(),
        "sequence": message.sequence_id(),
        "redelivery": message.redelivery_count(),
        "publishTime": message.publish_timestamp(),
        "producer": message.producer_name(),
        # A message is a row of its entry (broker/client/messages/message.py).
        "compression": Compression(message[0].header_of(message[1]).compression).name,
    }


def _await_answer(consumer: Consumer) -> None:
    """Waits, so that the next step finds the acknowledged cursor."""
    if isinstance(consumer._core, ConsumerCore):
        stream = consumer._core.stream
        stream.loop.call_soon_threadsafe(stream._request_confirmation)
        wait_until(lambda: not stream._acks, "the answer to the acknowledgements")
