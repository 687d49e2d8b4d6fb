"""Faults on purpose, on a real broker through gRPC: what this package's clients do under each."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledgerfold.broker.client import Client, InitialPosition, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import (
    CompactionFailed,
    Corruption,
    DiskFailure,
    FaultNotFound,
    InvalidRequest,
    LedgerfoldError,
    NotAllowed,
    ProducerBusy,
    SubscriptionBusy,
    Timeout,
)
from ledgerfold.testing import ExistingBroker
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import ledgerfold
from tests.support.compactor_process import CompactorProcess
from tests.support.waiting import WAIT_MS, WAIT_S, wait_until

ALLOWED = ("--allow-faults", "--allow-reset")


@pytest.fixture(scope="module")
def common(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data_dir = tmp_path_factory.mktemp("faults") / "data"
    with BrokerProcess(data_dir, arguments=("--compactor", "off", *ALLOWED)) as broker:
        yield broker


@pytest.fixture
def broker(common: BrokerProcess) -> Iterator[BrokerProcess]:
    """Returns the broker of all tests of this module, without faults of others."""
    yield common
    with Admin(common.url) as admin:
        admin.clear_faults()


def stored(client: Client, topic: str) -> list[bytes]:
    with client.create_reader(topic, MessageId.earliest) as reader:
        return [message.data() for message in reader]


def hits(admin: Admin) -> list[int]:
    return [each.hits for each in admin.list_faults()]


def test_a_broker_refuses_faults_without_its_option(
    broker_process: MakeBroker,
) -> None:
    """Also one that tests may reset and whose clock they move."""
    broker = broker_process("--test-clock", "--allow-reset")
    with Admin(broker.url) as admin:
        calls: list[Callable[[], object]] = [
            lambda: admin.add_fault("disk-full"),
            admin.list_faults,
            lambda: admin.remove_fault(1),
            admin.clear_faults,
        ]
        for call in calls:
            with pytest.raises(NotAllowed, match="--allow-faults"):
                call()
    ran = ledgerfold("--url", broker.url, "faults", "list")
    assert (ran.code, ran.out) == (1, "")
    assert "Start it with --allow-faults" in ran.err


def test_failed_publishes_are_raised_and_the_producer_continues(
    client: Client, admin: Admin, topic: str
) -> None:
    admin.add_fault("fail", "publish", error="ProducerBusy", topic=topic, producer="p", next=3)
    producer = client.create_producer(topic, producer_name="p")
    for _ in range(3):
        with pytest.raises(ProducerBusy, match=r"fault \d+ refuses it"):
            producer.send(b"refused")
    producer.send(b"stored")
    client.create_producer(topic, producer_name="q").send(b"of another")
    assert stored(client, topic) == [b"stored", b"of another"]
    assert hits(admin) == [3]


def test_lost_receipts_and_disconnections_lead_to_no_duplicates(
    client: Client, admin: Admin, topic: str
) -> None:
    """Messages in flight are sent again, in their order, and each is stored once."""
    admin.add_fault("lose-receipt", topic=topic, every=50, next=4)
    admin.add_fault("lose-receipt", topic=topic, every=70, next=2, keeps_connection=True)
    admin.add_fault("disconnect", "publish", topic=topic, every=90, next=3)
    producer = client.create_producer(topic, batching_enabled=False)
    values = [b"%d" % number for number in range(400)]
    answers = list[object]()
    for value in values:
        producer.send_async(value, lambda result, _: answers.append(result))
    producer.flush()
    assert len(answers) == 400
    assert stored(client, topic) == values
    assert hits(admin) == [4, 2, 3]


def test_batches_that_are_larger_than_a_period_arrive(
    client: Client, admin: Admin, topic: str
) -> None:
    admin.add_fault("disconnect", "publish", topic=topic, every=10)
    admin.add_fault("lose-receipt", topic=topic, every=10)
    values = [b"%d" % number for number in range(300)]
    producer = client.create_producer(topic, batching_max_messages=50)
    for value in values:
        producer.send_async(value, None)
    producer.flush()
    assert stored(client, topic) == values
    assert min(hits(admin)) > 0


def test_a_missing_receipt_times_out(client: Client, admin: Admin, topic: str) -> None:
    admin.add_fault("lose-receipt", topic=topic, next=1, keeps_connection=True)
    producer = client.create_producer(topic, send_timeout_millis=3_000)
    with pytest.raises(Timeout, match="may have been stored"):
        producer.send(b"1")
    producer.send(b"2")
    assert stored(client, topic) == [b"1", b"2"]


def test_consumers_and_readers_reconnect_every_hundredth_message(
    client: Client, admin: Admin, topic: str
) -> None:
    values = [b"%d" % number for number in range(350)]
    producer = client.create_producer(topic, batching_enabled=False)
    for value in values:
        producer.send_async(value, None)
    producer.flush()
    client.subscribe(topic, "s").close()
    admin.add_fault("disconnect", "read", topic=topic, subscription="s", every=100)
    admin.add_fault("disconnect", "read", topic=topic, consumer="r", every=100)
    with client.create_reader(topic, MessageId.earliest, reader_name="r") as reader:
        assert [message.data() for message in reader] == values
    consumer = client.subscribe(topic, "s", consumer_name="c")
    consumer.seek(MessageId.earliest)
    got = list[bytes]()
    while len(got) < len(values):
        message = consumer.receive(timeout_millis=WAIT_MS)
        if message.data() not in got:
            got.append(message.data())
        consumer.acknowledge(message)
    assert got == values
    assert min(hits(admin)) >= 3


def test_answers_are_delayed_until_the_rule_is_removed(
    client: Client, admin: Admin, topic: str
) -> None:
    operations = ("lookup", "create-producer", "publish", "subscribe", "read")
    rules = [
        admin.add_fault("delay", operation, topic=topic, delay_ms=3_600_000)
        for operation in operations
    ]
    done = list[str]()

    def use() -> None:
        producer = client.create_producer(topic)
        done.append("connected")
        producer.send(b"1")
        done.append("sent")
        consumer = client.subscribe(topic, "s", initial_position=InitialPosition.Earliest)
        done.append("subscribed")
        consumer.receive(timeout_millis=WAIT_MS)
        done.append("received")

    thread = threading.Thread(target=use)
    thread.start()
    for operation, rule in zip(operations, rules, strict=True):
        wait_until(lambda: hits(admin)[0] > 0, f"the {operation} waits")
        admin.remove_fault(rule.id)
    thread.join(WAIT_S)
    assert done == ["connected", "sent", "subscribed", "received"]


def test_connections_are_refused(client: Client, admin: Admin, topic: str) -> None:
    admin.add_fault("fail", "create-producer", error="ProducerBusy", topic=topic, next=1)
    admin.add_fault("fail", "subscribe", error="SubscriptionBusy", topic=topic, next=1)
    admin.add_fault("fail", "read", error="Corruption", topic=topic, next=1)
    with pytest.raises(ProducerBusy):
        client.create_producer(topic)
    client.create_producer(topic).send(b"1")
    with pytest.raises(SubscriptionBusy):
        client.subscribe(topic, "s")
    with pytest.raises(Corruption, match=r"fault \d+"):
        stored(client, topic)
    assert stored(client, topic) == [b"1"]


def test_a_simulated_full_disk_ends_when_the_rule_is_removed(broker_process: MakeBroker) -> None:
    """As a real one is (docs/ARCHITECTURE.md): what is there can be read, and deleted."""
    broker = broker_process(*ALLOWED)
    with Client(broker.url, max_backoff_interval_ms=200) as client, Admin(broker.url) as admin:
        client.create_producer("t").send(b"before")
        producer = client.create_producer("t", producer_name="p")
        full = admin.add_fault("disk-full")
        with pytest.raises(DiskFailure, match="No space left"):
            producer.send(b"lost")
        with pytest.raises(DiskFailure):
            client.create_producer("t").send(b"lost")
        with pytest.raises(DiskFailure):
            admin.create_topic("new")
        assert stored(client, "t") == [b"before"]
        admin.remove_fault(full.id)
        client.create_producer("t").send(b"after")
        assert stored(client, "t") == [b"before", b"after"]
        # First, because a producer that connects again creates the topic again.
        client.shutdown()
        admin.add_fault("disk-full")
        admin.delete_topic("t", force=True)
        assert admin.list_topics() == []
        # A reset removes the rules first.
        assert admin.reset() == 0
        assert admin.list_faults() == []
        with Client(broker.url) as another:
            another.create_producer("u").send(b"1")
        assert broker.stop() == 0
        assert ledgerfold("verify", str(broker.data_dir)).code == 0


def test_compactions_fail_in_each_phase_and_the_next_one_succeeds(
    broker_process: MakeBroker,
) -> None:
    broker = broker_process("--allow-faults", compactor="inline")
    with Client(broker.url) as client, ExistingBroker(broker.url) as existing:
        admin = existing.admin
        producer = client.create_producer("t")
        for phase, where in (("one", "phase one"), ("two", "phase two"), ("commit", "the commit")):
            producer.send(phase.encode(), partition_key="k")
            before = admin.internal_stats("t")["compactedLedger"]
            rule = admin.add_fault("fail-compaction", phase=phase, topic="t", next=1)
            with pytest.raises(CompactionFailed, match=f"Compaction failed at {where}"):
                existing.compact_and_wait("t")
            assert admin.remove_fault(rule.id).hits == 1
            assert admin.internal_stats("t")["compactedLedger"] == before
            # On the worker that was started again.
            assert existing.compact_and_wait("t").run.counts.messages_out == 1
        with client.create_reader("t", MessageId.earliest, is_read_compacted=True) as reader:
            assert [message.data() for message in reader] == [b"commit"]


@pytest.mark.parametrize("is_allowed", [False, True])
def test_only_a_worker_that_allows_it_is_killed(
    broker_process: MakeBroker, tmp_path: Path, is_allowed: bool
) -> None:
    """A worker may serve several brokers, of which one allows faults."""
    arguments = ("--engine", "inline", *(("--allow-faults",) if is_allowed else ()))
    with CompactorProcess(tmp_path, arguments=arguments) as worker:
        broker = broker_process("--allow-faults", compactor=worker.address)
        with Client(broker.url) as client, ExistingBroker(broker.url) as existing:
            client.create_producer("t").send(b"1", partition_key="k")
            existing.admin.add_fault("fail-compaction", phase="one", next=1)
            with pytest.raises(CompactionFailed, match=r"at phase one: .*a fault rule"):
                existing.compact_and_wait("t")
            if is_allowed:
                worker.process.wait(WAIT_S)
            else:
                assert existing.compact_and_wait("t").run.counts.messages_out == 1


def test_faults_on_the_command_line(broker_process: MakeBroker) -> None:
    broker = broker_process(*ALLOWED)
    with Client(broker.url, max_backoff_interval_ms=200) as client, Admin(broker.url) as admin:

        def run(*arguments: str, code: int = 0) -> str:
            ran = ledgerfold("--url", broker.url, "faults", *arguments)
            assert ran.code == code, ran.err
            return ran.out if code == 0 else ran.err

        added = json.loads(
            run("add", "fail", "publish", "--error", "ProducerBusy", "--topic", "t", "--next", "2")
        )
        assert added["id"] == 1
        assert added["topic"] == "persistent://public/default/t"
        run("add", "delay", "read", "2s", "--namespace", "public/other", "--consumer", "c")
        run("add", "disconnect", "read", "--every", "100", "--subscription", "s")
        run("add", "fail-compaction", "one", "--probability", "0.25", "--seed", "7")
        (rare,) = (fault for fault in admin.list_faults() if fault.probability)
        assert (rare.probability, rare.seed) == (0.25, 7)
        assert "phase one with probability 0.25" in run("list", "-o", "table")
        admin.remove_fault(rare.id)
        assert "'2' is not a number above 0 and at most 1" in run(
            "add", "disconnect", "read", "--probability", "2", code=2
        )
        run("add", "lose-receipt", "--producer", "p", "--keep-connection")
        run("add", "fail-compaction", "two")
        run("add", "disk-full", "--next", "1")
        assert admin.remove_fault(7).next == 1
        with pytest.raises(ProducerBusy):
            client.create_producer("t").send(b"1")
        listed = json.loads(run("list", "-o", "json"))
        assert [(each["kind"], each["operation"]) for each in listed] == [
            ("fail", "publish"),
            ("delay", "read"),
            ("disconnect", "read"),
            ("lose-receipt", "publish"),
            ("fail-compaction", ""),
        ]
        assert [each["hits"] for each in listed] == [1, 0, 0, 0, 0]
        assert (listed[1]["delay_ms"], listed[2]["every"], listed[4]["phase"]) == (2000, 100, "two")
        table = run("list", "-o", "table").splitlines()
        names = ["id", "kind", "operation", "effect", "next", "every", "hits", "applies_to"]
        assert table[0].split() == names
        assert table[1].split()[1:4] == ["fail", "publish", "ProducerBusy"]
        assert table[1].endswith("  1  topic=persistent://public/default/t")
        assert json.loads(run("remove", "1"))["hits"] == 1
        assert "There is no fault 1" in run("remove", "1", code=3)
        assert "cannot fail with 'Nonsense'" in run(
            "add", "fail", "read", "--error", "Nonsense", code=2
        )
        assert json.loads(run("clear")) == {"removed_faults": 4}
        run("add", "disk-full", "--next", "1000000")
        broker.kill()
        broker.start()
        assert run("list", "-o", "json") == "[]\n"


def test_unknown_fault_names_are_rejected(admin: Admin) -> None:
    with pytest.raises(InvalidRequest, match="'explode' is not one of fail, disconnect"):
        admin.add_fault("explode")
    with pytest.raises(InvalidRequest, match="not one of create-producer, publish"):
        admin.add_fault("fail", "vanish", error="NotAllowed")
    with pytest.raises(InvalidRequest, match="needs a phase"):
        admin.add_fault("fail-compaction", phase="queued")
    with pytest.raises(FaultNotFound):
        admin.remove_fault(2**62)
    admin.create_topic("kafka", kafka={})
    with pytest.raises(NotAllowed, match="only its lookups"):
        admin.add_fault("disconnect", "read", topic="kafka")
    assert admin.list_faults() == []
    with pytest.raises(LedgerfoldError):
        admin.add_fault("disk-full", next=2**70)
