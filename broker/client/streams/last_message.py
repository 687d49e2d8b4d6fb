"""Asks a broker for the last message of a topic: its id, and the codec of its entries."""

from __future__ import annotations

from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.storage.errors import TopicNotFound
from ledgerfold.v1 import data_pb2


async def last_message_id(connection: Connection, topic: str, read_compacted: bool) -> MessageId:
    """(-1, -1, -1, -1), which is `MessageId.earliest`, when there is none."""
    response = await _ask_last(connection, topic, read_compacted)
    return MessageId.of_record(response.message_id)


async def is_kafka_topic(connection: Connection, topic: str) -> bool:
    """False also where there is no such topic yet: made by its first client, it is none."""
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
    """`MessageId.latest` as the id that it means now; anything else as it is.

    A lost connection does not move an id.
    """
    if place != MessageId.latest:
        return place
    try:
        return await last_message_id(connection, topic, read_compacted)
    except TopicNotFound:
        return MessageId.earliest
