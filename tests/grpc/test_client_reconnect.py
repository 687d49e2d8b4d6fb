"""The client against the real broker, which dies, restarts and unloads topics meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count

import pytest

from ledgerfold.broker.client import (
    Client,
    CompressionType,
    ConsumerType,
    InitialPosition,
    MessageId,
    Producer,
    Reader,
    Result,
)
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.messages.configs import BULK_SENDING
from ledgerfold.storage.errors import ProducerBusy, SubscriptionBusy, TopicNotFound
from tests.support.broker_process import BrokerProcess
from tests.support.waiting import WAIT_MS, WAIT_S


@pytest.fixture
def broker_arguments(own_port: list[str]) -> list[str]:
    return own_port


def crash(broker: BrokerProcess) -> None:
    broker.kill()
    broker.start()


def unload(broker: BrokerProcess) -> None:
    with Admin(broker.url) as admin:
        admin.unload("t")


DISTURBANCES: list[Callable[[BrokerProcess], None]] = [
    crash,
    unload,
    BrokerProcess.restart,
]
KINDS = pytest.mark.parametrize("kafka", [None, {"cleanup.policy": "compact"}], ids=["", "kafka"])


def create(broker: BrokerProcess, kafka: dict[str, str] | None) -> None:
    with Admin(broker.url) as admin:
        admin.create_topic("t", kafka=kafka)


def publish(producer: Producer, first: int, end: int) -> None:
    for number in range(first, end):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 100}")


def numbers(reader: Reader) -> list[int]:
    return [int(message.data()) for message in reader]


@KINDS
@pytest.mark.parametrize("batching", [True, False])
def test_publishing_survives_kills_restarts_and_unloads(
    broker: BrokerProcess,
    client: Client,
    batching: bool,
    kafka: dict[str, str] | None,
) -> None:
    """Each message is stored exactly once, in order, and acknowledged, despite all failures."""
    create(broker, kafka)
    results: list[Result] = []
    ids: list[MessageId | None] = []
    goes_on, is_over = threading.Event(), threading.Event()

    def heard(result: Result, message_id: MessageId | None) -> None:
        results.append(result)
        ids.append(message_id)
        goes_on.set()

    producer = client.create_producer(
        "t",
        batching_enabled=batching,
        batching_max_messages=50,
        max_pending_messages=1000,
        block_if_queue_full=True,
        compression_type=CompressionType.LZ4,
    )

    def send() -> None:
        for number in count():
            producer.send_async(b"%d" % number, heard, partition_key=f"k{number % 100}")
            if is_over.is_set():
                return

    sender = threading.Thread(target=send)
    sender.start()
    try:
        for disturb in DISTURBANCES:
            goes_on.clear()
            assert goes_on.wait(WAIT_S)
            disturb(broker)
    finally:
        is_over.set()
        sender.join()
    producer.flush()
    assert set(results) == {Result.Ok}
    with client.create_reader("t", MessageId.earliest) as reader:
        assert numbers(reader) == list(range(len(results)))
    if kafka:
        # A duplicate is answered with its offset, too, if the broker still remembers it among the
        # last of its producer.
        told = [
            message_id == MessageId(-1, 0, offset)
            for offset, message_id in enumerate(ids)
            if message_id != MessageId()
        ]
        assert told
        assert all(told)


@KINDS
def test_reading_survives_kills_restarts_and_unloads(
    broker: BrokerProcess, client: Client, kafka: dict[str, str] | None
) -> None:
    """Nothing is skipped or repeated, and the end is reported correctly."""
    create(broker, kafka)
    producer = client.create_producer(
        "t", batching_enabled=True, batching_max_messages=50, **BULK_SENDING
    )
    publish(producer, 0, 5_000)
    producer.flush()
    reader = client.create_reader("t", MessageId.earliest, receiver_queue_size=100)
    seen = []
    for part, disturb in enumerate(DISTURBANCES):
        seen += [int(reader.read_next(WAIT_MS).data()) for _ in range(1277 + part)]
        disturb(broker)
    seen += numbers(reader)
    assert seen == list(range(5_000))
    for first, disturb in zip((5_000, 5_100, 5_200), DISTURBANCES, strict=True):
        assert not reader.has_message_available()
        disturb(broker)
        publish(producer, first, first + 100)
        producer.flush()
        assert numbers(reader) == list(range(first, first + 100))


@pytest.mark.parametrize("type_", [ConsumerType.Exclusive, ConsumerType.Shared])
def test_consuming_survives_kills_restarts_and_unloads(
    broker: BrokerProcess, client: Client, type_: ConsumerType
) -> None:
    """Every message arrives, some perhaps again; none after it was durably acknowledged."""
    producer = client.create_producer(
        "t", batching_enabled=True, batching_max_messages=10, **BULK_SENDING
    )
    consumer = client.subscribe(
        "t", "s", type_, initial_position=InitialPosition.Earliest, receiver_queue_size=50
    )
    publish(producer, 0, 2_000)
    producer.flush()
    seen: set[int] = set()

    def consume(until: int) -> None:
        while len(seen) < until:
            message = consumer.receive(WAIT_MS)
            seen.add(int(message.data()))
            consumer.acknowledge(message)

    for until, disturb in zip((500, 1_000, 1_500), DISTURBANCES, strict=True):
        consume(until)
        disturb(broker)
    consume(2_000)
    assert seen == set(range(2_000))
    consumer.close()
    with client.subscribe("t", "s", type_) as again:
        producer.send(b"last")
        rest = []
        while (message := again.receive(WAIT_MS)).data() != b"last":
            rest.append(message)
    assert rest == []


@pytest.mark.parametrize("cumulative", [False, True])
def test_acknowledgements_survive_kill_9(
    broker: BrokerProcess, client: Client, cumulative: bool
) -> None:
    """No acknowledged message returns, whether or not the broker had stored the acknowledgement."""
    producer = client.create_producer("t", batching_enabled=False, **BULK_SENDING)
    publish(producer, 0, 3_000)
    producer.flush()
    consumer = client.subscribe(
        "t", "s", initial_position=InitialPosition.Earliest, receiver_queue_size=100
    )
    acknowledged: set[int] = set()
    turn_over = threading.Semaphore(0)

    def acknowledge_all() -> None:
        while len(acknowledged) < 3_000:
            message = consumer.receive(WAIT_MS)
            number = int(message.data())
            assert number not in before_kill, "It came again."
            (consumer.acknowledge_cumulative if cumulative else consumer.acknowledge)(message)
            acknowledged.add(number)
            if len(acknowledged) % 1_000 == 0:
                turn_over.release()

    before_kill: set[int] = set()
    with ThreadPoolExecutor(1) as executor:
        consuming = executor.submit(acknowledge_all)
        for _ in range(2):
            assert turn_over.acquire(timeout=WAIT_S) or consuming.result()
            before_kill = set(acknowledged)
            crash(broker)
        consuming.result()
    assert acknowledged == set(range(3_000))
    consumer.close()
    crash(broker)
    with client.subscribe("t", "s") as again:
        producer.send(b"last")
        assert again.receive(WAIT_MS).data() == b"last"


def test_start_positions_and_seeks(client: Client) -> None:
    """In the middle of batches, at both ends, by time."""
    producer = client.create_producer("t", batching_enabled=True, batching_max_messages=4)
    ids: list[MessageId] = []
    for number in range(12):
        producer.send_async(b"%d" % number, lambda _, id_: ids.append(id_ or MessageId()))
    producer.flush()
    for number in (0, 1, 3, 4, 7, 11):
        for inclusive in (False, True):
            with client.create_reader(
                "t", ids[number], start_message_id_inclusive=inclusive
            ) as reader:
                first = number + (0 if inclusive else 1)
                assert reader.has_message_available() == (first < 12)
                assert numbers(reader) == list(range(first, 12))
                reader.seek(ids[5])
                assert int(reader.read_next(WAIT_MS).data()) == (5 if inclusive else 6)
                reader.seek(MessageId.earliest)
                time_ms = reader.read_next(WAIT_MS).publish_timestamp()
                reader.seek(time_ms)
                assert numbers(reader) == list(range(12))
                reader.seek(time_ms + 3_600_000)
                assert not reader.has_message_available()
    with client.create_reader("t", MessageId.latest, start_message_id_inclusive=True) as reader:
        assert numbers(reader) == [11]


def test_consumer_seek_and_redelivery(client: Client) -> None:
    """Forwards, backwards, and again."""
    producer = client.create_producer("t", batching_enabled=True, batching_max_messages=3)
    publish(producer, 0, 9)
    producer.flush()
    consumer = client.subscribe(
        "t", "s", initial_position=InitialPosition.Earliest, negative_ack_redelivery_delay_ms=20
    )

    def receive(count: int) -> list[int]:
        return [int(consumer.receive(WAIT_MS).data()) for _ in range(count)]

    messages = [consumer.receive(WAIT_MS) for _ in range(9)]
    consumer.seek(messages[4].message_id())
    assert receive(4) == [5, 6, 7, 8]
    consumer.seek(MessageId.earliest)
    assert receive(9) == list(range(9))
    consumer.redeliver_unacknowledged_messages()
    assert receive(9) == list(range(9))
    consumer.acknowledge_cumulative(messages[2])
    consumer.negative_acknowledge(messages[3])
    assert receive(6) == [3, 4, 5, 6, 7, 8]
    assert not consumer.has_message_available()
    consumer.unsubscribe()


def test_names_are_exclusive_until_their_owner_closes(client: Client) -> None:
    """A second producer or exclusive consumer is refused until the first one is closed."""
    with client.create_producer("t", "me"), pytest.raises(ProducerBusy):
        client.create_producer("t", "me")
    client.create_producer("t", "me").close()
    with client.subscribe("t", "s"), pytest.raises(SubscriptionBusy):
        client.subscribe("t", "s")
    client.subscribe("t", "s").close()


def test_latest_of_an_empty_topic_is_its_beginning(client: Client, broker: BrokerProcess) -> None:
    """Latest of an empty topic is the beginning."""
    with Admin(broker.url) as admin:
        with pytest.raises(TopicNotFound):
            admin.last_message_id("t")
        with client.create_reader("t", MessageId.latest) as reader:
            assert not reader.has_message_available()
            client.create_producer("t").send(b"1")
            assert numbers(reader) == [1]
        assert admin.last_message_id("t").batch_index() == -1


def test_a_table_view_keeps_its_subscription(broker: BrokerProcess, client: Client) -> None:
    """Its name is exclusive, also after reconnections; closing it releases the name."""
    with client.create_producer("t") as producer:
        producer.send(b"1", partition_key="a")
    view = client.create_table_view("t", "view")
    for value, disturb in zip((b"2", b"3", b"4"), DISTURBANCES, strict=True):
        disturb(broker)
        with client.create_producer("t") as producer:
            producer.send(value, partition_key="a")
        view.refresh()
        assert view.get("a") == value
        with pytest.raises(SubscriptionBusy, match="another reader or table view"):
            client.create_table_view("t", "view")
    view.close()
    client.create_table_view("t", "view").close()
