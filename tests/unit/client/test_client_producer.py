"""Producers against a broker that breaks: nothing lost, nothing doubled, order kept."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ledgerfold.broker.client import BatchingType, Client, CompressionType, MessageId, Result
from ledgerfold.broker.client.core.producer_core import ProducerCore
from ledgerfold.broker.client.messages.configs import BULK_SENDING
from ledgerfold.storage.codec import decode
from ledgerfold.storage.errors import (
    AlreadyClosed,
    DiskFailure,
    InvalidRequest,
    LedgerfoldError,
    NotAllowed,
    ProducerBusy,
    StorageError,
    Timeout,
    Unavailable,
)
from tests.support.fake_broker import ThreadedFakeBroker
from tests.support.fake_data_service import BreakAt
from tests.support.fake_topics import LEDGER_ID
from tests.support.waiting import WAIT_S


def test_send_answers_the_id(broker: ThreadedFakeBroker, client: Client) -> None:
    """Without batching the id has no batch index; with it a lone message has index 0."""
    plain = client.create_producer("t")
    assert plain.send(b"1") == MessageId(-1, LEDGER_ID, 0, -1)
    batching = client.create_producer("t", batching_enabled=True)
    assert batching.send(b"2") == MessageId(-1, LEDGER_ID, 1, 0)
    assert broker.topic("t").values() == [b"1", b"2"]
    assert (plain.topic(), plain.is_connected()) == ("persistent://public/default/t", True)


@pytest.mark.parametrize("key", [None, "k"])
def test_a_callback_that_is_not_callable_is_refused(client: Client, key: str | None) -> None:
    """At once: the receipt would fail the producer, and a flush wait for ever. Wrong types had been
    given for every other argument.
    """
    wrong: Any = 5
    with client.create_producer("t") as producer:
        with pytest.raises(InvalidRequest, match="callable"):
            producer.send_async(b"1", wrong, partition_key=key)
        producer.send(b"2")


def test_every_part_of_a_message_is_published(broker: ThreadedFakeBroker, client: Client) -> None:
    """The entry contains exactly the sent parts."""
    producer = client.create_producer("t", "me", compression_type=CompressionType.ZSTD)
    producer.send(
        b"v" * 1000,
        properties={"a": "b", "\u00e4": ""},
        partition_key="k",
        ordering_key="o",
        sequence_id=41,
        event_timestamp=1234,
    )
    batch = decode(broker.topic("t").entries[0])
    (message,) = batch.messages()
    assert batch.producer_name == producer.producer_name() == "me"
    assert (message.key, message.value, message.ordering_key) == (b"k", b"v" * 1000, b"o")
    assert message.properties == {"a": "b", "\u00e4": ""}
    assert (message.sequence_id, message.event_time_ms) == (41, 1234)


def test_null_and_empty_values_are_told_apart(broker: ThreadedFakeBroker, client: Client) -> None:
    """Both are tombstones."""
    producer = client.create_producer("t", batching_enabled=True)
    producer.send_async(None, None, partition_key="k")
    producer.send_async(b"", None, partition_key="k")
    producer.flush()
    messages = list(decode(broker.topic("t").entries[0]).messages())
    assert [message.value_is_null for message in messages] == [True, False]
    assert all(message.is_tombstone for message in messages)


def test_callbacks_are_called_in_order_with_ids(client: Client) -> None:
    """Each message of a batch gets its index."""
    heard: list[tuple[Result, MessageId | None]] = []
    producer = client.create_producer("t", batching_enabled=True, batching_max_messages=2)
    for _ in range(3):
        producer.send_async(b"v", lambda *outcome: heard.append(outcome), partition_key="k")
    producer.flush()
    assert heard == [
        (Result.Ok, MessageId(-1, LEDGER_ID, entry, index))
        for entry, index in ((0, 0), (0, 1), (1, 0))
    ]
    assert producer.last_sequence_id() == 2


def test_the_delay_sends_a_batch(client: Client) -> None:
    """The delay alone sends it."""
    heard = threading.Event()
    producer = client.create_producer("t", batching_enabled=True, batching_max_publish_delay_ms=5)
    producer.send_async(b"v", lambda *outcome: heard.set(), partition_key="k")
    assert heard.wait(WAIT_S)


@pytest.mark.parametrize("stored_first", [False, True])
@pytest.mark.parametrize("break_at", [1, 3, 17])
def test_a_lost_connection_causes_no_loss_or_duplicates(
    broker: ThreadedFakeBroker, client: Client, stored_first: bool, break_at: int
) -> None:
    """Entries without a receipt are sent again; the broker drops those it had stored."""
    if stored_first:
        broker.service.after_store = BreakAt(break_at)
    else:
        broker.service.before_store = BreakAt(break_at)
    results: list[Result] = []
    producer = client.create_producer("t", "me", batching_enabled=True, batching_max_messages=3)
    for number in range(100):
        producer.send_async(b"%d" % number, lambda result, _: results.append(result))
    producer.flush()
    assert broker.topic("t").values() == [b"%d" % number for number in range(100)]
    assert results == [Result.Ok] * 100
    assert [opening.producer_name for opening in broker.service.opened] == ["me", "me"]


def test_a_name_that_the_broker_chose_is_kept(broker: ThreadedFakeBroker, client: Client) -> None:
    """Otherwise a resent entry would look like another producer's."""
    producer = client.create_producer("t")
    broker.service.after_store = BreakAt(1)
    producer.send(b"v")
    assert [opening.producer_name for opening in broker.service.opened] == [
        "",
        producer.producer_name(),
    ]
    assert broker.topic("t").values() == [b"v"]


def test_a_duplicate_returns_no_known_id(broker: ThreadedFakeBroker, client: Client) -> None:
    """The result is still a success."""
    broker.service.after_store = BreakAt(1)
    assert client.create_producer("t", batching_enabled=True).send(b"v") == MessageId()


def test_publishing_continues_after_a_restart(broker: ThreadedFakeBroker, client: Client) -> None:
    """Messages sent while the broker is away wait for it."""
    producer = client.create_producer("t", batching_enabled=True, batching_max_messages=5)
    producer.send(b"0")
    broker.stop_now()
    for number in range(1, 20):
        producer.send_async(b"%d" % number, None)
    broker.start_now()
    producer.flush()
    assert broker.topic("t").values() == [b"%d" % number for number in range(20)]


def test_a_producers_own_name_may_be_busy_for_a_while(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """The broker may notice the lost connection later than we do."""
    producer = client.create_producer("t", "me")
    first = BreakAt(1)

    def break_and_stay(entry: bytes) -> None:
        try:
            first(entry)
        except Unavailable:
            broker.service.next_refusals = [ProducerBusy("t", "me")] * 2
            raise

    broker.service.before_store = break_and_stay
    assert producer.send(b"v").entry_id() == 0
    assert len(broker.service.opened) == 4


def test_a_name_in_use_is_refused(client: Client) -> None:
    """Two producers of one name would drop each other's messages."""
    client.create_producer("t", "me")
    with pytest.raises(ProducerBusy):
        client.create_producer("t", "me")


def test_closing_releases_the_name(client: Client) -> None:
    """The next producer of that name continues after the last one's messages."""
    for turn in range(3):
        producer = client.create_producer("t", "me")
        assert producer.last_sequence_id() == turn - 1
        producer.send(b"v")
        producer.close()
        producer.close()
    with pytest.raises(AlreadyClosed):
        producer.send(b"v")


@pytest.mark.parametrize("initial", [-5, -2, 2**70])
def test_an_initial_sequence_id_below_the_first_is_refused(client: Client, initial: int) -> None:
    """An id of -1 or less would count as sent before, and be acknowledged without storing."""
    with pytest.raises(InvalidRequest, match="initial_sequence_id"):
        client.create_producer("t", initial_sequence_id=initial)


def test_initial_sequence_id_prevents_duplicates_on_replay(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """A producer that repeats its messages from its own records stores each once."""
    with client.create_producer("t", "me") as producer:
        for number in range(3):
            producer.send(b"%d" % number)
    with client.create_producer("t", "me", initial_sequence_id=0) as producer:
        for number in range(1, 5):
            producer.send(b"%d" % number)
    assert broker.topic("t").values() == [b"0", b"1", b"2", b"3", b"4"]


def test_send_timeout(broker: ThreadedFakeBroker, client: Client) -> None:
    """A missing receipt fails the message; the next one is not affected."""
    producer = client.create_producer("t", send_timeout_millis=1000)
    broker.do(broker.service.may_answer.clear)
    with pytest.raises(Timeout):
        producer.send(b"1")
    broker.do(broker.service.may_answer.set)
    producer.send(b"2")
    assert broker.topic("t").values() == [b"1", b"2"]


def test_close_waits_for_receipts(broker: ThreadedFakeBroker, client: Client) -> None:
    """Sent messages are durable once close returns."""
    producer = client.create_producer("t", batching_enabled=True)
    producer.send_async(b"v", None)
    client.close()
    assert broker.topic("t").values() == [b"v"]


def test_shutdown_does_not_wait_for_receipts(broker: ThreadedFakeBroker, client: Client) -> None:
    """Messages without a receipt fail, with an error that says so."""
    results: list[Result] = []
    producer = client.create_producer("t", batching_enabled=True)
    broker.do(broker.service.may_answer.clear)
    producer.send_async(b"v", lambda result, _: results.append(result))
    client.shutdown()
    assert results == [Result.AlreadyClosed]
    broker.do(broker.service.may_answer.set)


def test_a_permanent_error_ends_the_producer(broker: ThreadedFakeBroker, client: Client) -> None:
    """An error that no retry can resolve fails pending messages and every later send."""

    def disk_is_full(entry: bytes) -> None:
        raise DiskFailure("x.log", "write", OSError(28, "No space left on device"))

    producer = client.create_producer("t")
    broker.service.before_store = disk_is_full
    for _ in range(2):
        with pytest.raises(StorageError, match="No space left"):
            producer.send(b"v")


def test_a_message_above_the_entry_limit_fails_alone(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """The ones around it are stored."""
    producer = client.create_producer("t", batching_enabled=True)
    producer.send_async(b"1", None)
    with pytest.raises(InvalidRequest):
        producer.send(b"x" * 300_000)
    producer.send(b"2")
    assert broker.topic("t").values() == [b"1", b"2"]


def test_small_entries_share_frames(broker: ThreadedFakeBroker, client: Client) -> None:
    """Messages without batching do not cost a frame each."""
    producer = client.create_producer("t")
    broker.do(broker.service.may_answer.clear)
    for number in range(1000):
        producer.send_async(b"%d" % number, None)
    broker.do(broker.service.may_answer.set)
    producer.flush()
    assert broker.topic("t").values() == [b"%d" % number for number in range(1000)]
    assert broker.service.frames_published < 500


def test_a_full_queue_makes_the_sender_wait(broker: ThreadedFakeBroker, client: Client) -> None:
    """Memory is bounded: the sender continues after receipts."""
    producer = client.create_producer("t", max_pending_messages=10, block_if_queue_full=True)
    broker.do(broker.service.may_answer.clear)
    done = threading.Event()

    def send_many() -> None:
        for number in range(50):
            producer.send_async(b"%d" % number, None)
        done.set()

    sender = threading.Thread(target=send_many)
    sender.start()
    assert not done.wait(0.1)
    assert len(broker.topic("t").entries) <= 10
    broker.do(broker.service.may_answer.set)
    assert done.wait(WAIT_S)
    sender.join()
    producer.flush()
    assert broker.topic("t").values() == [b"%d" % number for number in range(50)]


def test_many_threads_share_a_producer(broker: ThreadedFakeBroker, client: Client) -> None:
    """Each thread's messages keep their order, and none is lost."""
    producer = client.create_producer(
        "t", batching_enabled=True, batching_max_messages=7, **BULK_SENDING
    )

    def send(thread: int) -> None:
        for number in range(500):
            producer.send_async(b"%d:%d" % (thread, number), None, partition_key="k")

    threads = [threading.Thread(target=send, args=(thread,)) for thread in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    producer.flush()
    values = broker.topic("t").values()
    assert len(values) == 2000
    for thread in range(4):
        mine = [value for value in values if value.startswith(b"%d:" % thread)]
        assert mine == [b"%d:%d" % (thread, number) for number in range(500)]


def test_key_based_batches_survive_a_lost_connection_unchanged(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """Their entries' sequence ids rise, so the broker can tell a resent one."""
    broker.service.after_store = BreakAt(4)
    producer = client.create_producer(
        "t", batching_enabled=True, batching_type=BatchingType.KeyBased, batching_max_messages=10
    )
    for number in range(60):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number % 3}")
    producer.flush()
    values = broker.topic("t").values()
    assert sorted(values, key=int) == [b"%d" % number for number in range(60)]
    for key in range(3):
        mine = [int(value) for value in values if int(value) % 3 == key]
        assert mine == sorted(mine)


def test_a_callback_may_send_but_not_wait(client: Client) -> None:
    """A callback that waits in the I/O thread would wait for itself."""
    refused: list[BaseException] = []
    second = threading.Event()
    producer = client.create_producer("t")

    def on_first(result: Result, message_id: MessageId | None) -> None:
        producer.send_async(b"2", lambda *outcome: second.set())
        for wait in (lambda: producer.send(b"3"), producer.flush, producer.close):
            try:
                wait()
            except NotAllowed as error:
                refused.append(error)

    producer.send_async(b"1", on_first)
    assert second.wait(WAIT_S)
    assert len(refused) == 3


def test_pending_messages_fail_if_another_producer_used_the_name(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """Resent messages would be taken for the other producer's, and acknowledged as stored."""
    producer = client.create_producer("t", "me")
    producer.send(b"0")

    def other_publishes_and_this_one_breaks(entry: bytes) -> None:
        broker.service.before_store = lambda entry: None
        broker.topic("t").sequence_ids["me"] = 7
        raise Unavailable("The test broke the connection.")

    broker.service.before_store = other_publishes_and_this_one_breaks
    with pytest.raises(NotAllowed, match="create a new producer"):
        producer.send(b"1")
    assert broker.topic("t").values() == [b"0"]


def test_only_a_partitioned_topic_costs_a_call_for_its_partitions(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    asked, answer = list[str](), broker.service.GetPartitions

    async def noted(request: Any, context: Any) -> Any:
        asked.append(request.topic)
        return await answer(request, context)

    broker.service.GetPartitions = noted  # type: ignore[method-assign]
    broker.service.partitions["p"] = 2
    broker.stop_now()
    broker.start_now()  # with the method of now
    client.create_producer("t").close()
    assert asked == []
    client.create_producer("p").close()
    assert len(asked) == 1


@pytest.mark.parametrize(
    ("method", "open_one"),
    [
        ("Publish", lambda client: client.create_producer("t")),
        ("GetPartitions", lambda client: client.create_reader("t", MessageId.earliest)),
    ],
)
def test_closing_the_client_ends_a_waiting_open(
    broker: ThreadedFakeBroker, client: Client, method: str, open_one: Callable[[Client], object]
) -> None:
    """The thread that opens gets a typed error, at once."""
    asked, outcomes = threading.Event(), []

    async def never_answer(request: object, context: object) -> None:
        asked.set()
        await asyncio.Event().wait()

    setattr(broker.service, method, never_answer)

    def try_to_open() -> None:
        try:
            open_one(client)
        except LedgerfoldError as error:
            outcomes.append(error)

    opener = threading.Thread(target=try_to_open)
    broker.stop_now()
    broker.start_now()  # with the method of now
    opener.start()
    assert asked.wait(WAIT_S)
    client.shutdown()
    opener.join(WAIT_S)
    assert [type(error) for error in outcomes] == [AlreadyClosed]


def test_objects_opened_during_close_are_closed(
    broker: ThreadedFakeBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would close them."""

    open_one = ProducerCore.open

    async def open_and_be_late(*arguments: Any) -> Any:
        core = await open_one(*arguments)
        await asyncio.to_thread(client.shutdown)
        return core

    monkeypatch.setattr(ProducerCore, "open", open_and_be_late)
    with pytest.raises(AlreadyClosed):
        client.create_producer("t", "me")
    assert client._core._open == {}
