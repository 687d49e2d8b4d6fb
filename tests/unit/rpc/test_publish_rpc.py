"""Large and invalid requests of the Publish stream."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ledgerfold.broker.common.clock import WallClock
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.rpc import publish
from ledgerfold.broker.rpc.stream import EOF, feed
from ledgerfold.broker.topics.access import Claim
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.broker.topics.receipts import IN_FLIGHT_BYTES_MAX, RECEIPTS_MAX
from ledgerfold.broker.wire.frames import encode_entries
from ledgerfold.storage.entry import (
    ENTRY_BYTES_MAX,
    Buffer,
    EntryFields,
    Position,
    build_entry,
)
from ledgerfold.storage.entry_check import check_entry
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.v1 import data_pb2
from ledgerfold.v1.records_pb2 import ProducerRecord
from tests.support.turns import Turns


class FakeProducer:
    """Takes every entry as a real one does, and keeps it."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.error: LedgerfoldError | None = None
        self.is_finished = False

    def append_all(self, entries: Iterable[Buffer]) -> None:
        for entry in entries:
            if len(entry) < 8:
                check_entry(entry)
            self.taken.append(bytes(entry))

    async def has_room(self) -> None:
        pass

    def end(self, error: LedgerfoldError) -> None:
        self.error = error

    def finish(self) -> None:
        self.is_finished = True


class FakeContext:
    def __init__(self, *frames: bytes) -> None:
        self._frames: list[Any] = [*frames, EOF]

    async def read(self) -> Any:
        return self._frames.pop(0)


async def receive(producer: FakeProducer, *frames: bytes) -> None:
    fed = cast(Producer, producer)
    await feed(cast(Any, FakeContext(*frames)), fed, lambda frame: publish.take(frame, fed))


def test_a_large_frame_yields_to_other_tasks() -> None:
    """All are stored in order, and no other task waits for more than a slice."""

    async def test() -> None:
        producer = FakeProducer()
        entries = [b"%08d" % n for n in range(20_000)]
        async with Turns(lambda: len(producer.taken)) as turns:
            await receive(producer, encode_entries(entries))
        assert producer.taken == entries
        assert producer.is_finished
        assert turns.most <= publish.SLICE_ENTRIES

    asyncio.run(test())


def test_a_frame_of_empty_entries_is_refused_at_the_first_one() -> None:
    """Nothing is made of the half million behind it."""

    async def test() -> None:
        producer = FakeProducer()
        frame = encode_entries([b""]) * 500_000
        tracemalloc.start()
        try:
            await receive(producer, frame)
            _, peak_bytes = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert isinstance(producer.error, InvalidRequest)
        assert producer.taken == []
        assert peak_bytes < 1_000_000

    asyncio.run(test())


@pytest.mark.parametrize("behind", [b"\x18\x01", b"\x0a\x00", b"\x10\x01", b"\x13", b"\x12"])
def test_a_frame_may_contain_only_entries(behind: bytes) -> None:
    """After another or a broken field, the previous entries are stored and the stream ends."""

    async def test() -> None:
        producer = FakeProducer()
        await receive(producer, encode_entries([b"12345678"]) + behind)
        assert producer.taken == [b"12345678"]
        assert isinstance(producer.error, InvalidRequest)

    asyncio.run(test())


def test_the_size_of_the_first_request_is_limited() -> None:
    """It is parsed as a whole."""

    async def test() -> None:
        opening = data_pb2.PublishRequest(open=data_pb2.PublishOpen(topic="t"))
        frame = opening.SerializeToString() + encode_entries([b""]) * 100_000
        with pytest.raises(InvalidRequest, match="200005 bytes"):
            await publish.REQUESTS.opening(cast(Any, FakeContext(frame)))

    asyncio.run(test())


def a_producer(log: Any, last_sequence_id: int) -> Producer:
    topic: Any = SimpleNamespace(clock=WallClock(), entry_bytes_max=ENTRY_BYTES_MAX)
    deduplication, record = cast(Any, None), ProducerRecord(last_sequence_id=last_sequence_id)
    return Producer(topic, log, deduplication, "p", record, lambda producer: None, Claim())


def test_receipts_of_duplicates_are_bounded() -> None:
    """A client that reads no receipts can make the broker queue only that many."""

    async def test() -> None:
        log = SimpleNamespace(
            tail=SimpleNamespace(last_appended=Position(0, 9)), state=LogState("t")
        )
        producer = a_producer(log, last_sequence_id=5)
        payload = b"v" * 1000
        entry = memoryview(build_entry(b"", payload, EntryFields(message_count=1, sequence_id=3)))
        for _ in range(IN_FLIGHT_BYTES_MAX // len(entry) + 1):
            producer.append_all([entry])
        room = asyncio.create_task(producer.has_room())
        await asyncio.sleep(0)
        assert not room.done()
        log.state.last_durable = Position(0, 9)
        assert len(await producer.receipts()) == RECEIPTS_MAX
        await room

    asyncio.run(test())


def test_a_negative_sequence_id_is_refused() -> None:
    """It would pass for one that was stored before."""
    log = SimpleNamespace(
        tail=SimpleNamespace(last_appended=None),
        state=SimpleNamespace(on_durable=set(), last_durable=None, failure=None),
    )
    producer = a_producer(log, last_sequence_id=-1)
    entry = build_entry(b"", b"", EntryFields(message_count=1, sequence_id=-4))
    with pytest.raises(InvalidRequest, match="-4"):
        producer.append_all([memoryview(entry)])
