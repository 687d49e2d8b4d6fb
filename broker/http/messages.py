"""Single entries of a topic: peek, examine, and by id, without any effect on a subscription.

An entry is one message or a batch, as in Pulsar. Metadata are in `X-Pulsar-...` headers. The body
of a batch has Pulsar's format: a size, a SingleMessageMetadata and a value for each message.
Source: Pulsar's PersistentTopicsBase.generateResponseWithEntry.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Iterator

from ledgerfold.broker.common.traffic import iso_time
from ledgerfold.broker.http.answers import Answer, Refusal, Request, answering
from ledgerfold.broker.http.routes import Route
from ledgerfold.broker.http.topics import TOPIC, BrokerVerbs
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.single_entries import entry_by_id, examined_entry, peeked_entries
from ledgerfold.storage.codec import decode
from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import MessageNotFound
from ledgerfold.storage.ledger import StoredEntry
from ledgerfold.storage.pulsar.batch import PulsarBatch
from ledgerfold.v1.pulsar_pb2 import KeyValue, MessageMetadata, SingleMessageMetadata

_OCTETS = "application/octet-stream"


def message_routes(broker: Broker) -> list[Route]:
    verbs = MessageVerbs(broker)
    return [
        ("GET", f"{TOPIC}/subscription/{{subscription}}/position/{{position}}", verbs.peek),
        ("GET", f"{TOPIC}/examinemessage", verbs.examine),
        ("GET", f"{TOPIC}/ledger/{{ledger}}/entry/{{entry}}", verbs.by_id),
    ]


class MessageVerbs(BrokerVerbs):
    """The verbs over broker/topics/single_entries.py."""

    async def peek(self, request: Request) -> Answer:
        """Returns the n-th entry of a subscription's backlog, from 1."""
        nth, name = request.number("position"), self._name(request)
        entries = await peeked_entries(self._broker, name, request.names["subscription"], nth)
        if not entries:
            raise Refusal(404, "Message not found")
        return await self._shown(entries[0])

    async def examine(self, request: Request) -> Answer:
        """Returns the n-th entry of the topic, counted from the first or the last one."""
        nth, name = request.number("messagePosition", 1), self._name(request)
        from_earliest = request.query.get("initialPosition") == "earliest"
        reason = "Could not examine messages due to the total message is zero"
        with answering(MessageNotFound, 412, reason):
            entry = await examined_entry(self._broker, name, nth, from_earliest=from_earliest)
        return await self._shown(entry)

    async def by_id(self, request: Request) -> Answer:
        at = Position(request.number("ledger"), request.number("entry"))
        name = self._name(request)
        return await self._shown(await entry_by_id(self._broker, name, at))

    async def _shown(self, entry: StoredEntry) -> Answer:
        return await self._broker.in_thread(lambda: _answer(entry))


def _answer(entry: StoredEntry) -> Answer:
    header, decoded = entry.header, decode(entry.data, entry.header)
    first, is_batch = next(decoded.messages()), not header.is_plain
    is_encrypted = False
    if isinstance(decoded, PulsarBatch):
        # The payload has the format already, or cannot be opened.
        body, messages = decoded.payload, decoded.batch_size
        is_encrypted = bool(decoded.metadata.encryption_keys)
    else:
        body = b"".join(_batch_parts(decoded.messages())) if is_batch else first.value
        messages = decoded.rows
    headers = {
        "Message-ID": str(header.position),
        "PROPERTY": json.dumps({} if is_batch else first.properties, separators=(",", ":")),
        "publish-time": iso_time(header.publish_time_ms),
        "producer-name": decoded.producer_name.encode("ascii", "replace").decode(),
        "sequence-id": str(first.sequence_id),
        "Is-Encrypted": str(is_encrypted).lower(),
        "txn-uncommitted": "false",
    }
    if is_batch:
        headers["num-batch-message"] = str(messages)
        headers["batch-size"] = str(len(body))
    else:
        headers["uncompressed-size"] = str(len(body))
        headers |= _headers_of(first)
        if isinstance(decoded, PulsarBatch):
            _drop_unsent(headers, decoded.metadata)
    named = {f"X-Pulsar-{name}": value for name, value in headers.items() if value.isprintable()}
    return Answer(200, body, _OCTETS, named)


def _headers_of(message: StoredMessage) -> dict[str, str]:
    headers = {}
    if message.event_time_ms:
        headers["event-time"] = iso_time(message.event_time_ms)
    if message.value_is_null:
        headers["null-value"] = "true"
    if message.key is not None:
        text, is_base64 = _key_text(message.key, message.key_is_base64)
        headers["partition-key"] = text
        headers["partition-key-b64-encoded"] = str(is_base64).lower()
    if message.ordering_key is not None:
        headers["Base64-ordering-key"] = base64.b64encode(message.ordering_key).decode()
    return headers


def _drop_unsent(headers: dict[str, str], metadata: MessageMetadata) -> None:
    """Removes the headers of fields that the message lacks: C++ clients send neither."""
    if not metadata.HasField("uncompressed_size"):
        del headers["uncompressed-size"]
    # A key that a header cannot hold is shown in base64 anyway.
    is_text = headers.get("partition-key-b64-encoded") == "false"
    if is_text and not metadata.HasField("partition_key_b64_encoded"):
        del headers["partition-key-b64-encoded"]


def _key_text(key: bytes, is_base64: bool) -> tuple[str, bool]:
    """Returns a key in a form that a header can hold, and whether that is base64."""
    if not is_base64 and key.isascii() and key.decode().isprintable():
        return key.decode(), False
    return base64.b64encode(key).decode(), True


def _batch_parts(messages: Iterable[StoredMessage]) -> Iterator[bytes]:
    for each in messages:
        metadata = _metadata(each).SerializeToString()
        yield struct.pack(">I", len(metadata))
        yield metadata
        yield each.value


def _metadata(message: StoredMessage) -> SingleMessageMetadata:
    key = message.key
    if key is not None and message.key_is_base64:
        key = base64.b64encode(key)
    return SingleMessageMetadata(
        properties=[
            KeyValue(key=name.encode(), value=value.encode())
            for name, value in message.properties.items()
        ],
        partition_key=key,
        payload_size=len(message.value),
        event_time=message.event_time_ms,
        partition_key_b64_encoded=message.key_is_base64,
        ordering_key=message.ordering_key,
        sequence_id=message.sequence_id,
        null_value=message.value_is_null,
    )
