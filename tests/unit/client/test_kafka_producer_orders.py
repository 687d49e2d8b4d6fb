"""Producers of a Kafka topic under any order of events: sends, refusals, seals, broken connections,
receipts kept back, send timeouts.

The invariants: each message gets its result once, in the order of sending; a message with the
result Ok is stored once, at the reported offset; only a batch with refused content is refused;
messages are stored in the order of sending.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.broker.client.core.producer_core import ProducerCore
from ledgerfold.broker.client.messages.configs import ProducerConfig
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.messages.options import Result
from ledgerfold.broker.client.streams.connection import Connection
from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.broker.client.sync.producer import Producer
from ledgerfold.broker.kafka.producers.producer import BATCHES_REMEMBERED
from ledgerfold.storage.kafka.batch import read_batch_header
from tests.support.fake_data_service import BreakAt, FakeDataService
from tests.support.fake_topics import FakeKafkaTopic
from tests.support.memory_connection import MemoryConnection
from tests.support.property_tests import examples
from tests.support.waiting import WAIT_S

_sends = st.tuples(st.just("send"), st.sampled_from(["a", "a", "a", "b", None]))
_events = st.one_of(
    _sends,
    _sends,
    st.tuples(st.sampled_from(["seal", "seal", "break", "unload", "hold", "release"])),
    st.tuples(st.just("turns"), st.integers(1, 12)),
    st.tuples(st.sampled_from(["break before", "break after"]), st.integers(1, 12)),
    st.tuples(st.just("expire"), st.integers(1, 6)),
)


class Run:
    """One producer and its broker, on the running loop."""

    def __init__(self, *, batching: bool, send_timeout_millis: int = 60_000) -> None:
        self.service = FakeDataService()
        self.topic = self.service.kafka_topics["t"] = FakeKafkaTopic()
        self.connection = MemoryConnection(self.service)
        self.config = ProducerConfig(
            "t",
            send_timeout_millis=send_timeout_millis,
            batching_enabled=batching,
            batching_max_messages=3,
            # Seals are events of the test.
            batching_max_publish_delay_ms=10**9,
        )
        self.keys: list[str | None] = []
        self.was_cut_off = False
        self.heard: list[tuple[int, Result, MessageId | None]] = []

    async def open(self) -> None:
        connection = cast(Connection, self.connection)
        self.core = await ProducerCore.open(connection, self.config, lambda: True)
        self.producer = Producer(cast(IoThread, None), self.core, lambda closed: None)

    def send(self, key: str | None) -> None:
        number = len(self.keys)
        self.keys.append(key)
        self.producer.send_async(
            b"%d" % number, lambda *told: self.heard.append((number, *told)), partition_key=key
        )

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
            self.break_off()
        elif what == "unload":
            self.break_off()
            self.topic.load_anew()
        elif what == "hold":
            service.may_answer.clear()
        elif what == "release":
            service.may_answer.set()
        elif what == "expire":
            self.expire(*details)
        elif what == "break before":
            self.was_cut_off = True
            service.before_store = BreakAt(*details)
        elif what == "break after":
            self.was_cut_off = True
            service.after_store = BreakAt(*details)

    def break_off(self) -> None:
        self.was_cut_off = True
        self.connection.break_off()

    def expire(self, count: int) -> None:
        """The oldest that have no receipt are due: their deadlines are moved, not the clock."""
        stream = self.core.stream
        assert stream.sequences is not None
        refused = (each.entry for each in stream.sequences._unclear)
        waiting = (*refused, *stream.sequences._refused, *stream._sent, *stream._unsent)
        for entry in waiting[:count]:
            entry.deadline_s = 0.0
        if waiting:
            self.was_cut_off = True
            stream._expire()

    async def settle(self) -> None:
        """Everything is answered, one way or the other."""
        self.service.may_answer.set()
        async with asyncio.timeout(WAIT_S):
            await self.core.queue.flush_async()
            await self.core.close()

    def stored(self) -> list[int]:
        """The numbers of the messages that are in the log, by offset."""
        records = self.topic.records()
        assert [record.offset for record in records] == list(range(len(records)))
        return [int(record.value or b"") for record in records]

    def check(self) -> None:
        assert [number for number, *_ in self.heard] == list(range(len(self.keys)))
        stored = self.stored()
        assert stored == sorted(set(stored))
        for number, result, message_id in self.heard:
            if result is Result.Ok:
                assert message_id is not None
                if self.was_cut_off and message_id == MessageId():
                    assert number in stored
                    continue
                assert message_id.ledger_id() == 0
                assert stored[message_id.entry_id()] == number
            elif result is not Result.Timeout:
                assert result is Result.InvalidMessage
                assert number not in stored
        if not self.config.batching_enabled:
            given_up = {number for number, result, _ in self.heard if result is Result.Timeout}
            wanted = [number for number, key in enumerate(self.keys) if key is not None]
            assert [n for n in wanted if n not in given_up] == [
                n for n in stored if n not in given_up
            ]


@settings(max_examples=examples(300))
@given(st.booleans(), st.lists(_events, max_size=50))
def test_no_event_order_loses_duplicates_or_misattributes_messages(
    batching: bool, events: list[tuple[Any, ...]]
) -> None:
    async def run() -> None:
        one = Run(batching=batching)
        await one.open()
        for event in events:
            await one.do(event)
        await one.settle()
        one.check()

    asyncio.run(run())


def test_more_batches_are_in_flight_than_the_broker_remembers() -> None:
    """When the connection breaks then, each is stored once; where the first lie is not known."""

    async def run() -> None:
        one, sent = Run(batching=False), 4 * BATCHES_REMEMBERED
        await one.open()
        one.service.may_answer.clear()
        for _ in range(sent):
            one.send("a")
        await one.do(("turns", 100))
        assert len(one.topic.batches) == sent
        one.break_off()
        await one.settle()
        one.check()
        assert [result for _, result, _ in one.heard] == [Result.Ok] * sent
        places = [message_id for *_, message_id in one.heard]
        known = sent - BATCHES_REMEMBERED
        assert places == [MessageId()] * known + [MessageId(-1, 0, n) for n in range(known, sent)]

    asyncio.run(run())


def test_messages_after_a_failed_one_have_a_new_epoch() -> None:
    """The first message may be stored or not: the second is stored once in either case."""

    async def run(is_stored: bool) -> None:
        one = Run(batching=False, send_timeout_millis=60_000)
        await one.open()
        one.send("a")
        await one.do(("turns", 20))
        one.service.may_answer.clear()
        hook = "after_store" if is_stored else "before_store"
        setattr(one.service, hook, BreakAt(1))
        one.send("a")
        await one.do(("turns", 1))
        one.expire(1)
        one.send("a")
        await one.settle()
        results = [result for _, result, _ in one.heard]
        assert results == [Result.Ok, Result.Timeout, Result.Ok]
        stored = one.stored()
        assert stored in ([0, 2], [0, 1, 2])

    for is_stored in (False, True):
        asyncio.run(run(is_stored))


def test_messages_after_a_failed_one_are_stored_once() -> None:
    """Also where the broker does not remember it any more, and refuses it as out of order."""

    async def run(is_loaded_anew: bool) -> None:
        one, sent, given_up = Run(batching=False), 4 * BATCHES_REMEMBERED, 3
        await one.open()
        one.service.may_answer.clear()
        for _ in range(sent):
            one.send("a")
        await one.do(("turns", 100))
        assert len(one.topic.batches) == sent
        if is_loaded_anew:
            one.topic.load_anew()
        one.expire(given_up)
        await one.settle()
        one.check()
        results = [result for _, result, _ in one.heard]
        assert results == [Result.Timeout] * given_up + [Result.Ok] * (sent - given_up)
        assert one.stored() == list(range(sent))

    for is_loaded_anew in (False, True):
        asyncio.run(run(is_loaded_anew))


def test_a_topic_recreated_as_another_kind_ends_the_producer() -> None:
    async def run() -> None:
        one = Run(batching=False)
        await one.open()
        del one.service.kafka_topics["t"]
        one.connection.break_off()
        one.send("a")
        await one.settle()
        assert "another kind" in str(one.core.stream.error)
        assert [result for _, result, _ in one.heard] == [Result.NotAllowedError]

    asyncio.run(run())


def test_the_numbers_of_batches_follow_one_another() -> None:
    async def run() -> None:
        one = Run(batching=True)
        await one.open()
        for key in ("a", "a", "a", None, "a", "a", "a", "a", "a"):
            one.send(key)
        await one.settle()
        one.check()
        headers = list(map(read_batch_header, one.topic.batches))
        assert [(each.base_sequence, each.record_count) for each in headers] == [(0, 3), (3, 3)]
        assert {(each.producer_id, each.producer_epoch) for each in headers} == {(7, 0)}

    asyncio.run(run())
