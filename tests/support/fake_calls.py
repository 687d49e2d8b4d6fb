"""The streams of the fake data service that read: Read and Subscribe.

Each is one loop that reacts to requests and to the topic (tests/support/fake_data_service.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from ledgerfold.rpc_errors import abort_with
from ledgerfold.storage.entry import Position, read_header
from ledgerfold.storage.errors import (
    LedgerfoldError,
    Moved,
    SubscriptionBusy,
)
from ledgerfold.v1 import data_pb2
from tests.support.fake_topics import FakeSubscription, FakeTopic

if TYPE_CHECKING:
    from tests.support.fake_data_service import FakeDataService


async def guarded(responses: AsyncIterator[Any], context: Any) -> AsyncIterator[Any]:
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
        """Waits until a request arrived, no more will arrive, or one of the events is set."""
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


class ReadCall(_Call):
    async def responses(self) -> AsyncIterator[Any]:
        pump = asyncio.ensure_future(self.pump())
        checks: list[int] = []
        try:
            while not self.is_over or self.pending:
                changed = self.topic.changed
                while self.pending:
                    request = self.pending.pop(0)
                    if request.HasField("open"):
                        self.topic = self.service.on_open(request.open)
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


class SubscribeCall(_Call):
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
            self.topic = self.service.on_open(opening)
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
            # Pending redeliveries are not skipped.
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
