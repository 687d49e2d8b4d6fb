"""The schemas that clients declare when they connect, over any protocol.

A producer's schema becomes a version of the topic's schema, if it is compatible; messages name the
version by 8 bytes, big-endian. A consumer's or reader's must be compatible with the topic's; an
idle topic without a schema gets it. The rules are in broker/topics/schemas.py. Source: Pulsar's
ServerCnx.

    >>> version_bytes(3)
    b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x03'
"""

from __future__ import annotations

from ledgerfold.broker.topics.non_persistent_topic import NonPersistentTopic
from ledgerfold.broker.topics.schemas import Schemas
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.v1.records_pb2 import SchemaDefinition

VERSION_BYTES = 8


def version_bytes(version: int) -> bytes:
    return version.to_bytes(VERSION_BYTES, "big")


async def version_of_producer(
    schemas: Schemas, topic: str, definition: SchemaDefinition | None
) -> bytes:
    """Returns the schema version of a producer: empty without a schema.

    Raises the reason if its schema, or the lack of one, is refused.
    """
    if definition is None:
        schemas.without(topic)
        return b""
    return version_bytes(await schemas.for_producer(topic, definition))


async def check_consumer(
    schemas: Schemas, topic: Topic | NonPersistentTopic, definition: SchemaDefinition
) -> None:
    """Raises the reason if the schema of a consumer or reader, which is not connected yet, is
    refused.
    """

    def is_idle() -> bool:
        consumers = (each for one in topic.subscriptions.values() for each in one.consumers)
        if topic.producers or any(not each.takes_any_schema for each in consumers):
            return False
        if isinstance(topic, NonPersistentTopic):
            return not topic.entries_in
        return not (topic.readers or topic.log.ledgers.bytes_after(EARLIEST))

    await schemas.for_consumer(topic.name, definition, is_idle=is_idle)
