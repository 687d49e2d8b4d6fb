"""Producers under any order of events: sends, seals, broken connections, receipts kept back, limits
that take batches apart, a disk that fails.

The invariants: each message gets its result once; a message with the result Ok is stored once,
where its receipt says; messages are stored and reported in the order of sending; sequence ids rise.
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.broker.client.core.producer_core import ProducerCore
from ledgerfold.broker.client.messages.configs import ProducerConfig
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.options import BatchingType, Result
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.broker.client.sync.producer import Producer
from ledgerfold.storage.codec import decode
from ledgerfold.storage.errors import DiskFailure, LedgerfoldError
from tests.support.fake_data_service import BreakAt, FakeDataService
from tests.support.memory_connection import MemoryConnection
from tests.support.property_tests import examples
from tests.support.waiting import WAIT_S

_ENTRY_BYTES_MAX = 600
_TOO_LARGE = 700
_sends = st.tuples(
    st.just("send"),
    st.sampled_from(["a", "b", "c", None]),
    st.sampled_from([5, 100, 300, _TOO_LARGE]),
    # Above the last sequence id by so much, or not given.
    st.sampled_from([None, None, None, 1, 5]),
)
_events = st.one_of(
    _sends,
    _sends,
    st.tuples(st.sampled_from(["seal", "break", "hold", "release"])),
    st.tuples(st.just("turns"), st.integers(1, 12)),
    st.tuples(st.sampled_from(["break before", "break after"]), st.integers(1, 4)),
)
_shapes = st.sampled_from(
    [
        {"batching_enabled": False},
        {"batching_enabled": True},
        {"batching_enabled": True, "batching_type": BatchingType.KeyBased},
    ]
)


@dataclass
class Sent:
    """A message, and all its results."""

    number: int
    key: str | None
    size: int
    heard: list[tuple[Result, MessageId | None]] = field(default_factory=list)

    @property
    def value(self) -> bytes:
        return b"%d:" % self.number + b"x" * self.size


class Run:
    """One producer and its broker, on the running loop."""

    def __init__(self, shape: dict[str, Any]) -> None:
        self.service = FakeDataService()
        self.service.entry_bytes_max = _ENTRY_BYTES_MAX
        self.connection = MemoryConnection(self.service)
        self.config = ProducerConfig(
            "t",
            "me",
            send_timeout_millis=0,
            max_pending_messages=0,
            batching_max_messages=8,
            # Seals are events of the test.
            batching_max_publish_delay_ms=10**9,
            **shape,
        )
        self.is_key_based = self.config.batching_type == BatchingType.KeyBased
        self.sent: list[Sent] = []
        self.heard: list[int] = []
        self.is_over = False

    async def open(self) -> None:
        connection = cast(Connection, self.connection)
        self.core = await ProducerCore.open(connection, self.config, lambda: True)
        self.producer = Producer(cast(IoThread, None), self.core, lambda closed: None)
        self.last_id = -1

    def send(self, key: str | None, size: int, gap: int | None) -> None:
        message = Sent(len(self.sent), key, size)
        self.last_id += gap or 1

        def on_done(result: Result, message_id: MessageId | None) -> None:
            message.heard.append((result, message_id))
            self.heard.append(message.number)

        try:
            self.producer.send_async(
                message.value,
                on_done,
                partition_key=key,
                sequence_id=None if gap is None else self.last_id,
            )
        except LedgerfoldError:
            assert self.core.stream.error is not None
        else:
            self.sent.append(message)

    async def do(self, event: tuple[Any, ...]) -> None:
        what, *details = event
        service = self.service
        if what == "send":
            self.send(*details)
        elif what == "seal":
            self.core.queue.seal()
        elif what == "turns":
            for _ in range(details[0]):
                await asyncio.sleep(0)
        elif what == "break":
            self.connection.break_off()
        elif what == "hold":
            service.may_answer.clear()
        elif what == "release":
            service.may_answer.set()
        elif what == "break before":
            service.before_store = BreakAt(*details)
        elif what == "break after":
            service.after_store = BreakAt(*details)

    async def settle(self) -> None:
        """Everything is answered, one way or the other."""
        self.service.may_answer.set()
        async with asyncio.timeout(WAIT_S):
            await self.core.queue.flush_async()
            await self.core.close()

    # The invariants

    def check(self, *, disk_failed: bool = False) -> None:
        topic = self.service.topic("t")
        stored = [
            (header.entry_id, row.batch_index, row.value, row.sequence_id)
            for header, entry in zip(topic.headers(), topic.entries, strict=True)
            for row in decode(entry).messages()
        ]
        values = [value for _, _, value, _ in stored]
        assert len(set(values)) == len(values)
        ids = [sequence_id for *_, sequence_id in stored]
        assert ids == sorted(set(ids))
        places = {value: (entry, index) for entry, index, value, _ in stored}
        for message in self.sent:
            assert len(message.heard) == 1, message
            ((result, message_id),) = message.heard
            if message.size == _TOO_LARGE:
                assert result == Result.MessageTooBig
            elif not disk_failed:
                assert result == Result.Ok
            if result == Result.Ok:
                assert message.value in places, message
                assert message_id is not None
                place = (message_id.entry_id(), message_id.batch_index())
                assert message_id == MessageId() or place == places[message.value]
        self._check_order([int(value.split(b":")[0]) for value in values])
        small = [number for number in self.heard if self.sent[number].size != _TOO_LARGE]
        self._check_order(small)

    def _check_order(self, numbers: list[int]) -> None:
        """Checks the order of all messages, or of each key's if each key has batches of its own."""
        keys = {self.sent[number].key for number in numbers} if self.is_key_based else {"any"}
        for key in keys:
            mine = [n for n in numbers if not self.is_key_based or self.sent[n].key == key]
            assert mine == sorted(mine)


@settings(max_examples=examples(300))
@given(_shapes, st.lists(_events, max_size=40), st.booleans())
def test_no_event_order_loses_or_duplicates_messages(
    shape: dict[str, Any], events: list[tuple[Any, ...]], combines: bool
) -> None:
    """Connections break at any moment; resent entries keep their order and sequence ids.

    `combines`: a receipt is for the entries of a frame, or for one, as from an older broker.
    """

    async def run() -> None:
        one = Run(shape)
        one.service.combines_receipts = combines
        await one.open()
        for event in events:
            await one.do(event)
        await one.settle()
        one.check()

    asyncio.run(run())


@settings(max_examples=examples(150))
@given(
    _shapes,
    st.lists(_events, max_size=25),
    st.integers(1, 3),
    st.lists(_events, max_size=10),
    st.booleans(),
)
def test_a_disk_failure_fails_pending_messages_in_order(
    shape: dict[str, Any],
    events: list[tuple[Any, ...]],
    fails_at: int,
    more: list[tuple[Any, ...]],
    combines: bool,
) -> None:
    """The producer ends: messages without a receipt fail, and no call waits for ever."""

    async def run() -> None:
        one = Run(shape)
        one.service.combines_receipts = combines
        await one.open()
        for event in events:
            await one.do(event)
        left = fails_at

        def fail(entry: bytes) -> None:
            nonlocal left
            left -= 1
            if left <= 0:
                raise DiskFailure("x.log", "fdatasync", OSError(5, "Input/output error"))

        one.service.before_store = fail
        for event in more:
            if event[0] != "break before":
                await one.do(event)
        with contextlib.suppress(DiskFailure):
            await one.settle()
        one.check(disk_failed=True)

    asyncio.run(run())


def test_an_open_batch_fails_after_sent_ones() -> None:
    """Also if the disk fails, results follow the order of sending."""

    def fail(entry: bytes) -> None:
        raise DiskFailure("x.log", "fdatasync", OSError(5, "Input/output error"))

    async def run() -> None:
        one = Run({"batching_enabled": True})
        await one.open()
        one.service.before_store = fail
        for event in (("send", "a", 5, None), ("seal",), ("send", "a", 5, None), ("turns", 50)):
            await one.do(event)
        assert one.heard == [0, 1]
        assert isinstance(one.core.stream.error, DiskFailure)

    asyncio.run(run())
