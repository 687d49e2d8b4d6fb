"""AdminService over a real gRPC connection, with a broker that has no files and no Spark."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cached_property
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest

from ledgerfold.broker.common.clock import ManualClock
from ledgerfold.broker.common.names import TopicName
from ledgerfold.broker.common.outgoing import Outgoing
from ledgerfold.broker.common.traffic import Peer
from ledgerfold.broker.log.backlog import LedgerSums
from ledgerfold.broker.policies.profiles import PROFILES, in_force
from ledgerfold.broker.rpc.admin import admin_calls
from ledgerfold.broker.rpc.handlers import service_handlers
from ledgerfold.broker.server.grpc_server import ADMIN_SERVICE
from ledgerfold.broker.stats.topic import internal_stats, topic_stats
from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.access import Claim
from ledgerfold.broker.topics.policy_store import PolicyStore
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import (
    CompactionRunning,
    LedgerfoldError,
    NotAllowed,
    RequestError,
    SubscriptionExists,
    TopicNotFound,
)
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.admin_pb2_grpc import AdminServiceStub
from ledgerfold.v1.records_pb2 import (
    CompactedView,
    CompactionStrategy,
    CursorRecord,
    LedgerRecord,
    Policies,
    SegmentRecord,
)
from ledgerfold.version import __version__
from tests.support.compaction_lab import Lab, LabTopic, position
from tests.support.memory_log import MemoryLog


class StatsTopic(LabTopic):
    """A topic with the other parts that stats and subscriptions need."""

    messages_in, bytes_in, entries_in = 12, 600, 5
    messages_out, bytes_out = 24, 1200
    is_loaded = True
    faults = None
    reader_names = frozenset[str]()
    access = SimpleNamespace(waiting=0)

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.clock, self.outgoing = ManualClock(1_000), Outgoing()
        self.subscriptions: dict[str, Subscription] = {}
        connected = SimpleNamespace(peer=Peer("10.0.0.7:99", 1_000), claim=Claim())
        self.producers = {"standalone-0": connected}
        self.readers: set[Any] = set()
        log: Any = self.log
        # Ledger 0 was closed with 4 entries of 100 bytes; ledger 1 holds `entries` of them.
        log.records = lambda: [ledger(0, 4), ledger(1, log.entries)]
        log.sums = lambda: LedgerSums(log.records())
        log.ids = [0, 1]
        log.is_terminated = False
        self.cursors: dict[str, CursorRecord] = {}

    @property
    def compaction_mark_delete(self) -> Position:
        return self.log.views.horizon or EARLIEST

    def new_incarnation(self) -> int:
        return 1

    async def persist_cursor(self, record: CursorRecord) -> None:
        self.cursors[record.subscription] = record

    async def trim(self) -> int:
        return 2

    def keepers(self) -> dict[int, list[str]]:
        return {0: ["cursor s"], 1: ["open"]}


class AdminLab(Lab):
    """A Lab that is as much of a broker as AdminService asks for."""

    started_ms = 17
    outgoing = Outgoing(streams_max=7)
    unloaded: str = ""
    namespaces = SimpleNamespace(exists=lambda name: True, permissions=None)

    @property
    def compaction(self) -> Any:
        return self.scheduler

    @cached_property
    def policies(self) -> PolicyStore:
        return PolicyStore(cast(Any, self))

    def add(self, name: str, **policies: int) -> StatsTopic:
        topic = super().topic(name, **policies)
        made = StatsTopic(self, topic.stored, topic.log, topic.backlog_bytes)
        self.topics[topic.name] = made
        return made

    async def topic(  # type: ignore[override]
        self, name: str, create: bool = True, *, to_write: bool = False
    ) -> Any:
        if name not in self.topics:
            raise TopicNotFound(name)
        return self.topics[name]

    any_topic = pulsar_topic = topic

    def exists(self, name: str) -> bool:
        return name in self.topics

    async def create_topic(
        self, name: str, kafka: object = None, properties: object = None
    ) -> None:
        self.add(name)

    async def delete_topic(self, name: str, force: bool) -> None:
        del self.topics[name]
        with self.metadata.batch() as batch:
            batch.delete_topic(name)

    @property
    def names(self) -> AdminLab:
        return self

    def listed(self, namespace: str) -> list[str]:
        return [n for n in self.topics if namespace in ("", TopicName.parse(n).namespace)]

    @property
    def non_persistent(self) -> Any:
        return SimpleNamespace(listed=lambda namespace: [])

    async def unload_topic(self, name: str) -> None:
        self.unloaded = name


def ledger(ledger_id: int, entries: int) -> LedgerRecord:
    segment = SegmentRecord(
        entries=entries,
        size_bytes=entries * 100,
        first=position(ledger_id, 0),
        last=position(ledger_id, entries - 1),
        sealed=True,
    )
    return LedgerRecord(ledger_id=ledger_id, segments=[segment])


@asynccontextmanager
async def admin(lab: AdminLab) -> AsyncIterator[Any]:
    server = grpc.aio.server()
    broker: Any = lab
    server.add_generic_rpc_handlers((service_handlers(ADMIN_SERVICE, admin_calls(broker)),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub: Any = AdminServiceStub
            yield stub(channel)
    finally:
        await lab.scheduler.stop()
        await server.stop(None)


async def failure_of(call: Any) -> LedgerfoldError:
    with pytest.raises(grpc.RpcError) as caught:
        await call
    return error_from_rpc(caught.value)


def test_topics_are_created_listed_and_deleted() -> None:
    """Short names are expanded; a namespace selects."""

    async def body() -> None:
        lab = AdminLab()
        async with admin(lab) as stub:
            for name in ("orders", "persistent://sales/eu/orders"):
                await stub.CreateTopic(admin_pb2.CreateTopicRequest(topic=name))
            listed = await stub.ListTopics(admin_pb2.ListTopicsRequest(namespace="sales/eu"))
            assert list(listed.topics) == ["persistent://sales/eu/orders"]
            await stub.DeleteTopic(admin_pb2.DeleteTopicRequest(topic="orders", force=True))
            listed = await stub.ListTopics(admin_pb2.ListTopicsRequest())
            assert len(listed.topics) == 1
            bad = stub.ListTopics(admin_pb2.ListTopicsRequest(namespace="sales"))
            assert isinstance(await failure_of(bad), RequestError)

    asyncio.run(body())


def test_broker_info_describes_the_compactor() -> None:
    """Shows its state, and what to do if there is none."""

    async def body() -> None:
        lab = AdminLab()
        compactor: Any = lab.compactor
        compactor.state = admin_pb2.COMPACTOR_STATE_UNAVAILABLE
        compactor.message, compactor.pid = "Install Java 17.", 0
        async with admin(lab) as stub:
            info = await stub.GetBrokerInfo(admin_pb2.GetBrokerInfoRequest())
            assert info.compactor_state == admin_pb2.COMPACTOR_STATE_UNAVAILABLE
            assert info.compactor_message == "Install Java 17."
            assert (info.version, info.durability, info.started_ms) == (__version__, "fsync", 17)
            assert (info.streams, info.streams_max, info.unsent_bytes) == (0, 7, 0)

    asyncio.run(body())


def test_a_compaction_is_triggered_watched_and_listed() -> None:
    """The watch ends with the run."""

    async def body() -> None:
        lab = AdminLab()
        lab.add("t")
        async with admin(lab) as stub:
            trigger = admin_pb2.TriggerCompactionRequest(topic="t")
            assert (await stub.TriggerCompaction(trigger)).run_number == 1
            assert isinstance(await failure_of(stub.TriggerCompaction(trigger)), CompactionRunning)
            watch = stub.WatchCompaction(admin_pb2.WatchCompactionRequest(topic="t"))
            seen = aiter(watch)
            assert (await anext(seen)).status.status == admin_pb2.COMPACTION_STATUS_RUNNING
            await lab.compactor.started()
            lab.compactor.finish()
            statuses = [response.status.status async for response in seen]
            assert statuses[-1] == admin_pb2.COMPACTION_STATUS_SUCCESS
            status = await stub.GetCompactionStatus(admin_pb2.GetCompactionStatusRequest(topic="t"))
            assert status.run.number == 1
            assert (await stub.TriggerCompaction(trigger)).run_number == 0
            listed = await stub.ListRuns(admin_pb2.ListRunsRequest(topic="t", limit=5))
            assert [run.number for run in listed.runs] == [1]

    asyncio.run(body())


def test_a_compaction_is_cancelled() -> None:
    """The answer names the run; without one it is 0."""

    async def body() -> None:
        lab = AdminLab()
        lab.add("t")
        async with admin(lab) as stub:
            cancel = admin_pb2.CancelCompactionRequest(topic="t")
            assert (await stub.CancelCompaction(cancel)).run_number == 0
            await stub.TriggerCompaction(admin_pb2.TriggerCompactionRequest(topic="t"))
            await lab.compactor.started()
            assert (await stub.CancelCompaction(cancel)).run_number == 1
            status = await stub.GetCompactionStatus(admin_pb2.GetCompactionStatusRequest(topic="t"))
            assert status.last_error == "cancelled"

    asyncio.run(body())


@pytest.mark.parametrize(
    ("topic", "error"),
    [("none", TopicNotFound), ("non-persistent://public/default/t", NotAllowed)],
)
def test_adm_06_topics_that_cannot_be_compacted(topic: str, error: type[LedgerfoldError]) -> None:
    """A missing topic, or one that is not stored: for the trigger and for everything about it."""

    async def body() -> None:
        async with admin(AdminLab()) as stub:
            calls = [
                stub.TriggerCompaction(admin_pb2.TriggerCompactionRequest(topic=topic)),
                stub.GetCompactionStatus(admin_pb2.GetCompactionStatusRequest(topic=topic)),
                stub.CancelCompaction(admin_pb2.CancelCompactionRequest(topic=topic)),
                stub.WatchCompaction(admin_pb2.WatchCompactionRequest(topic=topic)).read(),
                stub.ListRuns(admin_pb2.ListRunsRequest(topic=topic)),
            ]
            for call in calls:
                assert type(await failure_of(call)) is error

    asyncio.run(body())


def test_thr_01_and_17_policies_of_a_namespace() -> None:
    """Unset, set, refused, removed."""

    async def body() -> None:
        async with admin(AdminLab()) as stub:
            scope = admin_pb2.PolicyScope(namespace="public/default")
            get = admin_pb2.GetPoliciesRequest(scope=scope)
            policies = (await stub.GetPolicies(get)).policies
            assert not policies.HasField("compaction_threshold_bytes")
            for value in (10485760, -1):
                update = stub.UpdatePolicies(
                    admin_pb2.UpdatePoliciesRequest(
                        scope=scope, set=Policies(compaction_threshold_bytes=value)
                    )
                )
                if value < 0:
                    assert isinstance(await failure_of(update), RequestError)
                else:
                    await update
                policies = (await stub.GetPolicies(get)).policies
                assert policies.compaction_threshold_bytes == 10485760
            await stub.UpdatePolicies(
                admin_pb2.UpdatePoliciesRequest(scope=scope, remove=["compaction_threshold_bytes"])
            )
            policies = (await stub.GetPolicies(get)).policies
            assert not policies.HasField("compaction_threshold_bytes")

    asyncio.run(body())


def test_applied_policies_of_a_topic_are_complete() -> None:
    """The topic's, then its namespace's, then the broker's."""

    async def body() -> None:
        lab = AdminLab()
        lab.add("t")
        async with admin(lab) as stub:
            for scope, policies in (
                (admin_pb2.PolicyScope(topic="t"), Policies(retention_ms=5)),
                (admin_pb2.PolicyScope(namespace="public/default"), Policies(retention_bytes=6)),
            ):
                await stub.UpdatePolicies(
                    admin_pb2.UpdatePoliciesRequest(scope=scope, set=policies)
                )
            scope = admin_pb2.PolicyScope(topic="t")
            own = await stub.GetPolicies(admin_pb2.GetPoliciesRequest(scope=scope))
            assert own.policies == Policies(retention_ms=5)
            applied = await stub.GetPolicies(
                admin_pb2.GetPoliciesRequest(scope=scope, applied=True)
            )
            assert applied.policies == Policies(
                compaction_threshold_bytes=0,
                retention_ms=5,
                retention_bytes=6,
                message_ttl_ms=0,
                compaction_strategy=CompactionStrategy(name="publishing-order"),
                retain_null_key=False,
                schema_compatibility_strategy="SCHEMA_COMPATIBILITY_STRATEGY_BACKWARD",
                schema_validation_enforced=False,
                allow_auto_update_schema=True,
                max_unacked_messages_per_consumer=50_000,
                max_unacked_messages_per_subscription=200_000,
                emulation=in_force(PROFILES["documented"]),
            )
            nobody = stub.GetPolicies(admin_pb2.GetPoliciesRequest())
            assert isinstance(await failure_of(nobody), RequestError)

    asyncio.run(body())


@pytest.mark.parametrize("level", ["topic", "namespace"])
def test_thr_13_a_threshold_creates_the_compaction_cursor(level: str) -> None:
    """Before any run; an explicit 0 on the topic keeps its namespace's threshold away."""

    async def body() -> None:
        lab = AdminLab()
        lab.add("t")
        lab.add("zero", compaction_threshold_bytes=0)
        lab.add("persistent://other/ns/t")
        scope = (
            admin_pb2.PolicyScope(topic="t")
            if level == "topic"
            else admin_pb2.PolicyScope(namespace="public/default")
        )
        async with admin(lab) as stub:
            await stub.UpdatePolicies(
                admin_pb2.UpdatePoliciesRequest(
                    scope=scope, set=Policies(compaction_threshold_bytes=10)
                )
            )
            found = {}
            for name in ("t", "zero", "persistent://other/ns/t"):
                request = admin_pb2.ListSubscriptionsRequest(topic=name)
                found[name] = list((await stub.ListSubscriptions(request)).subscriptions)
            assert found == {"t": ["__compaction"], "zero": [], "persistent://other/ns/t": []}

    asyncio.run(body())


def test_a_subscription_is_created_only_once() -> None:
    """A second one of the name is refused, and so is the compaction's name."""

    async def body() -> None:
        lab = AdminLab()
        topic = lab.add("t")
        async with admin(lab) as stub:

            def create(name: str) -> Any:
                request = admin_pb2.CreateSubscriptionRequest(topic="t", subscription=name)
                request.start.earliest = True
                return stub.CreateSubscription(request)

            await create("s")
            assert list(topic.cursors) == ["s"]
            assert isinstance(await failure_of(create("s")), SubscriptionExists)
            assert isinstance(await failure_of(create("__compaction")), NotAllowed)
            assert isinstance(await failure_of(create("")), RequestError)

    asyncio.run(body())


def test_unload_and_trim() -> None:
    """Both need a topic that exists."""

    async def body() -> None:
        lab = AdminLab()
        lab.add("t")
        async with admin(lab) as stub:
            await stub.UnloadTopic(admin_pb2.UnloadTopicRequest(topic="t"))
            assert lab.unloaded == "persistent://public/default/t"
            trimmed = await stub.TrimTopic(admin_pb2.TrimTopicRequest(topic="t"))
            assert trimmed.ledgers_removed == 2
            missing = stub.UnloadTopic(admin_pb2.UnloadTopicRequest(topic="none"))
            assert isinstance(await failure_of(missing), TopicNotFound)

    asyncio.run(body())


def test_stats_are_returned_as_json() -> None:
    """Pulsar's names, and the compaction block from the run history."""

    async def body() -> None:
        lab = AdminLab()
        topic = lab.add("t")
        async with admin(lab) as stub:
            await stub.TriggerCompaction(admin_pb2.TriggerCompactionRequest(topic="t"))
            await lab.compactor.started()
            lab.compactor.finish(removed_events=3)
            await lab.ended(topic)
            request = admin_pb2.GetTopicStatsRequest(topic="t")
            stats = json.loads((await stub.GetTopicStats(request)).json)
            assert stats["compaction"]["lastCompactionRemovedEventCount"] == 3
            assert stats["compaction"]["lastCompactionFailedTimestamp"] == 0
            assert stats["publishers"] == [
                {
                    "producerName": "standalone-0",
                    "accessMode": "Shared",
                    "address": "/10.0.0.7:99",
                    "connectedSince": "1970-01-01T00:00:01.000Z",
                    "metadata": {},
                }
            ]
            internal = admin_pb2.GetTopicInternalStatsRequest(topic="t")
            document = json.loads((await stub.GetTopicInternalStats(internal)).json)
            assert document["cursors"]["__compaction"]["markDeletePosition"] == "1:4"

    asyncio.run(body())


# Stats themselves


def test_topic_stats() -> None:
    """Counters, sizes, and the subscriptions with the compaction's among them."""
    lab = AdminLab()
    topic: Any = lab.add("t")
    topic.record.compaction_cursor = True
    topic.subscriptions["s"] = Subscription(
        topic.name, "s", cast(Any, MemoryLog()), Cursor(Position(0, 1)), topic.persist_cursor
    )
    stats = topic_stats(topic, lab.scheduler.stats(topic))
    assert stats["msgInCounter"] == 12
    assert stats["averageMsgSize"] == 50
    assert stats["storageSize"] == 900
    assert (stats["msgOutCounter"], stats["bytesOutCounter"]) == (24, 1200)
    assert stats["backlogSize"] == stats["subscriptions"]["__compaction"]["backlogSize"] == 900
    assert stats["subscriptions"]["s"]["backlogSize"] == 700
    assert set(stats["subscriptions"]) == {"s", "__compaction"}
    strategy = stats["compaction"].pop("strategy")
    assert strategy == {"name": "publishing-order", "settings": {}}
    assert set(stats["compaction"].values()) == {0}


def test_internal_stats_before_and_after_a_compaction() -> None:
    """-1 without a compacted ledger; 0 entries if all keys were deleted."""
    lab = AdminLab()
    broker: Any = lab
    topic: Any = lab.add("t")
    stats = internal_stats(broker, topic)
    none = {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False}
    assert stats["compactedLedger"] == none
    assert stats["cursors"] == {}
    assert [each["heldBy"] for each in stats["ledgers"]] == [["cursor s"], ["open"]]
    assert stats["lastConfirmedEntry"] == "1:4"
    assert (stats["numberOfEntries"], stats["currentLedgerSize"]) == (9, 500)
    topic.record.compaction_cursor = True
    assert internal_stats(broker, topic)["cursors"]["__compaction"]["readPosition"] == "0:0"
    topic.record.compacted.CopyFrom(CompactedView(ledger_id=7, horizon=position(1, 4)))
    topic.log.views.horizon = Position(1, 4)
    with lab.metadata.batch() as batch:
        batch.put(LedgerRecord(ledger_id=7))
    stats = internal_stats(broker, topic)
    assert stats["compactedLedger"] == none | {"ledgerId": 7, "entries": 0, "size": 0}
    cursor = stats["cursors"]["__compaction"]
    assert cursor["markDeletePosition"] == "1:4"
    assert cursor["properties"] == {"CompactedTopicLedger": 7}


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (Position(-1, -1), 900),
        (Position(1, -1), 500),
        (Position(1, 2), 200),
        (Position(1, 3), 100),
    ],
)
def test_the_estimated_backlog_counts_newer_ledgers_and_a_part_of_its_own(
    position: Position, expected: int
) -> None:
    """Whole newer ledgers, and a share of the position's ledger."""
    lab = AdminLab()
    topic: Any = lab.add("t")
    assert topic.log.ledgers.sums().estimated_bytes_after(position) == expected


def test_a_policy_change_keeps_other_fields_of_the_record() -> None:
    """One write of the whole current record."""

    async def body() -> None:
        lab = AdminLab()
        topic = lab.add("t")
        topic.record.last_run_number = 9
        async with admin(lab) as stub:
            await stub.UpdatePolicies(
                admin_pb2.UpdatePoliciesRequest(
                    scope=admin_pb2.PolicyScope(topic="t"), set=Policies(retain_null_key=True)
                )
            )
        stored = lab.topic_record(topic)
        assert (stored.last_run_number, stored.policies.retain_null_key) == (9, True)
        assert topic.policies().retain_null_key

    asyncio.run(body())
