"""A small data service in memory, for tests of the client alone.

It speaks data.proto through the generated classes, keeps each topic as a list of stamped entries in
one ledger, and does what a test tells it to: lose a connection before or after storing an entry,
keep receipts back, stay away. It runs on the client's own event loop (gRPC wants one per process).

    >>> from ledgerfold.broker.client import Client
    >>> with running_broker() as broker:
    ...     client = Client(broker.address)
    ...     sent = client.create_producer("t").send(b"v")
    ...     client.close()
    >>> broker.topic("t").values()
    [b'v']
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc

from ledgerfold.broker.client.sync.io_thread import IoThread
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.kafka.producers.producers import Producers
from ledgerfold.rpc_errors import abort_with
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import EARLIEST, EntryHeader, Position, read_header, stamped_header
from ledgerfold.storage.error_codec import encode_error
from ledgerfold.storage.errors import (
    KafkaError,
    KafkaErrorKind,
    LedgerfoldError,
    Moved,
    ProducerBusy,
    SubscriptionBusy,
    SubscriptionExists,
    Unavailable,
)
from ledgerfold.storage.kafka.batch import (
    BATCH_HEADER_BYTES,
    packed_header,
    placed,
    read_batch_header,
)
from ledgerfold.storage.kafka.records import KafkaRecord, columns_of, records_of
from ledgerfold.v1 import admin_pb2, admin_pb2_grpc, data_pb2, data_pb2_grpc, records_pb2

LEDGER_ID = 7
ENTRY_BYTES_MAX = 256 * 1024
_PREFIX = "persistent://public/default/"


@dataclass
class FakeSubscription:
    """`next` is the index of the next entry to deliver."""

    acknowledged: set[Position] = field(default_factory=set)
    cumulative: Position = EARLIEST
    next: int = 0
    consumers: int = 0
    redelivered: list[list[Position]] = field(default_factory=list)
    # Another number after each seek.
    incarnation: int = 0
    # Set: its consumers are disconnected.
    moved: asyncio.Event = field(default_factory=asyncio.Event)
    counts: dict[Position, int] = field(default_factory=dict)


@dataclass
class FakeTopic:
    entries: list[bytes] = field(default_factory=list)
    sequence_ids: dict[str, int] = field(default_factory=dict)
    connected: set[str] = field(default_factory=set)
    subscriptions: dict[str, FakeSubscription] = field(default_factory=dict)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def store(self, entry: bytes, append_time_ms: int = 1) -> Position:
        header = read_header(entry)
        position = Position(LEDGER_ID, len(self.entries))
        stamped = stamped_header(header, *position, append_time_ms, 1)
        self.entries.append(stamped + entry[header.header_bytes :])
        self.notify()
        return position

    def headers(self) -> list[EntryHeader]:
        return [read_header(entry) for entry in self.entries]

    def values(self) -> list[bytes]:
        return [message.value for entry in self.entries for message in decode(entry).messages()]

    def notify(self) -> None:
        """Wakes everyone who waits for a change."""
        changed, self.changed = self.changed, asyncio.Event()
        changed.set()

    def index_at(self, start: data_pb2.StartPosition) -> int:
        """The entry at which a read begins."""
        at = start.WhichOneof("at")
        if at == "earliest":
            return 0
        if at == "publish_time_ms":
            times = [header.publish_time_ms for header in self.headers()]
            return next(
                (i for i, time in enumerate(times) if time >= start.publish_time_ms), len(times)
            )
        if at == "message_id":
            wanted = start.message_id
            headers = self.headers()[wanted.entry_id :]
            is_batch = bool(headers) and not headers[0].is_plain
            whole = start.inclusive or wanted.batch_index >= 0 or is_batch
            return wanted.entry_id + (0 if whole else 1)
        return len(self.entries)


def _combined(receipts: list[data_pb2.Receipt]) -> list[data_pb2.Receipt]:
    """As a broker of this version does, and duplicates, too."""
    combined: list[data_pb2.Receipt] = []
    for receipt in receipts:
        last = combined[-1] if combined else None
        count = 0 if last is None else last.entries or 1
        step = 0 if receipt.ledger_id < 0 else count
        if last is not None and (receipt.ledger_id, receipt.entry_id) == (
            last.ledger_id,
            last.entry_id + step,
        ):
            last.sequence_id, last.entries = receipt.sequence_id, count + 1
        else:
            combined.append(receipt)
    return combined


def _short(topic: str) -> str:
    """Full and short names are the same topic's."""
    return topic.removeprefix(_PREFIX)


class FakeKafkaTopic:
    """Takes batches as a Kafka topic does that is compacted, and knows one that comes again."""

    def __init__(self) -> None:
        self.producers = Producers("t-0", expiration_ms=10**15)
        self.batches: list[bytes] = []
        self.batch_bytes_max = 1_000_000

    def take(self, entry: bytes) -> data_pb2.Receipt:
        header = read_header(entry)
        batch = entry[header.header_bytes :]
        receipt = data_pb2.Receipt(sequence_id=header.sequence_id)
        try:
            receipt.entry_id = self._append(batch)
        except KafkaError as error:
            reason, message, attributes = encode_error(error)
            refusal = data_pb2.Refusal(reason=reason, message=message, attributes=attributes)
            receipt.refusal.CopyFrom(refusal)
        return receipt

    def _append(self, batch: bytes) -> int:
        header = placed(read_batch_header(batch), self.producers.end_offset)
        if None in columns_of(batch).keys:
            raise KafkaError(KafkaErrorKind.INVALID_RECORD, "Without a key.")
        prepared = self.producers.prepare(header, None, Origin.CLIENT)
        if prepared.duplicate is not None:
            return prepared.duplicate.first_offset
        self.producers.commit(prepared, 0)
        self.batches.append(packed_header(header) + batch[BATCH_HEADER_BYTES:])
        return header.base_offset

    def load_anew(self) -> None:
        """Loads again: it knows the last batch of each producer alone, as after any clean
        restart.
        """
        self.producers.load(list(self.producers.snapshot()), self.producers.end_offset, now_ms=0)

    def records(self) -> list[KafkaRecord]:
        return [record for batch in self.batches for record in records_of(batch)]


class FakeDataService(data_pb2_grpc.DataServiceServicer):
    """The service. What a test may set stands at the top."""

    def __init__(self) -> None:
        self.topics: dict[str, FakeTopic] = {}
        # These are looked for first; producers alone know them.
        self.kafka_topics: dict[str, FakeKafkaTopic] = {}
        # How many, by the name of the partitioned topic.
        self.partitions: dict[str, int] = {}
        # Called with each entry before and after it is stored; may raise to break the stream.
        self.before_store: Callable[[bytes], None] = lambda entry: None
        self.after_store: Callable[[bytes], None] = lambda entry: None
        # The same with each acknowledgement that came, before it is taken note of.
        self.before_ack: Callable[[data_pb2.Ack], None] = lambda ack: None
        # Raised by each new stream while it is set.
        self.refusal: LedgerfoldError | None = None
        # Cleared: receipts and answers to acknowledgements wait.
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.entry_bytes_max = ENTRY_BYTES_MAX
        self.frames_published = 0
        # Entries at consecutive positions get a receipt together.
        self.combines_receipts = False
        self.opened: list[Any] = []

    def topic(self, name: str) -> FakeTopic:
        return self.topics.setdefault(_short(name), FakeTopic())

    def _on_open(self, opening: Any) -> FakeTopic:
        self.opened.append(opening)
        if self.refusal is not None:
            raise self.refusal
        return self.topic(opening.topic)

    async def GetPartitions(self, request: Any, context: Any) -> Any:  # noqa: N802
        return data_pb2.GetPartitionsResponse(
            partitions=self.partitions.get(_short(request.topic), 0)
        )

    async def Publish(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        name, topic, kafka = "", FakeTopic(), None
        try:
            async for request in requests:
                if request.HasField("open"):
                    topic = self._on_open(request.open)
                    wanted = request.open.producer_name or f"fake-{len(self.opened)}"
                    if wanted in topic.connected:
                        raise ProducerBusy(request.open.topic, wanted)
                    name = wanted
                    topic.connected.add(name)
                    kafka = self.kafka_topics.get(_short(request.open.topic))
                    yield self._publish_ready(topic, name, kafka)
                    continue
                self.frames_published += 1
                receipts = [self._store(topic, name, entry, kafka) for entry in request.entries]
                if self.combines_receipts and kafka is None:
                    receipts = _combined(receipts)
                await self.may_answer.wait()
                yield data_pb2.PublishResponse(receipts=receipts)
        except LedgerfoldError as error:
            await abort_with(context, error)
        finally:
            topic.connected.discard(name)

    def _publish_ready(
        self, topic: FakeTopic, name: str, kafka: FakeKafkaTopic | None
    ) -> data_pb2.PublishResponse:
        ready = data_pb2.PublishReady(
            producer_name=name,
            last_sequence_id=topic.sequence_ids.get(name, -1),
            entry_bytes_max=self.entry_bytes_max,
        )
        if kafka is not None:
            ready.codec = data_pb2.ENTRY_CODEC_KAFKA
            ready.kafka.batch_bytes_max = kafka.batch_bytes_max
        return data_pb2.PublishResponse(ready=ready)

    def _store(
        self, topic: FakeTopic, name: str, entry: bytes, kafka: FakeKafkaTopic | None
    ) -> data_pb2.Receipt:
        sequence_id = read_header(entry).sequence_id
        position = Position(-1, -1)
        self.before_store(entry)
        if kafka is not None:
            receipt = kafka.take(entry)
            self.after_store(entry)
            return receipt
        if sequence_id > topic.sequence_ids.get(name, -1):
            topic.sequence_ids[name] = sequence_id
            position = topic.store(entry)
        self.after_store(entry)
        return data_pb2.Receipt(
            sequence_id=sequence_id, ledger_id=position.ledger_id, entry_id=position.entry_id
        )

    async def Read(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async for response in _guarded(_ReadCall(self, requests).responses(), context):
            yield response

    async def Subscribe(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async for response in _guarded(_SubscribeCall(self, requests).responses(), context):
            yield response

    async def GetLastMessageId(self, request: Any, context: Any) -> Any:  # noqa: N802
        topic = self.topic(request.topic)
        last = records_pb2.MessageId(ledger_id=-1, entry_id=-1, batch_index=-1, partition=-1)
        if topic.entries:
            header = topic.headers()[-1]
            last.ledger_id, last.entry_id = header.position
            last.batch_index = -1 if header.is_plain else header.message_count - 1
        return data_pb2.GetLastMessageIdResponse(message_id=last)

    async def Seek(self, request: Any, context: Any) -> Any:  # noqa: N802
        topic = self.topic(request.topic)
        subscription = topic.subscriptions[request.subscription]
        self.move(subscription, topic.index_at(request.start))
        return data_pb2.SeekResponse(incarnation=subscription.incarnation)

    async def Unsubscribe(self, request: Any, context: Any) -> Any:  # noqa: N802
        del self.topic(request.topic).subscriptions[request.subscription]
        return data_pb2.UnsubscribeResponse()

    def move(self, subscription: FakeSubscription, index: int) -> None:
        """A seek: its consumers are sent away."""
        subscription.next = index
        subscription.incarnation += 1
        subscription.acknowledged.clear()
        subscription.cumulative = EARLIEST
        self.disconnect_consumers(subscription)

    @staticmethod
    def disconnect_consumers(subscription: FakeSubscription) -> None:
        moved, subscription.moved = subscription.moved, asyncio.Event()
        moved.set()


async def _guarded(responses: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
    try:
        async for response in responses:
            yield response
    except LedgerfoldError as error:
        await abort_with(context, error)


class _Call:
    """A call that reacts to requests and to the topic, in one loop."""

    def __init__(self, service: FakeDataService, requests: Any) -> None:
        self.service = service
        self.topic = FakeTopic()
        self.permits = 0
        self.next = 0
        self.pending: list[Any] = []
        self.is_over = False
        self.news = asyncio.Event()
        self._requests = requests

    async def pump(self) -> None:
        async for request in self._requests:
            self.pending.append(request)
            self.news.set()
        self.is_over = True
        self.news.set()

    async def wait(self, *others: asyncio.Event) -> None:
        """Until a request came, no more will come, or one of the events is set."""
        if self.is_over:
            return
        waits = [asyncio.ensure_future(event.wait()) for event in (self.news, *others)]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waits:
                one.cancel()
        self.news.clear()

    def is_wanted(self, position: Position) -> bool:
        return True

    def take_entries(self) -> list[bytes]:
        """Takes the entries that the permits allow."""
        taken = []
        while self.permits > 0 and self.next < len(self.topic.entries):
            entry = self.topic.entries[self.next]
            self.next += 1
            header = read_header(entry)
            if self.is_wanted(header.position):
                self.permits -= header.message_count
                taken.append(entry)
        return taken


class _ReadCall(_Call):
    async def responses(self) -> AsyncIterator[Any]:
        pump = asyncio.ensure_future(self.pump())
        checks: list[int] = []
        try:
            while not self.is_over or self.pending:
                changed = self.topic.changed
                while self.pending:
                    request = self.pending.pop(0)
                    if request.HasField("open"):
                        self.topic = self.service._on_open(request.open)
                        self.next = self.topic.index_at(request.open.start)
                        yield data_pb2.ReadResponse(ready=data_pb2.ReadReady(reader_name="r"))
                    elif request.HasField("seek"):
                        self.next = self.topic.index_at(request.seek.start)
                        yield data_pb2.ReadResponse(seek_id=request.seek.seek_id)
                    elif request.HasField("check_id"):
                        checks.append(request.check_id)
                    self.permits += request.permits
                entries = self.take_entries()
                if entries:
                    yield data_pb2.ReadResponse(entries=entries)
                has_more = bool(entries) or self.next < len(self.topic.entries)
                if checks and not has_more:
                    yield data_pb2.ReadResponse(end_of_data_check_ids=checks)
                elif checks and entries:
                    yield data_pb2.ReadResponse(more_check_ids=checks)
                if entries or not has_more:
                    checks = []
                if self.service.refusal is not None:
                    raise self.service.refusal
                await self.wait(changed)
        finally:
            pump.cancel()


class _SubscribeCall(_Call):
    subscription = FakeSubscription()

    def is_wanted(self, position: Position) -> bool:
        known = self.subscription
        return position not in known.acknowledged and position > known.cumulative

    async def responses(self) -> AsyncIterator[Any]:
        pump = asyncio.ensure_future(self.pump())
        subscription = FakeSubscription()
        try:
            await self.wait()
            opening = self.pending.pop(0).open
            self.topic = self.service._on_open(opening)
            self.subscription = subscription = self._subscription(opening)
            moved, may_answer = subscription.moved, self.service.may_answer
            questions: list[int] = []
            ready = data_pb2.SubscribeReady(
                consumer_name="c-1", incarnation=subscription.incarnation
            )
            yield data_pb2.SubscribeResponse(ready=ready)
            while not self.is_over or self.pending:
                changed = self.topic.changed
                while self.pending:
                    request = self.pending.pop(0)
                    self._handle(request, subscription)
                    if request.ack.request_id:
                        questions.append(request.ack.request_id)
                if questions and may_answer.is_set():
                    yield data_pb2.SubscribeResponse(acked_request_ids=questions)
                    questions.clear()
                deliveries = self._deliveries(subscription)
                if deliveries:
                    yield data_pb2.SubscribeResponse(deliveries=deliveries)
                await self.wait(changed, moved, *([may_answer] if questions else []))
                if moved.is_set():
                    raise Moved("The subscription moved.")
        finally:
            subscription.consumers -= 1
            pump.cancel()

    def _subscription(self, opening: Any) -> FakeSubscription:
        known = self.topic.subscriptions
        if opening.subscription not in known:
            start = self.topic.index_at(opening.start)
            known[opening.subscription] = FakeSubscription(next=start)
        subscription = known[opening.subscription]
        if subscription.consumers and opening.type == data_pb2.SUBSCRIPTION_TYPE_EXCLUSIVE:
            raise SubscriptionBusy(opening.topic, opening.subscription, "it is exclusive.")
        subscription.consumers += 1
        self.next = subscription.next
        return subscription

    def _handle(self, request: Any, subscription: FakeSubscription) -> None:
        self.permits += request.permits
        if request.HasField("ack"):
            self.service.before_ack(request.ack)
        positions = [
            Position(one.ledger_id, one.entry_id)
            for one in (*request.ack.positions, *request.redeliver.positions)
        ]
        if request.HasField("ack") and request.ack.cumulative:
            subscription.cumulative = max(subscription.cumulative, positions[0])
        elif request.HasField("ack"):
            subscription.acknowledged.update(positions)
        elif request.HasField("redeliver"):
            subscription.redelivered.append(positions)
            first = min((one.entry_id for one in positions), default=subscription.next)
            # What is yet to be delivered again is not passed over.
            self.next = min(self.next, first)
        self.topic.notify()

    def _deliveries(self, subscription: FakeSubscription) -> list[data_pb2.Delivery]:
        deliveries = []
        for entry in self.take_entries():
            position = read_header(entry).position
            count = subscription.counts.get(position, 0)
            subscription.counts[position] = count + 1
            deliveries.append(data_pb2.Delivery(entry=entry, redelivery_count=count))
        if deliveries:
            self.topic.notify()
        return deliveries


class FakeAdminService(admin_pb2_grpc.AdminServiceServicer):
    """Lists the topics of the data service."""

    def __init__(self, data: FakeDataService) -> None:
        self._data = data

    async def ListTopics(self, request: Any, context: Any) -> Any:  # noqa: N802
        prefix = f"persistent://{request.namespace}/"
        full = (name if "://" in name else _PREFIX + name for name in sorted(self._data.topics))
        return admin_pb2.ListTopicsResponse(
            topics=[name for name in full if name.startswith(prefix)]
        )

    async def CreateSubscription(self, request: Any, context: Any) -> Any:  # noqa: N802
        topic = self._data.topic(request.topic)
        if request.subscription in topic.subscriptions:
            await abort_with(context, SubscriptionExists(request.topic, request.subscription))
        topic.subscriptions[request.subscription] = FakeSubscription(
            next=topic.index_at(request.start)
        )
        return admin_pb2.CreateSubscriptionResponse()


class FakeBroker:
    """A server around the service; stops and starts again on the same port, with its data."""

    def __init__(self) -> None:
        self.service = FakeDataService()
        self.port = 0
        self._server: Any = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        options = (("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1))
        self._server = grpc.aio.server(options=options)
        data_pb2_grpc.add_DataServiceServicer_to_server(self.service, self._server)
        admin_pb2_grpc.add_AdminServiceServicer_to_server(
            FakeAdminService(self.service), self._server
        )
        self.port = self._server.add_insecure_port(f"127.0.0.1:{self.port}")
        await self._server.start()

    async def stop(self) -> None:
        """At once: streams break off."""
        await self._server.stop(None)

    def topic(self, name: str) -> FakeTopic:
        return self.service.topic(name)


class ThreadedFakeBroker(FakeBroker):
    """The same for synchronous tests: runs on the clients' I/O thread."""

    def start_now(self) -> None:
        IoThread.shared().call(self.start())

    def stop_now(self) -> None:
        IoThread.shared().call(self.stop())

    def store(self, name: str, entry: bytes) -> Position:
        async def store() -> Position:
            return self.topic(name).store(entry)

        return IoThread.shared().call(store())

    def do(self, action: Callable[[], object]) -> None:
        """Runs it on the broker's event loop."""

        async def run() -> None:
            action()

        IoThread.shared().call(run())


@contextmanager
def running_broker() -> Iterator[ThreadedFakeBroker]:
    broker = ThreadedFakeBroker()
    broker.start_now()
    try:
        yield broker
    finally:
        broker.service.refusal = None
        broker.stop_now()


class BreakAt:
    """Breaks the stream at the n-th entry or acknowledgement, once."""

    def __init__(self, entry_number: int) -> None:
        self._left = entry_number

    def __call__(self, _: object) -> None:
        self._left -= 1
        if self._left == 0:
            raise Unavailable("The test broke the connection.")
