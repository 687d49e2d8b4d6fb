"""Requests the last message of a topic: its id, and the codec of its entries."""

from __future__ import annotations

from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.storage.errors import TopicNotFound
from ledgerfold.v1 import data_pb2


async def last_message_id(connection: Connection, topic: str, read_compacted: bool) -> MessageId:
    """Returns the id of the last message; `MessageId.earliest` (all parts -1) if the topic is
    empty.
    """
    response = await _ask_last(connection, topic, read_compacted)
    return MessageId.of_record(response.message_id)


async def is_kafka_topic(connection: Connection, topic: str) -> bool:
    """Returns whether the topic exists and is a Kafka topic. Clients never create Kafka topics."""
    try:
        response = await _ask_last(connection, topic, False)
    except TopicNotFound:
        return False
    return bool(response.codec == data_pb2.ENTRY_CODEC_KAFKA)


async def _ask_last(
    connection: Connection, topic: str, read_compacted: bool
) -> data_pb2.GetLastMessageIdResponse:
    request = data_pb2.GetLastMessageIdRequest(topic=topic, read_compacted=read_compacted)
    response: data_pb2.GetLastMessageIdResponse = await connection.call(
        connection.stub.GetLastMessageId, request
    )
    return response


async def without_latest(
    connection: Connection, topic: str, place: MessageId | int, read_compacted: bool
) -> MessageId | int:
    """Returns the current last message id for `MessageId.latest`, and any other place unchanged.

    Unlike "latest", an id stays the same after a lost connection.
    """
    if place != MessageId.latest:
        return place
    try:
        return await last_message_id(connection, topic, read_compacted)
    except TopicNotFound:
        return MessageId.earliest
