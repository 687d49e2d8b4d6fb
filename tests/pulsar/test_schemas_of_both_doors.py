"""Schemas that this package's client registers, and Pulsar's client uses."""

from __future__ import annotations

import pulsar
import pulsar.schema as theirs
import pytest

import ledgerfold
from ledgerfold import schema as ours
from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import IncompatibleSchema
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS


class Price(ours.Record):
    name = ours.String()


class TheirPrice(theirs.Record):  # type: ignore[misc]
    name = theirs.String()


TheirPrice.__name__ = "Price"


class Other(ours.Record):
    name = ours.Integer(required=True)


PAIRS = [
    (ours.JsonSchema(Price), theirs.JsonSchema(TheirPrice)),
    (ours.AvroSchema(Price), theirs.AvroSchema(TheirPrice)),
    (ours.StringSchema(), theirs.StringSchema()),
]


@pytest.mark.parametrize(("mine", "other"), PAIRS, ids=["json", "avro", "string"])
def test_both_clients_share_one_registry(
    broker: BrokerProcess,
    client: pulsar.Client,
    native: Client,
    topic: str,
    mine: ours.Schema,
    other: theirs.Schema,
) -> None:
    """Equal schemas of both clients are one version, which messages name."""
    producer = native.create_producer(topic, schema=mine)
    value = "x" if isinstance(mine, ours.StringSchema) else Price(name="x")
    producer.send(value)
    client.create_producer(topic, schema=other).close()
    with Admin(broker.url) as admin:
        assert [each.version for each in admin.list_schemas(topic)] == [0]
    found = client.create_reader(topic, pulsar.MessageId.earliest, schema=other).read_next(WAIT_MS)
    assert found.schema_version().encode() == bytes(8)
    reader = native.create_reader(topic, ledgerfold.MessageId.earliest, schema=other)
    message = reader.read_next(WAIT_MS)
    assert message.schema_version() == bytes(8)
    assert message.value() == (value if value == "x" else TheirPrice(name="x"))


def test_incompatible_schemas(client: pulsar.Client, native: Client, topic: str) -> None:
    client.create_producer(topic, schema=theirs.AvroSchema(TheirPrice)).close()
    wrong = ours.AvroSchema(Other)
    with pytest.raises(IncompatibleSchema):
        native.create_producer(topic, schema=wrong)
    with pytest.raises(IncompatibleSchema):
        native.subscribe(topic, "s", schema=wrong)
    with pytest.raises(IncompatibleSchema):
        native.create_reader(topic, ledgerfold.MessageId.earliest, schema=wrong)
