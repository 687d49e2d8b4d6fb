"""Programs that fork while they use the client, each in a separate process.

    python -m tests.support.forking SCENARIO URL

prints one JSON document. An alarm ends a child that hangs, and its exit code shows it. (gRPC reads
the environment when it is imported, so these cannot run in the tests' process.)
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from ledgerfold.broker.client import Client, ConsumerType, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.asyncio_client.client import Client as AioClient
from ledgerfold.storage.errors import LedgerfoldError
from tests.support.waiting import WAIT_S

EXIT_CODE = 3
_PR_SET_NAME = 15


def outcome(call: Callable[[], object]) -> str:
    """Returns the result; or the name of the raised error."""
    try:
        return str(call())
    except LedgerfoldError as error:
        return type(error).__name__


def in_child(
    work: Callable[[], object], leave: Callable[[int], object] = sys.exit
) -> tuple[Any, int]:
    """Returns the answer of `work` in a forked child, and its exit code.

    It leaves by sys.exit, so that the interpreter ends normally.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(round(WAIT_S))
        try:
            with os.fdopen(writing, "w") as pipe:
                json.dump(work(), pipe)
        finally:
            leave(EXIT_CODE)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        text = pipe.read()
    return json.loads(text or "null"), os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def publish_once(url: str) -> str:
    """Publishes with a client of this process."""
    with Client(url) as client, client.create_producer("forked") as producer:
        producer.send(b"from a child")
    with Admin(url) as admin:
        admin.list_topics()
    return "published"


class Opened:
    """A process that has everything open, and a thread that publishes."""

    def __init__(self, url: str) -> None:
        self.client = Client(url)
        self.admin = Admin(url)
        self.producer = self.client.create_producer("t", batching_enabled=True)
        self.producer.send(b"first")
        self.consumer = self.client.subscribe("t", "s", ConsumerType.Shared)
        self.reader = self.client.create_reader("t", MessageId.earliest)
        self.view = self.client.create_table_view("t")
        self.message = self.reader.read_next()
        self.sent = 0
        self._is_over = threading.Event()
        self._sender = threading.Thread(target=self._send)
        self._sender.start()

    def _send(self) -> None:
        while not self._is_over.is_set():
            self.producer.send_async(b"busy", None, partition_key="k")
            self.sent += 1
            if self.sent % 500 == 0:
                self.producer.flush()

    def finish(self) -> str:
        """Checks that the parent continues: everything it sent is stored."""
        before = self.sent
        while self.sent < before + 1000:
            threading.Event().wait(0.01)
        self._is_over.set()
        self._sender.join()
        self.producer.flush()
        stored = self.producer.last_sequence_id() + 1
        self.client.close()
        self.admin.close()
        return "all stored" if stored == self.sent + 1 else f"{stored} of {self.sent + 1}"

    def calls(self) -> dict[str, Callable[[], object]]:
        producer, consumer, reader = self.producer, self.consumer, self.reader
        return {
            "send": lambda: producer.send(b"x"),
            "send_async": lambda: producer.send_async(b"x", None),
            "send_async quick": lambda: producer.send_async(b"x", None, partition_key="k"),
            "flush": producer.flush,
            "producer close": producer.close,
            "receive": consumer.receive,
            "receive in time": lambda: consumer.receive(timeout_millis=100),
            "batch_receive": consumer.batch_receive,
            "pause": consumer.pause_message_listener,
            "acknowledge": lambda: consumer.acknowledge(self.message),
            "acknowledge_cumulative": lambda: consumer.acknowledge_cumulative(self.message),
            "negative_acknowledge": lambda: consumer.negative_acknowledge(self.message),
            "seek": lambda: consumer.seek(MessageId.earliest),
            "unsubscribe": consumer.unsubscribe,
            "consumer close": consumer.close,
            "read_next": reader.read_next,
            "has_message_available": reader.has_message_available,
            "iterate": lambda: list(reader),
            "reader close": reader.close,
            "get": lambda: self.view.get("k"),
            "refresh": self.view.refresh,
            "view close": self.view.close,
            "create_producer": lambda: self.client.create_producer("t"),
            "create_reader": lambda: self.client.create_reader("t", MessageId.earliest),
            "client close": self.client.close,
            "shutdown": self.client.shutdown,
            "admin": self.admin.list_topics,
            "admin close": self.admin.close,
        }


def inherited(url: str) -> dict[str, Any]:
    """Uses inherited clients after a fork while the parent is busy."""
    opened = Opened(url)
    calls = opened.calls()
    children = [
        in_child(lambda: {name: outcome(call) for name, call in calls.items()}),
        *(in_child(lambda: "idle") for _ in range(10)),
    ]
    return {"children": children, "parent": opened.finish()}


def new_beside_open(url: str) -> dict[str, Any]:
    """Clients are made in children of a process that has some open."""
    opened = Opened(url)
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        in_pool = [pool.submit(_new_client, url).result() for _ in range(4)]
    children = [in_child(lambda: _new_client(url)) for _ in range(3)]
    return {"pool": in_pool, "children": children, "parent": opened.finish()}


def _new_client(url: str) -> list[str]:
    made = (lambda: Client(url), lambda: AioClient(url), lambda: Admin(url))
    return [outcome(make) for make in made]


def new_beside_none(url: str) -> dict[str, Any]:
    """Prefork servers: the parent never had a client, or closed it before."""
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        answers = [pool.submit(publish_once, url).result()]
    publish_once(url)
    with Client(url) as kept:
        closed = kept.create_producer("t")
        closed.send(b"x")
    children = [in_child(lambda: publish_once(url)) for _ in range(5)]
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        answers += [pool.submit(publish_once, url).result() for _ in range(3)]
    # A closed one that is still held has nothing more to say there.
    children.append(in_child(lambda: outcome(lambda: closed.send(b"x"))))
    return {"pool": answers, "children": children, "parent": publish_once(url)}


def linger(is_named: threading.Event, lingers_s: float | None) -> None:
    """A thread that looks like one of gRPC's."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, b"grpc_lingers", 0, 0, 0)
    is_named.set()
    threading.Event().wait(lingers_s)


def beside_a_thread_that_ends(url: str, lingers_s: float | None) -> tuple[Any, bool]:
    """Returns a client's answer in a child, and whether the thread still existed after the fork."""
    publish_once(url)
    is_named = threading.Event()
    thread = threading.Thread(target=linger, args=(is_named, lingers_s), daemon=True)
    thread.start()
    is_named.wait()
    was_there = []
    os.register_at_fork(after_in_parent=lambda: was_there.append(thread.is_alive()))
    return in_child(lambda: outcome(lambda: publish_once(url))), was_there[0]


def beside_threads_that_end(url: str) -> dict[str, Any]:
    """gRPC's threads outlive the last client's close a little; one here does, one never ends."""
    children = [beside_a_thread_that_ends(url, lingers_s) for lingers_s in (0.2, None)]
    return {"children": children, "parent": publish_once(url)}


def asyncio_client(url: str) -> dict[str, Any]:
    """Tests the asyncio API: the child runs a separate loop."""

    async def run() -> dict[str, Any]:
        client = AioClient(url)
        producer = await client.create_producer("t")
        reader = await client.create_reader("t", MessageId.earliest)
        await producer.send(b"1")

        def in_a_loop() -> list[str]:
            return [
                outcome(lambda: asyncio.run(producer.send(b"2"))),
                outcome(lambda: asyncio.run(reader.read_next())),
                outcome(lambda: asyncio.run(client.close())),
            ]

        # As multiprocessing does: a child must not go back into the loop that it was forked from.
        children = [in_child(in_a_loop, os._exit) for _ in range(3)]
        await producer.send(b"3")
        await client.close()
        return {"children": children, "parent": "all stored"}

    return asyncio.run(run())


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
