"""Listeners after an error of their stream, and the ends of their threads.

Listeners had been tested with their own errors, but never with those of receiving.
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

import pytest

from ledgerfold.broker.client import Client, Consumer, InitialPosition, Message, MessageId, Reader
from ledgerfold.broker.client.sync import listening
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.storage.native import NativeBatchBuilder
from tests.support.fake_broker import ThreadedFakeBroker
from tests.support.waiting import WAIT_S, wait_until


def entry_of(number: int) -> bytes:
    builder = NativeBatchBuilder("p")
    builder.add(b"%d" % number)
    return builder.build(sequence_id=number, publish_time_ms=1)


def store_with_damage(broker: ThreadedFakeBroker) -> MessageId:
    """Stores 0, a damaged 1, and 2. Returns the id of 2."""
    damaged = bytearray(entry_of(1))
    damaged[-1] ^= 1
    broker.store("t", entry_of(0))
    broker.store("t", bytes(damaged))
    position = broker.store("t", entry_of(2))
    return MessageId(-1, *position, -1)


@pytest.mark.parametrize("kind", ["consumer", "reader"])
def test_a_listener_continues_after_a_seek_past_the_damage(
    broker: ThreadedFakeBroker,
    client: Client,
    kind: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The damage is logged once, although receiving is tried again and again."""
    monkeypatch.setattr(listening, "_PAUSE_S", 0.01)
    after = store_with_damage(broker)
    seen: list[bytes] = []
    listen: Any = lambda _, message: seen.append(message.data())  # noqa: E731
    with caplog.at_level(logging.WARNING):
        opened: Consumer | Reader
        if kind == "consumer":
            opened = client.subscribe(
                "t",
                "s",
                initial_position=InitialPosition.Earliest,
                start_message_id_inclusive=True,
                message_listener=listen,
            )
        else:
            opened = client.create_reader(
                "t", MessageId.earliest, start_message_id_inclusive=True, reader_listener=listen
            )
        wait_until(lambda: "gets no messages" in caplog.text, "the damage")
        assert seen == [b"0"]
        opened.seek(after)
        wait_until(lambda: seen == [b"0", b"2"], "the message after the damage")
    assert caplog.text.count("gets no messages") == 1


@pytest.mark.parametrize("way", ["close", "shutdown", "own close"])
@pytest.mark.parametrize("state", ["paused", "damaged", "waiting"])
def test_closing_ends_the_threads_of_listeners(
    broker: ThreadedFakeBroker, client: Client, way: str, state: str
) -> None:
    """In whatever state the listener is."""
    if state == "damaged":
        store_with_damage(broker)
    before, heard = threading.active_count(), threading.Event()

    def listen(consumer: Any, message: Message) -> None:
        heard.set()

    consumer = client.subscribe(
        "t", "s", initial_position=InitialPosition.Earliest, message_listener=listen
    )
    reader = client.create_reader("t", MessageId.earliest, reader_listener=listen)
    if state == "paused":
        consumer.pause_message_listener()
        broker.store("t", entry_of(0))
    if state != "waiting":
        assert heard.wait(WAIT_S)
    if way == "own close":
        consumer.close()
        reader.close()
    else:
        getattr(client, way)()
    wait_until(lambda: threading.active_count() <= before, "the threads to end")


def test_listeners_that_exit_get_the_next_message(client: Client) -> None:
    """That of a view gets the message again first."""
    heard: list[bytes] = []

    def listen(_: Any, message: Message) -> None:
        heard.append(message.data())
        if message.data() == b"1":
            sys.exit(3)

    updates: list[bytes] = []

    def update(key: str, value: bytes) -> None:
        updates.append(value)
        if updates == [b"1"]:
            sys.exit(3)

    client.subscribe("t", "s", message_listener=listen)
    view = client.create_table_view("t")
    view.listen(update)
    producer = client.create_producer("t")
    producer.send(b"1", partition_key="k")
    producer.send(b"2", partition_key="k")
    wait_until(lambda: heard == [b"1", b"2"], "the consumer's listener")
    wait_until(lambda: updates[-1:] == [b"2"], "the view's listener")
    assert updates == [b"1", b"1", b"2"]
    view.refresh()


def test_a_callback_that_exits_does_not_end_the_io_thread(client: Client) -> None:
    """All clients of the process share it."""
    producer = client.create_producer("t")
    producer.send_async(b"1", lambda *_: sys.exit(3))
    assert producer.send(b"2").entry_id() == 1


def test_a_task_that_exits_does_not_end_the_io_thread(client: Client) -> None:
    """Only send callbacks had called sys.exit(); schemas and tokens are functions there, too."""

    async def leave() -> None:
        sys.exit(3)

    with pytest.raises(SystemExit):
        IoThread.shared().call(leave())
    assert client.create_producer("t").send(b"1").entry_id() == 0
