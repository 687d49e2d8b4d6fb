"""Schemas: those of producers and consumers, GET_SCHEMA, GET_OR_CREATE_SCHEMA.

A version is 8 bytes, big-endian. Clients without a schema send none; a consumer that accepts any
schema has a special type. The rules are in broker/topics/schemas.py.
"""

from __future__ import annotations

from ledgerfold.broker.common.names import full_topic
from ledgerfold.broker.pulsar.link import Link, properties_of
from ledgerfold.broker.topics import client_schemas
from ledgerfold.broker.topics.broker import PulsarTopic
from ledgerfold.broker.topics.client_schemas import VERSION_BYTES, version_bytes
from ledgerfold.rpc_texts import TEXTS_MAX
from ledgerfold.storage.errors import InvalidRequest, InvalidSchema, TopicNotFound
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand, CommandProducer, CommandSubscribe
from ledgerfold.v1.records_pb2 import SchemaDefinition, SchemaRecord, SchemaType

_NONE, _ANY = 0, 21


class SchemaCommands:
    """The commands of one connection about schemas."""

    def __init__(self, link: Link) -> None:
        self._link = link

    async def get(self, request: BaseCommand) -> None:
        """Answers with a version of a schema. Raises InvalidRequest, SchemaNotFound."""
        requested = request.get_schema
        answer = pulsar_pb2.CommandGetSchemaResponse(request_id=requested.request_id)
        name = full_topic(requested.topic)
        number = (
            number_from(requested.schema_version) if requested.HasField("schema_version") else None
        )
        record = self._link.broker.schemas.version(name, number)
        answer.schema.CopyFrom(_shown(record))
        answer.schema_version = version_bytes(record.version)
        self._link.send(answer)

    async def get_or_create(self, request: BaseCommand) -> None:
        """Answers with the version that has a schema. Raises what refuses it."""
        requested, broker = request.get_or_create_schema, self._link.broker
        answer = pulsar_pb2.CommandGetOrCreateSchemaResponse(request_id=requested.request_id)
        name = full_topic(requested.topic)
        if not broker.exists(name):
            raise TopicNotFound(name)
        if requested.schema.type == _NONE:
            # The Go client requests the version of BYTES, which has none. With an empty version, it
            # could not read the messages.
            broker.schemas.without(name)
        else:
            answer.schema_version = await _for_producer(self._link, name, requested.schema)
        self._link.send(answer)


async def schema_of_producer(link: Link, topic: PulsarTopic, opening: CommandProducer) -> bytes:
    """Returns the schema version of a producer, as in its answer: empty without a schema.

    Raises the reason if its schema, or the lack of one, is refused.
    """
    if not _has_schema(opening):
        link.broker.schemas.without(topic.name)
        return b""
    return await _for_producer(link, topic.name, opening.schema)


async def _for_producer(link: Link, name: str, schema: pulsar_pb2.Schema) -> bytes:
    async with link.schema_turn:
        return version_bytes(await link.broker.schemas.for_producer(name, definition_of(schema)))


async def check_consumer(link: Link, topic: PulsarTopic, opening: CommandSubscribe) -> None:
    """Raises the reason if the consumer's schema is refused."""
    if not _has_schema(opening) or takes_any(opening):
        return

    definition = definition_of(opening.schema)
    async with link.schema_turn:
        await client_schemas.check_consumer(link.broker.schemas, topic, definition)


def takes_any(opening: CommandSubscribe) -> bool:
    """Returns whether the consumer accepts messages of any schema."""
    return opening.HasField("schema") and opening.schema.type == _ANY


def _has_schema(opening: CommandProducer | CommandSubscribe) -> bool:
    return opening.HasField("schema") and opening.schema.type != _NONE


def definition_of(schema: pulsar_pb2.Schema) -> SchemaDefinition:
    """Raises InvalidSchema."""
    if schema.type not in SchemaType.values():
        raise InvalidSchema("such a", f"the broker does not know the type {schema.type}.")
    properties = properties_of(schema.properties, TEXTS_MAX)
    type_ = SchemaType.Name(schema.type)
    return SchemaDefinition(type=type_, data=schema.schema_data, properties=properties)


def _shown(record: SchemaRecord) -> pulsar_pb2.Schema:
    definition, (_, _, name) = record.definition, record.topic.partition("://")
    return pulsar_pb2.Schema(
        name=name.encode(),
        schema_data=definition.data,
        type=definition.type,
        properties=[
            pulsar_pb2.KeyValue(key=key.encode(), value=value.encode())
            for key, value in definition.properties.items()
        ],
    )


def number_from(version: bytes) -> int:
    """Raises InvalidRequest for bytes that are not a version."""
    if len(version) != VERSION_BYTES:
        raise InvalidRequest(f"A schema version has {VERSION_BYTES} bytes, not {len(version)}.")
    return int.from_bytes(version, "big")
