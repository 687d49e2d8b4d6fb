"""Tenants and namespaces, and concurrent creation, on a disk that loses unsynced writes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledgerfold.broker.topics.namespaces import ADMIN_ROLES_MAX
from ledgerfold.storage.errors import (
    InvalidRequest,
    LimitExceeded,
    NamespaceNotFound,
    NotAllowed,
    TopicExists,
)
from ledgerfold.v1.records_pb2 import Policies
from tests.model.broker_lab import TOPIC, BrokerLab


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def test_created_tenants_and_namespaces_survive_a_crash(lab: BrokerLab) -> None:
    lab.run(lab.broker.namespaces.put_tenant("acme", ["root"]))
    assert lab.run(lab.broker.namespaces.create("acme/ns"))
    lab.crash()
    namespaces = lab.broker.namespaces
    assert (namespaces.tenants(), namespaces.names()) == (
        ["acme", "public"],
        ["acme/ns", "public/default"],
    )
    record = namespaces.tenant("acme")
    assert record is not None
    assert list(record.admin_roles) == ["root"]
    assert lab.run(namespaces.delete("acme/ns"))
    assert lab.run(namespaces.delete_tenant("acme"))
    lab.crash()
    assert lab.broker.namespaces.tenants() == ["public"]


def test_a_deleted_namespace_loses_its_policies(lab: BrokerLab) -> None:
    namespaces, policies = lab.broker.namespaces, lab.broker.policies
    assert lab.run(namespaces.create("acme/ns"))
    lab.run(policies.update_namespace("acme/ns", Policies(message_ttl_ms=5), ()))
    assert lab.run(namespaces.delete("acme/ns"))
    assert not namespaces.exists("acme/ns")
    assert lab.run(namespaces.create("acme/ns"))
    assert not policies.of_namespace("acme/ns", applied=False).HasField("message_ttl_ms")


def test_policies_of_a_namespace_that_does_not_exist(lab: BrokerLab) -> None:
    """Refused, as over REST: they would create it. One with a topic exists."""
    namespaces, policies = lab.broker.namespaces, lab.broker.policies
    values = Policies(message_ttl_ms=5)
    for applied in (False, True):
        with pytest.raises(NamespaceNotFound):
            policies.of_namespace("acme/ns", applied=applied)
    with pytest.raises(NamespaceNotFound):
        lab.run(policies.update_namespace("acme/ns", values, ()))
    assert namespaces.names() == ["public/default"]
    lab.run(lab.broker.create_partitioned_topic("persistent://acme/ns/p", 1))
    lab.run(policies.update_namespace("acme/ns", values, ()))
    assert policies.of_namespace("acme/ns", applied=False) == values


def test_policies_do_not_restore_a_namespace_that_is_being_deleted(lab: BrokerLab) -> None:
    namespaces, policies = lab.broker.namespaces, lab.broker.policies
    assert lab.run(namespaces.create("acme/ns"))

    async def both() -> None:
        deletion = asyncio.create_task(namespaces.delete("acme/ns"))
        update = asyncio.create_task(
            policies.update_namespace("acme/ns", Policies(message_ttl_ms=5), ())
        )
        assert await deletion
        with pytest.raises(NamespaceNotFound):
            await update

    lab.run(both())
    assert not namespaces.exists("acme/ns")


def test_tenants_and_namespaces_in_use_are_kept(lab: BrokerLab) -> None:
    namespaces = lab.broker.namespaces
    lab.run(lab.broker.create_partitioned_topic("persistent://acme/ns/p", 1))
    assert not lab.run(namespaces.delete("acme/ns"))
    assert not lab.run(namespaces.delete_tenant("acme"))
    # Its name only begins alike.
    assert not namespaces.exists("acme/n")
    with pytest.raises(NotAllowed):
        lab.run(namespaces.delete("public/default"))


@pytest.mark.parametrize("name", ["", "..", "a b", "x" * 1025])
def test_names_are_checked(lab: BrokerLab, name: str) -> None:
    with pytest.raises(InvalidRequest):
        lab.run(lab.broker.namespaces.put_tenant(name, []))
    with pytest.raises(InvalidRequest):
        lab.run(lab.broker.namespaces.create(f"public/{name}"))


@pytest.mark.parametrize(
    "role", ["", " ", " a", "a\n", "a\0b", "..", "x" * 1025], ids=lambda role: repr(role[:5])
)
def test_admin_roles_are_checked_as_names(lab: BrokerLab, role: str) -> None:
    """No test had given a role that nobody can have; only the roles of grants were checked."""
    with pytest.raises(InvalidRequest):
        lab.run(lab.broker.namespaces.put_tenant("acme", ["root", role]))
    assert lab.broker.namespaces.tenant("acme") is None


def test_admin_roles_are_bounded_and_listed_once(lab: BrokerLab) -> None:
    namespaces = lab.broker.namespaces
    with pytest.raises(LimitExceeded):
        lab.run(namespaces.put_tenant("acme", [f"r{n}" for n in range(ADMIN_ROLES_MAX + 1)]))
    lab.run(namespaces.put_tenant("acme", ["b", "a", "b"]))
    assert list(namespaces.admin_roles("acme")) == ["b", "a"]


def test_a_concurrent_second_creation_is_refused(lab: BrokerLab) -> None:
    async def both() -> list[BaseException | None]:
        creations = (lab.broker.create_topic(TOPIC) for _ in range(2))
        return await asyncio.gather(*creations, return_exceptions=True)

    found = lab.run(both())
    assert found[0] is None
    assert isinstance(found[1], TopicExists)
