"""Partitioned topics on a real broker, as an administrator sees them; no compactor.

Answers were compared with Pulsar 4.0.7's: where it answers 404, 409 or 412, a typed error is raised
here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from ledgerfold.broker.client import Client, InitialPosition, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import (
    InvalidRequest,
    LedgerfoldError,
    NotAllowed,
    NothingExpired,
    SubscriptionExists,
    SubscriptionNotFound,
    TopicBusy,
    TopicExists,
    TopicIsPartitioned,
    TopicNotFound,
)
from ledgerfold.v1.records_pb2 import Emulation, Policies
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import ledgerfold
from tests.support.waiting import WAIT_MS

Calls = list[Callable[[], object]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One for all tests: each has a separate namespace."""
    data_dir = tmp_path_factory.mktemp("partitions") / "data"
    with BrokerProcess(data_dir, arguments=["--compactor", "off", "--test-clock"]) as broker:
        yield broker


@pytest.fixture
def namespace(topic: str) -> str:
    return f"public/{topic}"


@pytest.fixture
def t(namespace: str) -> str:
    """A topic's full name; `p(t, 0)` is that of its first partition."""
    return f"persistent://{namespace}/t"


def p(topic: str, index: int) -> str:
    return f"{topic}-partition-{index}"


def test_a_partitioned_topic_survives_a_restart(
    broker: BrokerProcess, admin: Admin, t: str, namespace: str
) -> None:
    """With its partitions and its policies; permanently removed when it is deleted."""
    admin.create_partitioned_topic(t, 2)
    admin.update_policies(topic=t, values=Policies(compaction_threshold_bytes=5))
    admin.update_partitioned_topic(t, 3)
    broker.kill()
    broker.start()
    with Admin(broker.url) as again:
        assert again.partitioned_topic_metadata(t) == {"partitions": 3, "deleted": False}
        assert again.list_partitioned_topics(namespace) == [t]
        assert again.list_topics(namespace) == [p(t, 0), p(t, 1), p(t, 2)]
        assert again.policies(topic=t).compaction_threshold_bytes == 5
        again.delete_partitioned_topic(t)
        assert again.list_topics(namespace) == again.list_partitioned_topics(namespace) == []
        broker.restart()
    with Admin(broker.url) as again, pytest.raises(TopicNotFound):
        again.partitioned_topic_metadata(t)


def test_a_name_is_a_topic_or_a_partitioned_topic(admin: Admin, t: str) -> None:
    plain = f"{t}-plain"
    admin.create_topic(plain)
    admin.create_partitioned_topic(t, 2)
    assert admin.partitioned_topic_metadata(plain)["partitions"] == 0
    in_the_way: Calls = [
        lambda: admin.create_partitioned_topic(plain, 2),
        lambda: admin.create_topic(t),
        lambda: admin.create_topic(p(t, 0)),
    ]
    for call in in_the_way:
        with pytest.raises(TopicExists):
            call()
    of_the_other_kind: Calls = [
        lambda: admin.delete_topic(t),
        lambda: admin.delete_partitioned_topic(plain),
        lambda: admin.update_partitioned_topic(plain, 2),
        lambda: admin.partitioned_stats(plain),
    ]
    for call in of_the_other_kind:
        with pytest.raises(NotAllowed):
            call()
    not_there: Calls = [
        lambda: admin.delete_partitioned_topic(f"{t}-nothing"),
        lambda: admin.create_topic(p(t, 2)),
        lambda: admin.create_subscription(p(t, 2), "s"),
        lambda: admin.trigger_compaction(p(t, 2)),
        lambda: admin.compaction_status(p(t, 2)),
    ]
    for call in not_there:
        with pytest.raises(TopicNotFound):
            call()


def test_requests_for_stored_data_of_a_partitioned_topic_are_not_found(
    admin: Admin, t: str
) -> None:
    """HTTP 404 in Pulsar: no data are stored under the name itself."""
    admin.create_partitioned_topic(t, 2)
    for refused in (admin.stats, admin.internal_stats, admin.last_message_id):
        with pytest.raises(TopicIsPartitioned, match="2 partitions"):
            refused(t)
    for unknown in (admin.stats, admin.compaction_status, admin.trigger_compaction, admin.unload):
        with pytest.raises(TopicNotFound, match="partition-2"):
            unknown(p(t, 2))


def test_calls_on_a_partitioned_topic_apply_to_all_partitions(admin: Admin, t: str) -> None:
    """Subscriptions, unloading, trimming. A missing subscription of a partition is added."""
    admin.create_partitioned_topic(t, 2)
    admin.create_subscription(p(t, 1), "s")
    admin.create_subscription(t, "s")
    assert admin.list_subscriptions(p(t, 0)) == admin.list_subscriptions(t) == ["s"]
    with pytest.raises(SubscriptionExists):
        admin.create_subscription(t, "s")
    admin.create_subscription(p(t, 0), "only")
    assert admin.list_subscriptions(t) == ["only", "s"]
    admin.unload(t)
    assert admin.trim(t) == 0
    admin.unsubscribe(t, "s")
    with pytest.raises(SubscriptionNotFound):
        admin.unsubscribe(t, "only")
    assert admin.list_subscriptions(t) == []


def test_cursors_are_moved_on_every_partition(broker: BrokerProcess, admin: Admin, t: str) -> None:
    """By time; calls that name a message, or a number of messages, need one partition (HTTP 405 in
    Pulsar).
    """
    admin.create_partitioned_topic(t, 3)
    admin.create_subscription(t, "s", MessageId.earliest)
    with Client(broker.url) as client:
        for index in (0, 0, 1):
            at = client.create_producer(p(t, index)).send(b"x")

    def backlog() -> int:
        return int(admin.partitioned_stats(t)["subscriptions"]["s"]["msgBacklog"])

    hour_ms = 3_600_000
    admin.move_clock(advance_ms=hour_ms)
    # The third partition has nothing to expire; at the end none has.
    assert (admin.expire_messages(t, "s", 1000), backlog()) == (3, 0)
    with pytest.raises(NothingExpired):
        admin.expire_messages(t, "s", 1000)
    admin.reset_cursor(t, "s", ago_ms=2 * hour_ms)
    assert backlog() == 3
    assert (admin.clear_backlog(t, "s"), backlog()) == (3, 0)
    whole: Calls = [
        lambda: admin.skip_messages(t, "s", 1),
        lambda: admin.reset_cursor(t, "s", at),
        lambda: admin.terminate(t),
        lambda: admin.message_id_by_timestamp(t, 0),
    ]
    for call in whole:
        with pytest.raises(NotAllowed, match="partition"):
            call()
    admin.reset_cursor(t, "s", MessageId.earliest)
    admin.truncate(t)
    assert backlog() == 0
    assert admin.terminate(p(t, 0)).partition() == 0


def test_a_deleted_partition_can_be_created_again(admin: Admin, t: str) -> None:
    admin.create_partitioned_topic(t, 2)
    admin.delete_topic(p(t, 1))
    with pytest.raises(TopicNotFound, match="partition-1"):
        admin.unload(t)
    admin.update_partitioned_topic(t, 2)
    admin.unload(t)


def test_a_consumer_gets_everything_of_a_new_partition(
    broker: BrokerProcess, admin: Admin, t: str
) -> None:
    """The subscription exists, at the beginning, before a client can publish to the partition."""
    admin.create_partitioned_topic(t, 1)
    admin.create_subscription(t, "s", MessageId.latest)
    admin.update_partitioned_topic(t, 2)
    with Client(broker.url) as client:
        client.create_producer(p(t, 1)).send(b"early")
        consumer = client.subscribe(p(t, 1), "s", initial_position=InitialPosition.Latest)
        assert consumer.receive(WAIT_MS).data() == b"early"


def test_partitions_have_the_policies_of_the_partitioned_topic(admin: Admin, t: str) -> None:
    """A threshold gives every loaded partition its compaction cursor at once (THR-13)."""
    admin.create_partitioned_topic(t, 2)
    admin.stats(p(t, 0))
    admin.update_policies(topic=t, values=Policies(compaction_threshold_bytes=100))
    for name in (p(t, 0), p(t, 1)):
        assert admin.list_subscriptions(name) == ["__compaction"]
        with pytest.raises(InvalidRequest, match=t):
            admin.policies(topic=name)
        with pytest.raises(InvalidRequest, match=t):
            admin.update_policies(topic=name, remove=["retention_ms"])
    admin.update_policies(topic=t, remove=["compaction_threshold_bytes"])
    assert not admin.policies(topic=t).HasField("compaction_threshold_bytes")


@pytest.mark.parametrize("is_known", [True, False])
def test_the_status_of_a_partitioned_topic_depends_on_the_profile(
    admin: Admin, t: str, is_known: bool
) -> None:
    """docs/PROFILES.md, rule 10.5: of all partitions together, or not found, as in Pulsar 4."""
    admin.create_partitioned_topic(t, 2)
    values = Policies(emulation=Emulation(partitioned_status=is_known))
    admin.update_policies(topic=t, values=values)
    if is_known:
        assert len(admin.compaction_status(t).partitions) == 2
    else:
        with pytest.raises(TopicIsPartitioned):
            admin.compaction_status(t)
    assert admin.cancel_compaction(t) == 0
    assert admin.runs(t) == []


def test_deleting_a_partitioned_topic_in_use_needs_force(
    broker: BrokerProcess, admin: Admin, t: str, namespace: str
) -> None:
    """Nothing of it is deleted before."""
    admin.create_partitioned_topic(t, 2)
    with Client(broker.url) as client:
        client.create_producer(p(t, 1))
        with pytest.raises(TopicBusy, match="partition-1"):
            admin.delete_partitioned_topic(t)
        assert admin.list_topics(namespace) == [p(t, 0), p(t, 1)]
        admin.delete_partitioned_topic(t, force=True)
    assert admin.list_partitioned_topics(namespace) == []


def test_partitioned_topics_on_the_command_line(
    broker: BrokerProcess, t: str, namespace: str
) -> None:
    """pulsar-admin's verbs, and the exit codes of errors."""

    def run(*arguments: str) -> tuple[int, str]:
        ran = ledgerfold("--url", broker.url, "topics", *arguments)
        return ran.code, ran.out.strip()

    assert run("create-partitioned-topic", t, "-p", "2") == (0, "")
    assert run("create-partitioned-topic", t, "-p", "2")[0] == 5
    assert run("create-partitioned-topic", t + "u", "-p", "0")[0] == 2
    assert run("update-partitioned-topic", t, "-p", "3") == (0, "")
    code, text = run("get-partitioned-topic-metadata", t)
    assert (code, json.loads(text)) == (0, {"partitions": 3, "deleted": False})
    assert run("list-partitioned-topics", namespace) == (0, t)
    assert run("list", namespace) == (0, "\n".join(p(t, index) for index in range(3)))
    code, text = run("partitioned-stats", t, "--per-partition")
    assert list(json.loads(text)["partitions"]) == [p(t, index) for index in range(3)]
    assert run("stats", t)[0] == 3
    assert run("compaction-status", t) == (0, "Compaction has not been run for this topic.")
    assert run("delete-partitioned-topic", t) == (0, "")
    assert run("get-partitioned-topic-metadata", t)[0] == 3


def test_errors_suggest_what_to_do(admin: Admin, t: str) -> None:
    admin.create_partitioned_topic(t, 2)
    with pytest.raises(LedgerfoldError, match="use `topics delete-partitioned-topic`"):
        admin.delete_topic(t)
    with pytest.raises(LedgerfoldError, match=r"Name a partition, .*-partition-0"):
        admin.stats(t)
