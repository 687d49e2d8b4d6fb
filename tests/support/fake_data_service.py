"""A small data service in memory, for tests of the client alone.

It speaks data.proto through the generated classes and follows the test: it loses a connection
before or after storing an entry, withholds receipts, stays unavailable. Its topics are in
tests/support/fake_topics.py, its server in tests/support/fake_broker.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

from ledgerfold.rpc_errors import abort_with
from ledgerfold.storage.entry import EARLIEST, Position, read_header
from ledgerfold.storage.errors import (
    LedgerfoldError,
    ProducerBusy,
    SubscriptionExists,
    TopicIsPartitioned,
    Unavailable,
)
from ledgerfold.v1 import admin_pb2, admin_pb2_grpc, data_pb2, data_pb2_grpc, records_pb2
from tests.support.fake_calls import ReadCall, SubscribeCall, guarded
from tests.support.fake_topics import (
    PREFIX,
    FakeKafkaTopic,
    FakeSubscription,
    FakeTopic,
    short_name,
)

ENTRY_BYTES_MAX = 256 * 1024


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


class FakeDataService(data_pb2_grpc.DataServiceServicer):
    """The service. A test may set the attributes at the top."""

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
        # Raised by the next streams, one each.
        self.next_refusals: list[LedgerfoldError] = []
        # Cleared: receipts and answers to acknowledgements wait.
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.entry_bytes_max = ENTRY_BYTES_MAX
        self.frames_published = 0
        # Entries at consecutive positions get a receipt together.
        self.combines_receipts = False
        self.opened: list[Any] = []

    def topic(self, name: str) -> FakeTopic:
        return self.topics.setdefault(short_name(name), FakeTopic())

    def on_open(self, opening: Any) -> FakeTopic:
        self.opened.append(opening)
        if self.next_refusals:
            raise self.next_refusals.pop(0)
        if self.refusal is not None:
            raise self.refusal
        return self.topic(opening.topic)

    async def GetPartitions(self, request: Any, context: Any) -> Any:  # noqa: N802
        return data_pb2.GetPartitionsResponse(
            partitions=self.partitions.get(short_name(request.topic), 0)
        )

    async def Publish(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        name, topic, kafka = "", FakeTopic(), None
        try:
            async for request in requests:
                if request.HasField("open"):
                    if count := self.partitions.get(short_name(request.open.topic)):
                        raise TopicIsPartitioned(request.open.topic, count)
                    topic = self.on_open(request.open)
                    wanted = request.open.producer_name or f"fake-{len(self.opened)}"
                    if wanted in topic.connected:
                        raise ProducerBusy(request.open.topic, wanted)
                    name = wanted
                    topic.connected.add(name)
                    kafka = self.kafka_topics.get(short_name(request.open.topic))
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
        async for response in guarded(ReadCall(self, requests).responses(), context):
            yield response

    async def Subscribe(self, requests: Any, context: Any) -> AsyncIterator[Any]:  # noqa: N802
        async for response in guarded(SubscribeCall(self, requests).responses(), context):
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


class FakeAdminService(admin_pb2_grpc.AdminServiceServicer):
    """Lists the topics of the data service."""

    def __init__(self, data: FakeDataService) -> None:
        self._data = data

    async def ListTopics(self, request: Any, context: Any) -> Any:  # noqa: N802
        prefix = f"persistent://{request.namespace}/"
        full = (name if "://" in name else PREFIX + name for name in sorted(self._data.topics))
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


class BreakAt:
    """Breaks the stream at the n-th entry or acknowledgement, once."""

    def __init__(self, entry_number: int) -> None:
        self._left = entry_number

    def __call__(self, _: object) -> None:
        self._left -= 1
        if self._left == 0:
            raise Unavailable("The test broke the connection.")
