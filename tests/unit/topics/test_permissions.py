"""Grants of roles: stored, replaced, revoked, deleted with what they are of."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from ledgerfold.broker.topics.permissions import GRANTS_MAX, Permissions
from ledgerfold.storage.errors import InvalidRequest, LimitExceeded, NamespaceNotFound
from ledgerfold.storage.records import GRANTS, decode
from ledgerfold.v1.records_pb2 import Action, Policies
from tests.model.broker_lab import BrokerLab

NAMESPACE, TOPIC = "public/default", "persistent://public/default/orders"
PRODUCE, CONSUME = Action.ACTION_PRODUCE, Action.ACTION_CONSUME


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def grant(lab: BrokerLab, role: str, *actions: int, topic: str = "") -> None:
    lab.run(lab.broker.namespaces.permissions.grant(NAMESPACE, topic, role, actions))


def granted(lab: BrokerLab, topic: str = "") -> dict[str, list[int]]:
    permissions = lab.broker.namespaces.permissions
    found = permissions.of_topic(topic) if topic else permissions.of_namespace(NAMESPACE)
    return {each.role: list(each.actions) for each in found}


def told_by(permissions: Permissions) -> list[str]:
    """Returns the list of the namespaces of which grants are removed from now on."""
    told = list[str]()

    async def tell(namespace: str) -> None:
        told.append(namespace)

    permissions.on_removed.add(tell)
    return told


def test_grants_survive_a_restart_and_need_a_feature(lab: BrokerLab) -> None:
    store = lab.broker.metadata.store()
    assert store is None or GRANTS not in store.features
    grant(lab, "a", CONSUME, PRODUCE, PRODUCE)
    grant(lab, "b", CONSUME, topic=TOPIC)
    lab.restart()
    assert granted(lab) == {"a": [PRODUCE, CONSUME]}
    assert granted(lab, TOPIC) == {"a": [PRODUCE, CONSUME], "b": [CONSUME]}
    assert granted(lab, f"{TOPIC}-partition-7") == granted(lab, TOPIC)
    assert granted(lab, f"{TOPIC}s") == {"a": [PRODUCE, CONSUME]}
    store = lab.broker.metadata.store()
    assert store is not None
    assert GRANTS in store.features


def test_a_grant_replaces_and_a_revocation_removes(lab: BrokerLab) -> None:
    grant(lab, "a", CONSUME)
    grant(lab, "a", PRODUCE)
    assert granted(lab) == {"a": [PRODUCE]}
    permissions = lab.broker.namespaces.permissions
    told = told_by(permissions)
    lab.run(permissions.revoke(NAMESPACE, "", "a"))
    lab.run(permissions.revoke(NAMESPACE, "", "nobody"))
    assert granted(lab) == {}
    assert told == [NAMESPACE, NAMESPACE]


def test_a_grant_of_a_partition_applies_to_that_partition_only(lab: BrokerLab) -> None:
    """Only grants of whole topics had been tested: one of a partition had been stored as its
    topic's, even if that had no partitions.
    """
    permissions = lab.broker.namespaces.permissions
    lab.run(lab.broker.create_partitioned_topic(TOPIC, 2))

    def may(topic: str) -> set[int]:
        return {*permissions.actions(NAMESPACE, topic, "a")}

    first, second, plain = f"{TOPIC}-partition-0", f"{TOPIC}-partition-1", f"{TOPIC}-plain"
    grant(lab, "a", CONSUME, topic=first)
    grant(lab, "a", PRODUCE, topic=f"{plain}-partition-5")
    assert (may(first), may(second), may(TOPIC), may(plain)) == ({CONSUME}, set(), set(), set())
    assert granted(lab, first) == {"a": [CONSUME]}
    assert granted(lab, second) == granted(lab, TOPIC) == granted(lab, plain) == {}
    # A revocation of another partition changes nothing; that of the topic includes partitions.
    lab.run(permissions.revoke(NAMESPACE, second, "a"))
    assert may(first) == {CONSUME}
    lab.run(permissions.revoke(NAMESPACE, TOPIC, "a"))
    assert may(first) == set()
    # A grant of the topic adds to that of the partition.
    grant(lab, "a", CONSUME, topic=first)
    grant(lab, "a", PRODUCE, topic=TOPIC)
    assert (may(first), may(second)) == ({PRODUCE, CONSUME}, {PRODUCE})


def test_a_deleted_partition_takes_its_own_grants_with_it(lab: BrokerLab) -> None:
    lab.run(lab.broker.create_partitioned_topic(TOPIC, 2))
    for topic in (TOPIC, f"{TOPIC}-partition-0", f"{TOPIC}-partition-1"):
        grant(lab, "a", CONSUME, topic=topic)
    lab.run(lab.broker.delete_topic(f"{TOPIC}-partition-1", True))
    record = lab.broker.metadata.namespace(NAMESPACE)
    assert record is not None
    assert sorted(each.topic for each in record.grants) == [TOPIC, f"{TOPIC}-partition-0"]
    lab.run(lab.broker.delete_partitioned_topic(TOPIC, True))
    record = lab.broker.metadata.namespace(NAMESPACE)
    assert record is None or not record.grants


def test_grants_of_partitions_beyond_the_number_are_deleted_with_the_topic(lab: BrokerLab) -> None:
    """Only grants of partitions that exist had been tested: others survived, and applied to a
    successor with more partitions.
    """
    beyond, other = f"{TOPIC}-partition-7", f"{TOPIC}s-partition-7"
    lab.run(lab.broker.create_partitioned_topic(TOPIC, 2))
    grant(lab, "a", CONSUME, topic=beyond)
    grant(lab, "a", CONSUME, topic=other)
    lab.run(lab.broker.delete_partitioned_topic(TOPIC, True))
    lab.run(lab.broker.create_partitioned_topic(TOPIC, 9))
    assert granted(lab, beyond) == {}
    assert granted(lab, other) == {"a": [CONSUME]}


def test_open_streams_are_checked_only_after_a_removal(lab: BrokerLab) -> None:
    """A check looks at everything that is open: adding a permission must not cost that."""
    namespaces = lab.broker.namespaces
    told = told_by(namespaces.permissions)
    grant(lab, "a", CONSUME)
    grant(lab, "a", CONSUME, PRODUCE)
    grant(lab, "a", PRODUCE, topic=TOPIC)
    assert told == []
    grant(lab, "a", PRODUCE)
    assert told == [NAMESPACE]
    lab.run(namespaces.create("public/short"))
    lab.run(namespaces.permissions.grant("public/short", "", "a", [CONSUME]))
    assert lab.run(namespaces.delete("public/short"))
    assert told == [NAMESPACE, "public/short"]


def test_grants_are_decoded_once(lab: BrokerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    """A revocation checks each of thousands of streams."""
    decoded = list[bytes]()

    def counted(kind: Any, at: bytes, value: bytes) -> Any:
        decoded.append(at)
        return decode(kind, at, value)

    monkeypatch.setattr("ledgerfold.broker.topics.permissions.decode", counted)
    permissions = lab.broker.namespaces.permissions

    def may(role: str, topic: str = "") -> set[int]:
        return {*permissions.actions(NAMESPACE, topic, role)}

    assert may("a") == set()
    grant(lab, "a", CONSUME)
    grant(lab, "a", PRODUCE, topic=TOPIC)
    for _ in range(3):
        assert may("a") == may("a", f"{TOPIC}s") == {CONSUME}
        assert may("a", f"{TOPIC}-partition-2") == {PRODUCE, CONSUME}
        assert may("b") == set()
    assert len(decoded) == 1
    lab.run(permissions.revoke(NAMESPACE, "", "a"))
    assert may("a", TOPIC) == {PRODUCE}
    # Whoever writes the record, what is decoded is what is stored.
    lab.broker.metadata.change(lambda batch: batch.delete_namespace(NAMESPACE))
    assert may("a", TOPIC) == set()


def test_policies_and_grants_of_a_namespace_are_independent(lab: BrokerLab) -> None:
    broker = lab.broker
    grant(lab, "a", CONSUME)
    lab.run(broker.policies.update_namespace(NAMESPACE, Policies(retention_ms=7), ()))
    assert granted(lab) == {"a": [CONSUME]}
    grant(lab, "b", PRODUCE)
    assert broker.policies.of_namespace(NAMESPACE, applied=False).retention_ms == 7


def test_a_deleted_topic_takes_its_grants_with_it(lab: BrokerLab) -> None:
    broker = lab.broker
    lab.run(broker.topic(TOPIC))
    lab.run(broker.create_partitioned_topic(f"{TOPIC}-parted", 2))
    for topic in (TOPIC, f"{TOPIC}-parted", f"{TOPIC}-other", ""):
        grant(lab, "a", CONSUME, topic=topic)
    lab.run(broker.delete_topic(f"{TOPIC}-parted-partition-1", True))
    assert [each.topic for each in broker.namespaces.permissions.of_topic(f"{TOPIC}-parted")]
    lab.run(broker.delete_topic(TOPIC, True))
    lab.run(broker.delete_partitioned_topic(f"{TOPIC}-parted", True))
    record = broker.metadata.namespace(NAMESPACE)
    assert record is not None
    assert sorted(each.topic for each in record.grants) == ["", f"{TOPIC}-other"]


def test_a_deleted_namespace_takes_its_grants_with_it(lab: BrokerLab) -> None:
    namespaces = lab.broker.namespaces
    lab.run(namespaces.put_tenant("acme", ()))
    lab.run(namespaces.create("acme/shop"))
    lab.run(namespaces.permissions.grant("acme/shop", "", "a", [CONSUME]))
    lab.run(namespaces.delete("acme/shop"))
    lab.run(namespaces.create("acme/shop"))
    assert not namespaces.permissions.of_namespace("acme/shop")


@pytest.mark.parametrize("role", ["", "..", "two\nlines", "x" * 1025])
def test_invalid_roles_are_refused(lab: BrokerLab, role: str) -> None:
    with pytest.raises(InvalidRequest):
        grant(lab, role, CONSUME)


def test_invalid_actions_are_refused(lab: BrokerLab) -> None:
    for actions in ((), (Action.ACTION_UNSPECIFIED,), (CONSUME, 7)):
        with pytest.raises(InvalidRequest):
            grant(lab, "a", *actions)


def test_the_number_of_grants_is_bounded(lab: BrokerLab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ledgerfold.broker.topics.permissions.GRANTS_MAX", 3)
    assert GRANTS_MAX > 3
    for role in "abc":
        grant(lab, role, CONSUME)
    with pytest.raises(LimitExceeded):
        grant(lab, "d", CONSUME)
    # One that exists may change.
    grant(lab, "c", PRODUCE)
    assert granted(lab)["c"] == [PRODUCE]


def test_a_grant_does_not_restore_a_namespace_that_is_being_deleted(lab: BrokerLab) -> None:
    namespaces = lab.broker.namespaces
    assert lab.run(namespaces.create("acme/ns"))

    async def both() -> None:
        deletion = asyncio.create_task(namespaces.delete("acme/ns"))
        granting = asyncio.create_task(namespaces.permissions.grant("acme/ns", "", "a", [CONSUME]))
        assert await deletion
        with pytest.raises(NamespaceNotFound):
            await granting

    lab.run(both())
    assert not namespaces.exists("acme/ns")
