"""Table views over a broker that is not one: creation, refresh, errors, closing."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.core import table_follower
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.broker.client.sync.table_view import CallThread
from ledgerfold.storage.entry import Position, stamp
from ledgerfold.storage.errors import (
    AlreadyClosed,
    Corruption,
    InvalidRequest,
    NotAllowed,
    Unavailable,
)
from ledgerfold.storage.native import NativeBatchBuilder
from tests.support.fake_broker import ThreadedFakeBroker
from tests.support.fake_topics import LEDGER_ID
from tests.support.waiting import WAIT_S, wait_until


def publish(client: Client, first: int, end: int, topic: str = "t") -> None:
    """Number n under key "k<n>", in batches of up to 7."""
    with client.create_producer(topic, batching_enabled=True, batching_max_messages=7) as producer:
        for number in range(first, end):
            producer.send_async(b"%d" % number, None, partition_key=f"k{number}")
        producer.flush()


def numbered(first: int, end: int) -> dict[str, bytes]:
    return {f"k{number}": b"%d" % number for number in range(first, end)}


def test_a_new_view_holds_everything(client: Client) -> None:
    """Published before create: there when it returns. Published later: there soon (also TVW-01)."""
    publish(client, 0, 20)
    view = client.create_table_view("t")
    assert view.snapshot() == numbered(0, 20)
    assert sorted(view.keys()) == sorted(numbered(0, 20))
    assert (len(view), view.get("k3"), "k3" in view, "k20" in view) == (20, b"3", True, False)
    assert view.topic() == "persistent://public/default/t"
    seen: dict[str, bytes] = {}
    view.for_each(seen.__setitem__)
    assert seen == numbered(0, 20)
    publish(client, 20, 30)
    view.refresh()
    assert view.snapshot() == numbered(0, 30)


def test_a_view_of_an_empty_topic(client: Client) -> None:
    """An empty topic has an empty view, at once; keyless and emptied ones, too."""
    assert client.create_table_view("new").snapshot() == {}
    with client.create_producer("t") as producer:
        producer.send(b"x")
        producer.send(b"1", partition_key="a")
        producer.send(None, partition_key="a")
    assert client.create_table_view("t").snapshot() == {}


def test_creation_completes_while_messages_are_published(client: Client) -> None:
    """TVW-08: creation reads up to the last message at its begin."""
    stop, going = threading.Event(), threading.Event()

    def publish_on() -> None:
        with client.create_producer(
            "t", max_pending_messages=100, block_if_queue_full=True
        ) as producer:
            number = 0
            while not stop.is_set():
                producer.send_async(b"%d" % number, None, partition_key=f"k{number % 50}")
                number += 1
                if number > 200:
                    going.set()

    publisher = threading.Thread(target=publish_on)
    publisher.start()
    try:
        assert going.wait(WAIT_S)
        view = client.create_table_view("t")
        assert len(view) == 50
    finally:
        stop.set()
        publisher.join()


def test_listening(client: Client) -> None:
    """TVW-04: `listen` gets only new messages; for_each_and_listen also the present ones."""
    publish(client, 0, 5)
    view = client.create_table_view("t")
    new: list[tuple[str, Any]] = []
    every: list[tuple[str, Any]] = []
    view.listen(lambda key, value: new.append((key, value)))
    view.for_each_and_listen(lambda key, value: every.append((key, value)))
    publish(client, 5, 10)
    view.refresh()
    assert new == list(numbered(5, 10).items())
    assert every == list(numbered(0, 10).items())


def test_values_are_decoded_by_a_schema(client: Client) -> None:
    """Only `decode` of the object is used."""

    class Number:
        @staticmethod
        def decode(data: bytes) -> int:
            return int(data)

    publish(client, 0, 3)
    view = client.create_table_view("t", None, Number())
    assert view.snapshot() == {"k0": 0, "k1": 1, "k2": 2}


def test_the_name_of_the_views_reader(broker: ThreadedFakeBroker, client: Client) -> None:
    """The subscription name names the reader; the read is compacted, from earliest."""
    client.create_table_view("t", "prices-view")
    opening = broker.service.opened[-1]
    assert (opening.reader_name, opening.read_compacted) == ("prices-view", True)
    assert opening.subscription == "prices-view"
    assert opening.start.earliest


def test_listeners_may_use_the_client(client: Client) -> None:
    """They run in a thread of the view; they must not await their own view's refresh."""
    view = client.create_table_view("t")
    outcome: list[object] = []
    done = threading.Event()

    def listener(key: str, value: object) -> None:
        with client.create_producer("other") as producer:
            outcome.append(producer.send(b"seen", partition_key=key).entry_id())
        with pytest.raises(NotAllowed):
            view.refresh()
        outcome.append(len(view))
        view.close()
        done.set()

    view.listen(listener)
    publish(client, 0, 1)
    assert done.wait(WAIT_S)
    assert outcome == [0, 1]


def test_a_slow_listener_delays_only_its_view(client: Client) -> None:
    """Neither the client's other streams nor readers of the view wait."""
    view = client.create_table_view("t")
    entered, leave = threading.Event(), threading.Event()

    def slow(key: str, value: object) -> None:
        entered.set()
        leave.wait(WAIT_S)

    view.listen(slow)
    publish(client, 0, 1)
    assert entered.wait(WAIT_S)
    publish(client, 0, 1, topic="other")
    assert view.snapshot() == numbered(0, 1)
    assert client.create_table_view("other").snapshot() == numbered(0, 1)
    leave.set()


def test_a_refresh_completes_while_messages_arrive(
    broker: ThreadedFakeBroker, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when the next message is there before the last one is applied, each time."""
    monkeypatch.setattr(table_follower, "_MESSAGES_AT_ONCE", 10)
    view = client.create_table_view("t")
    inbox = view._core.cores[0]._reader.inbox
    stop = threading.Event()

    def publish_the_next(key: str, value: bytes) -> None:
        if not stop.is_set():
            broker.store("t", entry_of(int(value) + 1))
            inbox.wait(None)

    view.listen(publish_the_next)
    broker.store("t", entry_of(0))
    view.refresh()
    assert not stop.is_set()
    stop.set()


def test_a_view_continues_after_a_restart(broker: ThreadedFakeBroker, client: Client) -> None:
    """It reconnects, and no listener is called twice."""
    publish(client, 0, 10)
    view = client.create_table_view("t")
    heard: list[str] = []
    view.listen(lambda key, value: heard.append(key))
    broker.stop_now()
    broker.start_now()
    publish(client, 10, 20)
    view.refresh()
    assert view.snapshot() == numbered(0, 20)
    assert heard == list(numbered(10, 20))


def test_a_view_does_not_wait_for_a_removed_message(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """A compaction may remove the last message before it is read: the broker reports the end."""
    publish(client, 0, 7)
    view = client.create_table_view("t")
    real = broker.service.GetLastMessageId

    async def later(request: Any, context: Any) -> Any:
        response = await real(request, context)
        response.message_id.entry_id += 5
        return response

    broker.do(lambda: setattr(broker.service, "GetLastMessageId", later))
    broker.stop_now()
    broker.start_now()
    view.refresh()
    assert view.snapshot() == numbered(0, 7)


def test_closing_fails_a_pending_refresh(broker: ThreadedFakeBroker, client: Client) -> None:
    """TVW-10: it raises AlreadyClosed at once; the view keeps its content."""
    publish(client, 0, 3)
    view = client.create_table_view("t")
    broker.stop_now()
    refreshing = view.refresh_async()
    assert not refreshing.done()
    view.close()
    with pytest.raises(AlreadyClosed):
        refreshing.result(WAIT_S)
    with pytest.raises(AlreadyClosed):
        view.refresh()
    assert view.snapshot() == numbered(0, 3)
    view.close()
    broker.start_now()


def test_closing_the_client_closes_its_views(client: Client) -> None:
    """Also at once."""
    view = client.create_table_view("t")
    client.shutdown()
    with pytest.raises(AlreadyClosed):
        view.refresh()
    wait_until(lambda: not view._calls._thread.is_alive(), "the view's thread to end")


def test_a_failed_open_leaves_nothing(broker: ThreadedFakeBroker, client: Client) -> None:
    """The broker's refusal is raised, and no thread stays."""
    broker.service.refusal = InvalidRequest("no such name")
    before = threading.active_count()
    with pytest.raises(InvalidRequest):
        client.create_table_view("t")
    wait_until(lambda: threading.active_count() <= before, "the view's thread to end")


def entry_of(number: int) -> bytes:
    builder = NativeBatchBuilder("p")
    builder.add(b"%d" % number, b"k%d" % number)
    return builder.build(sequence_id=number, publish_time_ms=1)


def store_damaged(broker: ThreadedFakeBroker) -> None:
    """Adds an entry that is damaged, then a good one."""
    data = bytearray(entry_of(90))
    data[-1] ^= 1
    broker.store("t", bytes(data))
    broker.store("t", entry_of(91))


def test_damage_at_creation_is_an_error(broker: ThreadedFakeBroker, client: Client) -> None:
    """A view is never silently incomplete."""
    publish(client, 0, 3)
    store_damaged(broker)
    with pytest.raises(Corruption):
        client.create_table_view("t")


def test_later_damage_is_reported_and_survived(broker: ThreadedFakeBroker, client: Client) -> None:
    """A refresh raises it, and reading continues with a new reader after a repair."""
    publish(client, 0, 3)
    view = client.create_table_view("t")
    store_damaged(broker)
    with pytest.raises(Corruption):
        view.refresh()
    assert view.snapshot() == numbered(0, 3)
    mended = stamp(entry_of(90), LEDGER_ID, 1, append_time_ms=1, producer_number=1)
    broker.do(lambda: broker.topic("t").entries.__setitem__(1, mended))
    wait_until(lambda: view.snapshot() == numbered(0, 3) | numbered(90, 92), "the rest")
    view.refresh()


def test_a_view_reopens_a_reader_that_the_broker_ended(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """The view retries after errors that the stream does not retry."""
    publish(client, 0, 3)
    view = client.create_table_view("t")
    follower = view._core.cores[0]
    broker.service.refusal = NotAllowed("not now")
    broker.do(lambda: broker.topic("t").notify())
    wait_until(lambda: follower._error is not None, "the refusal")
    view.refresh()  # it is complete
    broker.store("t", entry_of(3))
    with pytest.raises(NotAllowed):
        view.refresh()
    broker.service.refusal = None
    wait_until(lambda: len(view) == 4, "the view to go on")
    assert follower.applied == Position(LEDGER_ID, 1)


def test_calls_run_in_one_thread() -> None:
    """Calls run there one after another; their errors are raised; it ends on request."""
    calls = CallThread("test")
    io = IoThread.shared()
    ran: list[bool] = []
    for _ in range(3):
        io.call(calls.run(lambda: ran.append(calls.is_current)))
    assert ran == [True] * 3

    def fail() -> None:
        raise Unavailable("no")

    with pytest.raises(Unavailable):
        io.call(calls.run(fail))
    calls.stop()
    wait_until(lambda: not calls._thread.is_alive(), "the end of the thread")
