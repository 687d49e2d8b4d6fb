"""The schemas of topics, on a disk that forgets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.schemas import avro as avro_definitions
from ledgerfold.broker.schemas import definitions
from ledgerfold.broker.topics import schemas as registry
from ledgerfold.broker.topics.schemas import Schemas
from ledgerfold.storage import records
from ledgerfold.storage.errors import (
    IncompatibleSchema,
    InvalidSchema,
    LimitExceeded,
    Moved,
    SchemaNotFound,
)
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.storage.records import SCHEMAS, M
from ledgerfold.v1.records_pb2 import Policies, SchemaDefinition, SchemaRecord, TopicRecord
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.held_executor import HeldExecutor

PARTITIONED = "persistent://public/default/p"
TEXT = SchemaDefinition(type="SCHEMA_TYPE_STRING")


def avro(*names: str, default: Any = 1) -> SchemaDefinition:
    fields = [{"name": each, "type": "int", "default": default} for each in names]
    data = json.dumps({"type": "record", "name": "A", "fields": fields}).encode()
    return SchemaDefinition(type="SCHEMA_TYPE_AVRO", data=data, properties={"of": "a test"})


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def numbers(lab: BrokerLab, topic: str = TOPIC) -> list[int]:
    return [each.version for each in lab.broker.schemas.versions(topic)]


def put(lab: BrokerLab, *names: str, topic: str = TOPIC) -> int:
    return lab.run(lab.broker.schemas.put(topic, avro(*names)))


def for_producer(lab: BrokerLab, topic: str = TOPIC) -> int:
    return lab.run(lab.broker.schemas.for_producer(topic, TEXT))


def test_versions_survive_a_crash(lab: BrokerLab) -> None:
    assert [put(lab, *"ab"), put(lab, *"abc"), put(lab, *"ab")] == [0, 1, 0]
    lab.crash()
    assert numbers(lab) == [0, 1]
    found = lab.broker.schemas.version(TOPIC)
    assert (found.version, found.definition) == (1, avro(*"abc"))
    assert lab.broker.schemas.version(TOPIC, 0).definition == avro(*"ab")
    assert found.created_ms > 0
    store = lab.broker.metadata.store()
    assert store is not None
    assert SCHEMAS in store.features
    for number in (None, 2, -1):
        topic = TOPIC if number is not None else PARTITIONED
        with pytest.raises(SchemaNotFound):
            lab.broker.schemas.version(topic, number)


def test_versions_survive_unloads_and_compactions(lab: BrokerLab) -> None:
    put(lab, "a")
    lab.publish([([Message(b"k", b"1")], False), ([Message(b"k", b"2")], False)])
    assert lab.compact() is not None
    lab.run(lab.broker.unload_topic(TOPIC))
    lab.restart()
    assert numbers(lab) == [0]


def test_a_deletion_is_recorded(lab: BrokerLab) -> None:
    """Versions are not used again, unless that was asked for; old ones cannot be read."""
    schemas = lab.broker.schemas
    put(lab, "a")
    put(lab, *"ab")
    assert lab.run(schemas.delete(TOPIC, force=False)) == 2
    assert lab.run(schemas.delete(TOPIC, force=False)) == 3
    assert numbers(lab) == []
    with pytest.raises(SchemaNotFound):
        schemas.version(TOPIC, 0)
    lab.crash()
    # Another type: deleted versions are not compared.
    assert for_producer_of_new_topic(lab) == 4
    assert lab.run(lab.broker.schemas.delete(TOPIC, force=True)) == -1
    assert put(lab, "a") == 0


def for_producer_of_new_topic(lab: BrokerLab) -> int:
    lab.run(lab.broker.topic(TOPIC))
    return for_producer(lab)


def test_deleting_a_topic_deletes_its_schema(lab: BrokerLab) -> None:
    lab.run(lab.broker.topic(TOPIC))
    put(lab, "a")
    put(lab, "a", topic=f"{TOPIC}2")
    lab.run(lab.broker.delete_topic(TOPIC, force=False))
    lab.crash()
    assert (numbers(lab), numbers(lab, f"{TOPIC}2")) == ([], [0])
    assert for_producer_of_new_topic(lab) == 0


def test_partitions_share_the_schema_of_their_topic(lab: BrokerLab) -> None:
    lab.run(lab.broker.create_partitioned_topic(PARTITIONED, 2))
    assert for_producer(lab, f"{PARTITIONED}-partition-1") == 0
    assert numbers(lab, PARTITIONED) == numbers(lab, f"{PARTITIONED}-partition-0") == [0]
    lab.run(lab.broker.delete_topic(f"{PARTITIONED}-partition-1", force=False))
    assert numbers(lab, PARTITIONED) == [0]
    lab.run(lab.broker.delete_partitioned_topic(PARTITIONED, force=False))
    assert numbers(lab, PARTITIONED) == []


def test_deleting_a_namespace_deletes_its_unused_schemas(lab: BrokerLab) -> None:
    lab.run(lab.broker.namespaces.create("acme/ns"))
    put(lab, "a", topic="persistent://acme/ns/later")
    put(lab, "a", topic="persistent://acme/ns2/later")
    assert lab.run(lab.broker.namespaces.delete("acme/ns"))
    assert numbers(lab, "persistent://acme/ns/later") == []
    assert numbers(lab, "persistent://acme/ns2/later") == [0]


def test_a_schema_is_not_registered_for_a_topic_deleted_meanwhile(lab: BrokerLab) -> None:
    """Its client's schema is not left behind, whichever write is first."""
    lab.run(lab.broker.topic(TOPIC))
    lab.run(lab.broker.delete_topic(TOPIC, force=False))
    with pytest.raises(Moved):
        for_producer(lab)
    assert numbers(lab) == []


def test_the_compatibility_strategy_of_a_level(lab: BrokerLab) -> None:
    policies = lab.broker.policies
    put(lab, *"ab")

    def accepts(*names: str) -> bool:
        try:
            lab.run(lab.broker.schemas.check(TOPIC, avro(*names, default="no int")))
        except IncompatibleSchema:
            return False
        return True

    # The default of a new field is none of its type: only readers of new messages need it.
    assert not accepts(*"abc")
    forward = Policies(schema_compatibility_strategy="SCHEMA_COMPATIBILITY_STRATEGY_FORWARD")
    lab.run(policies.update_namespace("public/default", forward, ()))
    assert accepts(*"abc")
    full = Policies(schema_compatibility_strategy="SCHEMA_COMPATIBILITY_STRATEGY_FULL")
    lab.run(policies.update_topic(lab.run(lab.broker.topic(TOPIC)), full, ()))
    assert not accepts(*"abc")


def test_clients_may_be_forbidden_to_add_versions(lab: BrokerLab) -> None:
    lab.run(lab.broker.topic(TOPIC))
    no = Policies(allow_auto_update_schema=False)
    lab.run(lab.broker.policies.update_namespace("public/default", no, ()))
    with pytest.raises(IncompatibleSchema, match="allow_auto_update_schema"):
        for_producer(lab)
    lab.run(lab.broker.schemas.put(TOPIC, TEXT))
    assert for_producer(lab) == 0


def test_concurrent_registrations(lab: BrokerLab) -> None:
    """Each definition is decided on after the one before; equal ones are one version."""
    lab.run(lab.broker.topic(TOPIC))
    schemas = lab.broker.schemas

    async def race() -> list[Any]:
        wanted = [avro("a"), avro("b"), avro("a"), TEXT]
        calls = (schemas.for_producer(TOPIC, each) for each in wanted)
        return await asyncio.gather(*calls, return_exceptions=True)

    found = lab.run(race())
    assert sorted(found[:3]) == [0, 0, 1]
    assert isinstance(found[3], IncompatibleSchema)


def test_the_number_of_versions_is_bounded(lab: BrokerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = lab.broker.schemas
    with pytest.raises(LimitExceeded, match="definition and properties"):
        lab.run(schemas.put(TOPIC, avro("x" * definitions.DEFINITION_BYTES_MAX)))
    with pytest.raises(InvalidSchema):
        lab.run(schemas.put(TOPIC, SchemaDefinition()))
    monkeypatch.setattr(registry, "VERSIONS_MAX", 2)
    put(lab, "a")
    put(lab, "b")
    with pytest.raises(LimitExceeded, match="Versions of the schema"):
        put(lab, "c")
    assert put(lab, "b") == 1
    monkeypatch.setattr(registry, "VERSIONS_MAX", 100)
    monkeypatch.setattr(registry, "TOPIC_BYTES_MAX", 250)
    with pytest.raises(LimitExceeded, match="Bytes of all versions"):
        put(lab, "c")
    lab.run(schemas.delete(TOPIC, force=False))
    assert put(lab, "c") == 3


def test_a_definition_is_found_by_its_content(lab: BrokerLab) -> None:
    put(lab, "a")
    put(lab, "b")
    spaced = avro("b")
    spaced.data = json.dumps(json.loads(spaced.data), indent=2).encode()
    assert lab.run(lab.broker.schemas.find(TOPIC, spaced)) == 1
    assert lab.run(lab.broker.schemas.find(TOPIC, TEXT)) == -1


def test_a_schema_added_just_before_a_deletion_is_deleted(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deletion of a topic sees a schema that was added just before its write."""
    lab.run(lab.broker.topic(TOPIC))
    schemas, metadata = lab.broker.schemas, lab.broker.metadata
    assert isinstance(schemas, Schemas)
    change, seen = metadata.change, list[Any]()

    def late(edit: Any) -> None:
        if not seen:
            seen.append(edit)
            record = SchemaRecord(topic=TOPIC, version=0, definition=TEXT)

            def add(batch: MetadataBatch) -> None:
                batch.put(record)

            change(add)
        change(edit)

    monkeypatch.setattr(metadata, "change", late)
    lab.run(lab.broker.delete_topic(TOPIC, force=False))
    assert seen
    assert numbers(lab) == []


def test_a_reset_during_a_comparison(lab: BrokerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version is added only after those that it was compared with."""
    put(lab, "a")
    metadata = lab.broker.metadata
    change = metadata.change

    def late(edit: Any) -> None:
        change(lambda batch: batch.delete_everything())
        change(edit)

    monkeypatch.setattr(metadata, "change", late)
    with pytest.raises(Moved):
        put(lab, "b")
    assert numbers(lab) == []


def test_comparisons_do_not_block_disk_threads(lab: BrokerLab) -> None:
    """Nor do they wait for one."""
    put(lab, "a")
    schemas, held = lab.broker.schemas, HeldExecutor()
    lab.broker.executor = held
    held.holds = True

    async def use() -> list[bool]:
        works = [
            schemas.find(TOPIC, avro("a")),
            schemas.check(TOPIC, avro("b")),
            schemas.for_consumer(TOPIC, avro("a"), is_idle=lambda: False),
            schemas.put(TOPIC, avro(*"ab")),
        ]
        tasks = [asyncio.ensure_future(each) for each in works]
        for _ in range(20):
            await asyncio.sleep(0)
        done = [each.done() for each in tasks]
        held.free()
        await asyncio.gather(*tasks)
        return done

    assert all(lab.run(use()))
    assert held.waiting == 0


def test_reading_one_version_reads_only_that_version(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("a", "b", "c"):
        put(lab, each)
    assert lab.run(lab.broker.schemas.delete(TOPIC, force=False)) == 3
    put(lab, "a", topic=f"{TOPIC}2")
    decoded, schemas = list[bytes](), lab.broker.schemas

    def decode(kind: type[M], at: bytes, value: bytes) -> M:
        decoded.append(at)
        return records.decode(kind, at, value)

    monkeypatch.setattr("ledgerfold.storage.metadata.decode", decode)
    monkeypatch.setattr(MemoryKeyValue, "scan", None)
    with pytest.raises(SchemaNotFound):
        schemas.version(TOPIC)
    schemas.without(TOPIC)
    assert schemas.version(f"{TOPIC}2").version == 0
    assert schemas.version(f"{TOPIC}2", 0).version == 0
    for number in (2**64 - 1, -1, 1):
        with pytest.raises(SchemaNotFound):
            schemas.version(f"{TOPIC}2", number)
    # For each of the calls that found one.
    assert len([each for each in decoded if each.startswith(b"schema/")]) == 4


def test_versions_are_parsed_once(lab: BrokerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """With any number of producers and definitions."""
    lab.run(lab.broker.topic(TOPIC))
    for each in ("one", "two", "three"):
        put(lab, each)
    parsed, parse = list[Any](), definitions.parse_json

    def count(type_: str, text: str | bytes) -> Any:
        parsed.append(text)
        return parse(type_, text)

    def find(spaces: int) -> int:
        parsed.clear()
        spaced = avro("three")
        spaced.data += b" " * spaces
        assert lab.run(lab.broker.schemas.find(TOPIC, spaced)) == 2
        return len(parsed)

    monkeypatch.setattr(avro_definitions, "parse_json", count)
    find(1)
    # To check it, and to compare it.
    assert find(2) == 2


def test_schemas_added_during_a_namespace_deletion(lab: BrokerLab) -> None:
    """A schema is deleted, too; a topic keeps the namespace with its policies."""
    namespaces, metadata, held = lab.broker.namespaces, lab.broker.metadata, HeldExecutor()
    lab.run(lab.broker.namespaces.create("acme/ns"))
    topic = "persistent://acme/ns/t"
    lab.broker.executor = held

    async def delete(record: TopicRecord | SchemaRecord) -> bool:
        held.holds = True
        task = asyncio.ensure_future(namespaces.delete("acme/ns"))
        await held.has_work()
        with metadata.batch() as batch:
            batch.put(record)
        held.free()
        return await task

    assert not lab.run(delete(TopicRecord(name=topic)))
    assert metadata.namespace("acme/ns") is not None
    with metadata.batch() as batch:
        batch.delete_topic(topic)
    assert lab.run(delete(SchemaRecord(topic=topic, definition=TEXT)))
    assert metadata.namespace("acme/ns") is None
    assert numbers(lab, topic) == []
