"""A complete broker in the test's process, on a simulated disk, with a compactor in memory.

Everything between the RPC handlers and the disk is real; gRPC, Spark and the disk are not. Entries
are published through a Producer, read through the handler of the Read stream.

    >>> lab = BrokerLab()
    >>> position = lab.publish([([Message(b"a", b"1")], False)])
    >>> run = lab.compact()
    >>> lab.crash()
    >>> len(lab.read(EARLIEST, read_compacted=True))
    1
    >>> lab.stop()
    >>> lab.loop.close()
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

from ledgerfold.broker.common.clock import ManualClock
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.faults.faults import Faults
from ledgerfold.broker.rpc.read import read as read_handler
from ledgerfold.broker.rpc.stream import EOF
from ledgerfold.broker.subscriptions.consumer import ConsumerOptions, Delivery
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.broker.wire.frames import BULK_FIELD, decode_field, is_bulk
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import EARLIEST, Buffer, Position, read_header
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.ledger import LedgerStore, StoreSettings
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.served_entry import read_served_header
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.v1 import data_pb2
from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS, RUN_TRIGGER_ADMIN, MessageId, RunRecord
from tests.model.log_model import Message, Read
from tests.support.inline_executor import InlineExecutor
from tests.support.lossy_files import CountedKeyValue, LossyFiles, Tail, nothing
from tests.support.memory_compactor import MemoryCompactor
from tests.support.waiting import WAIT_S

TOPIC = "persistent://public/default/t"
DATA = Path("/disk/data")
# Small enough that a few entries roll segments and ledgers.
STORE = StoreSettings(segment_bytes_max=600, ledger_entries_max=6)
T = TypeVar("T")


class TickingClock(ManualClock):
    """Each reading of it takes a millisecond."""

    def now_ms(self) -> int:
        self._now_ms += 1
        return self._now_ms


class BrokerLab:
    """`files` is the disk, which stays; brokers on it start and stop. `faults`: their rules."""

    # One that is resumed has none.
    faults: Faults | None = None

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults
        self.files = LossyFiles(Path("/disk"))
        self.clock = TickingClock(1_000_000)
        self._pairs = CountedKeyValue(self.files)
        self._sequence = 0
        self.open()

    def resume(
        self, files: LossyFiles, pairs: CountedKeyValue, *, is_same_boot: bool = True
    ) -> None:
        """Continues on an existing disk; `is_same_boot`: its machine did not stop."""
        self.files, self._pairs = files, pairs
        self.clock = TickingClock(1_000_000)
        self._sequence = 0
        self.open(is_same_boot=is_same_boot)

    def open(self, *, is_same_boot: bool = False) -> None:
        self.clock = TickingClock(self.clock.now_ms())
        self.metadata = MetadataStore(self._pairs)
        self.store = LedgerStore(
            DATA, self.metadata, files=self.files, settings=STORE, clock_ms=self.clock.now_ms
        )
        self.report = self.store.recover(is_same_boot=is_same_boot)
        self.loop = asyncio.new_event_loop()
        self.loop.set_default_executor(InlineExecutor())
        settings = BrokerSettings(
            failover_delay_ms=0,
            data_dir=DATA,
            compactor="off",
            store=STORE,
            # The compactor in memory supports these, or a test makes it do so.
            allowed_strategies=AllowedStrategies(("shop:Everything", "shop:Best", "mine:Own")),
            # Passes run on request of a test.
            kafka_config={"log.cleaner.enable": "false"},
        )
        self.compactor = MemoryCompactor(self.files)
        self.broker = Broker(
            settings, self.metadata, self.store, self.compactor, self.clock, self.faults
        )
        self.broker.executor = self.broker.schemas.executor = InlineExecutor()
        self.run(self.broker.start())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(asyncio.wait_for(work, WAIT_S))

    def run_until_crash(self, work: Coroutine[Any, Any, Any]) -> None:
        """Runs until the end, or until the disk fails, in any task."""
        task = self.loop.create_task(work)
        while not task.done() and not self.files.has_crashed:
            self.loop.run_until_complete(asyncio.sleep(0))

    def advance(self, by_ms: int) -> None:
        """Advances time as `ledgerfold clock advance`."""
        self.run(self.clock.move_to(self.clock.now_ms() + by_ms))
        self.run(self.broker.housekeeping.check_all())
        self.settle()

    def settle(self) -> None:
        """Lets background work (trimming after a roll) complete."""

        async def turn() -> None:
            for _ in range(20):
                await asyncio.sleep(0)

        self.run(turn())

    @property
    def topic(self) -> Topic:
        return self.run(self.broker.topic(TOPIC))

    # Ends

    def stop(self) -> None:
        """Stops as on SIGTERM."""
        self.run(self.broker.stop())
        self._drop()

    def crash(self, tail: Tail = nothing, meanwhile: Callable[[], None] = lambda: None) -> None:
        """The machine stops, and restarts; `meanwhile`: the disk's behaviour in between."""
        self._drop()
        self.files.crash(tail)
        meanwhile()
        self.open()

    def restart(self) -> None:
        self.stop()
        self.open()

    def _drop(self) -> None:
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.wait(tasks))
        self.loop.close()

    # Publishing

    def entry(self, messages: Sequence[Message], *, is_batch: bool) -> bytes:
        builder = NativeBatchBuilder("p")
        for key, value, *_ in messages:
            builder.add(value, key)
        self._sequence += len(messages)
        return builder.build(
            sequence_id=self._sequence, publish_time_ms=self.clock.now_ms(), plain=not is_batch
        )

    def publish(
        self, entries: Sequence[tuple[list[Message], bool]], topic: str = TOPIC
    ) -> list[Position]:
        """Returns the positions once all are acknowledged. Pairs with `is_batch`."""
        return self.run(self.publishing(entries, topic))

    async def publishing(
        self, entries: Sequence[tuple[list[Message], bool]], topic: str = TOPIC
    ) -> list[Position]:
        """Returns the same as a coroutine."""
        loaded = await self.broker.topic(topic, to_write=True)
        producer = await loaded.attach_producer("p")
        try:
            for messages, is_batch in entries:
                producer.append_all([memoryview(self.entry(messages, is_batch=is_batch))])
            producer.finish()
            found: list[Position] = []
            while receipts := await producer.receipts():
                found += [each.position for each in receipts]
            return found
        finally:
            producer.detach()

    def append(self, entries: Sequence[tuple[list[Message], bool]], turns: int) -> list[Position]:
        """Appends without waiting for an acknowledgement: the loop runs this number of steps."""

        async def append() -> list[Position]:
            topic = await self.broker.topic(TOPIC)
            record = await topic.deduplication.register("q", lambda: topic.log.state.last_durable)
            positions = []
            for messages, is_batch in entries:
                entry = memoryview(self.entry(messages, is_batch=is_batch))
                header = read_header(entry)
                body = entry[header.header_bytes :]
                positions.append(topic.log.tail.append(header, (body,), record.number))
            for _ in range(turns):
                await asyncio.sleep(0)
            return positions

        return self.run(append())

    # Compaction

    def compact(self) -> RunRecord | None:
        """Runs to the end; returns its record, None if there was nothing new."""
        return self.run(self.compaction())

    async def compaction(self, topic_name: str = TOPIC) -> RunRecord | None:
        """Returns the same as a coroutine."""
        topic = await self.broker.topic(topic_name)
        number = await self.broker.compaction.trigger(topic, RUN_TRIGGER_ADMIN)
        async for status in self.broker.compaction.watch(topic):
            last = status.run
        return last if number else None

    @staticmethod
    def succeeded(run: RunRecord) -> bool:
        return run.state == RUN_STATE_SUCCESS

    # Reading

    def reader(self, start: Position, *, read_compacted: bool, inclusive: bool = True) -> ReadCall:
        return ReadCall(self, start, read_compacted=read_compacted, inclusive=inclusive)

    def read(
        self,
        start: Position,
        *,
        read_compacted: bool,
        inclusive: bool = True,
        topic: str = TOPIC,
    ) -> list[Read]:
        """Reads to the end, and checks has-more before each step."""
        call = ReadCall(
            self, start, read_compacted=read_compacted, inclusive=inclusive, topic=topic
        )
        try:
            return call.rest()
        finally:
            call.close()

    def consume(self, count: int, *, read_compacted: bool) -> list[Read]:
        """Reads `count` entries of the durable subscription "s", and acknowledges them durably,
        cumulatively.
        """

        async def consume() -> list[Read]:
            topic = await self.broker.topic(TOPIC)
            start = data_pb2.StartPosition(earliest=True)
            subscription = await create_subscription(topic, "s", start)
            consumer = subscription.attach(
                ConsumerOptions(SubscriptionType.EXCLUSIVE, read_compacted=read_compacted)
            )
            subscription.add_permits(consumer, 1_000)
            received: list[Delivery] = []
            while len(received) < count:
                output = await consumer.take()
                assert output is not None
                received += output.deliveries
            received = received[:count]
            if received:
                subscription.acknowledge(
                    consumer, [received[-1].position], cumulative=True, request_id=1
                )
                while output := await consumer.take():
                    if output.acked_request_ids:
                        break
            subscription.detach(consumer)
            return [read for each in received for read in _messages(each.entry)]

        return self.run(consume())


class ReadCall:
    """A Read stream, driven by hand."""

    def __init__(
        self,
        lab: BrokerLab,
        start: Position,
        *,
        read_compacted: bool,
        inclusive: bool,
        topic: str = TOPIC,
    ) -> None:
        self._lab = lab
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._reads: list[Read] = []
        self._answers: dict[int, bool] = {}
        # The broker has reported that no more entries will follow.
        self.has_ended = False
        self._changed = asyncio.Event()
        self._checks = 0
        opening = data_pb2.ReadOpen(
            reads_pulsar_entries=True,
            topic=topic,
            start=_start(start, inclusive),
            read_compacted=read_compacted,
        )
        self._put(data_pb2.ReadRequest(open=opening))
        self._task = lab.loop.create_task(read_handler(lab.broker, cast(Any, self)))

    def _put(self, request: data_pb2.ReadRequest) -> None:
        self._requests.put_nowait(request.SerializeToString())

    # As a gRPC context

    def peer(self) -> str:
        return "ipv4:127.0.0.1:1"

    async def read(self) -> Any:
        return await self._requests.get()

    async def send_initial_metadata(self, metadata: tuple[()]) -> None:
        """Headers mean nothing here."""

    async def write(self, frame: bytes) -> None:
        if is_bulk(frame):
            for entry in decode_field(frame, BULK_FIELD):
                self._reads += _messages(entry)
        else:
            response = data_pb2.ReadResponse.FromString(frame)
            self.has_ended |= response.end_of_topic
            self._answers.update(dict.fromkeys(response.end_of_data_check_ids, False))
            self._answers.update(dict.fromkeys(response.more_check_ids, True))
        self._changed.set()

    # For tests

    def some(self, messages: int) -> list[Read]:
        """Returns about this number, fewer at the end; checks that "has more" matches the
        entries.
        """
        found: list[Read] = []
        while len(found) < messages and self._has_more():
            assert self._reads, "more was promised, and nothing came"
            found += self._reads
            self._reads = []
        return found

    def rest(self) -> list[Read]:
        return self.some(1_000_000)

    def _has_more(self) -> bool:
        async def ask() -> bool:
            self._checks += 1
            self._put(data_pb2.ReadRequest(check_id=self._checks))
            while self._checks not in self._answers:
                self._changed.clear()
                waits = {asyncio.ensure_future(self._changed.wait()), self._task}
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                if self._task.done():
                    self._task.result()
            return self._answers[self._checks]

        return self._lab.run(ask())

    def close(self) -> None:
        """The client disconnects; if the stream ended before, the reason does not matter."""
        self._requests.put_nowait(EOF)

        async def end() -> None:
            with suppress(LedgerfoldError):
                await self._task

        self._lab.run(end())


def _start(position: Position, inclusive: bool) -> data_pb2.StartPosition:
    if position == EARLIEST:
        return data_pb2.StartPosition(earliest=True)
    message_id = MessageId(
        ledger_id=position.ledger_id, entry_id=position.entry_id, batch_index=-1, partition=-1
    )
    return data_pb2.StartPosition(message_id=message_id, inclusive=inclusive)


def _messages(entry: Buffer) -> list[Read]:
    header = read_served_header(entry)
    return [
        Read(header.position, each.batch_index, Message(each.key, each.value))
        for each in decode(entry, header).messages()
    ]
