"""The calls of AdminService about subscriptions, including `__compaction`.

Sources: broker/subscriptions/cursor_operations.py and broker/compaction/cursor_operations.py. On a
partitioned topic they apply to all partitions. Calls that name a message, or a number of messages,
are refused there, as in Pulsar.
"""

from __future__ import annotations

from ledgerfold.broker.common.given_names import shown
from ledgerfold.broker.common.names import COMPACTION_CURSOR, persistent_topic
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.compaction import cursor_operations as compaction_cursor
from ledgerfold.broker.rpc.existing import check_whole, existing_names
from ledgerfold.broker.rpc.handlers import Handlers
from ledgerfold.broker.subscriptions import cursor_operations as cursor_operations
from ledgerfold.broker.subscriptions.lifecycle import (
    create_subscription,
    existing_subscription,
    seek_subscription,
)
from ledgerfold.broker.topics.non_persistent_topic import NonPersistentTopic
from ledgerfold.broker.topics.partitions import on_each
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import (
    InvalidRequest,
    NotAllowed,
    NothingExpired,
    SubscriptionExists,
)
from ledgerfold.storage.partition_names import partition_index
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.data_pb2 import StartPosition


class SubscriptionHandlers(Handlers):
    @runs_to_completion
    async def create(self, request: admin_pb2.CreateSubscriptionRequest) -> None:
        name = request.subscription
        if name == COMPACTION_CURSOR:
            raise NotAllowed(f"{name} is reserved for compaction. Trigger a compaction instead.")
        full = persistent_topic(request.topic, "subscribed to")
        topics = [await self._broker.topic(each) for each in self._broker.partitions.names(full)]
        if all(name in topic.subscriptions for topic in topics):
            raise SubscriptionExists(full, name)
        now_ms = self._broker.clock_ms()
        for topic in topics:
            await create_subscription(
                topic, name, request.start, created_ms=now_ms, properties=request.properties
            )

    async def list_names(
        self, request: admin_pb2.ListSubscriptionsRequest
    ) -> admin_pb2.ListSubscriptionsResponse:
        broker = self._broker
        existing = existing_names(broker, request.topic)
        topics = [await broker.pulsar_topic(each, create=False) for each in existing]
        names = sorted({shown(name) for topic in topics for name in topic.subscriptions})
        stored = [each for each in topics if not isinstance(each, NonPersistentTopic)]
        if any(each.record.compaction_cursor for each in stored):
            names.append(COMPACTION_CURSOR)
        return admin_pb2.ListSubscriptionsResponse(subscriptions=names)

    @runs_to_completion
    async def expire_messages(
        self, request: admin_pb2.ExpireMessagesRequest
    ) -> admin_pb2.ExpireMessagesResponse:
        if request.HasField("through"):
            return await self._expire_through(request)
        names = self._names(request.topic)
        refusals = list[NothingExpired]()

        async def expire(name: str) -> int:
            try:
                return await self._expire(name, request)
            except NothingExpired as error:
                refusals.append(error)
                return 0

        expired = await on_each(names, expire)
        if len(refusals) == len(names):
            # A refusal by some of the partitions is ignored.
            raise refusals[0]
        return admin_pb2.ExpireMessagesResponse(entries=sum(expired))

    async def _expire_through(
        self, request: admin_pb2.ExpireMessagesRequest
    ) -> admin_pb2.ExpireMessagesResponse:
        if request.older_than_ms or not request.subscription:
            raise InvalidRequest("Name a subscription, and either a message id or an age.")
        name, through = persistent_topic(request.topic), request.through
        check_whole(self._broker, name, "A message belongs to one partition")
        if through.partition != partition_index(name):
            why = f"The message id names partition {through.partition}, not {name}."
            raise InvalidRequest(why)
        topic, position = await self._topic(name), Position(through.ledger_id, through.entry_id)
        if request.subscription == COMPACTION_CURSOR:
            entries = await compaction_cursor.expire_through(topic, position)
        else:
            subscription = existing_subscription(topic, request.subscription)
            entries = await cursor_operations.expire_through(topic, subscription, position)
        return admin_pb2.ExpireMessagesResponse(entries=entries)

    async def _expire(self, name: str, request: admin_pb2.ExpireMessagesRequest) -> int:
        topic = await self._topic(name)
        if request.subscription == COMPACTION_CURSOR:
            return await compaction_cursor.expire(topic, request.older_than_ms)
        if request.subscription:
            subscription = existing_subscription(topic, request.subscription)
            return await cursor_operations.expire_messages(
                topic, subscription, request.older_than_ms
            )
        return await _expire_each(topic, request.older_than_ms)

    @runs_to_completion
    async def reset_cursor(self, request: admin_pb2.ResetCursorRequest) -> None:
        to = request.WhichOneof("to")
        if to is None:
            raise InvalidRequest("Name a message id, or a time before now.")
        start = request.start
        if to == "ago_ms":
            if request.ago_ms < 0:
                raise InvalidRequest(f"Cannot reset to {request.ago_ms} ms ago; minimum: 0.")
            start = StartPosition(publish_time_ms=self._broker.clock_ms() - request.ago_ms)
        if start.WhichOneof("at") == "message_id":
            name = persistent_topic(request.topic)
            check_whole(self._broker, name, "A message belongs to one partition")

        async def reset(name: str) -> None:
            topic = await self._topic(name)
            if request.subscription == COMPACTION_CURSOR:
                await compaction_cursor.reset(topic, start)
            else:
                await seek_subscription(topic, request.subscription, start)

        await on_each(self._names(request.topic), reset)

    @runs_to_completion
    async def skip_messages(
        self, request: admin_pb2.SkipMessagesRequest
    ) -> admin_pb2.SkipMessagesResponse:
        name = persistent_topic(request.topic)
        check_whole(self._broker, name, "Messages have no order across partitions")
        topic = await self._topic(name)
        if request.subscription == COMPACTION_CURSOR:
            skipped = await compaction_cursor.skip(topic, request.entries)
        else:
            subscription = existing_subscription(topic, request.subscription)
            skipped = await cursor_operations.skip_messages(topic, subscription, request.entries)
        return admin_pb2.SkipMessagesResponse(entries=skipped)

    @runs_to_completion
    async def clear_backlog(
        self, request: admin_pb2.ClearBacklogRequest
    ) -> admin_pb2.ClearBacklogResponse:
        async def clear(name: str) -> int:
            topic = await self._topic(name)
            if request.subscription == COMPACTION_CURSOR:
                return await compaction_cursor.clear(topic)
            subscription = existing_subscription(topic, request.subscription)
            return await cursor_operations.clear_backlog(topic, subscription)

        skipped = await on_each(self._names(request.topic), clear)
        return admin_pb2.ClearBacklogResponse(entries=sum(skipped))

    def _names(self, topic: str) -> list[str]:
        """Returns the full names of the topic's partitions, or its own."""
        return self._broker.partitions.names(persistent_topic(topic))

    async def _topic(self, name: str) -> Topic:
        """Returns the loaded topic. Raises TopicNotFound."""
        return await self._broker.topic(name, create=False)


async def _expire_each(topic: Topic, older_than_ms: int) -> int:
    """Expires messages in every subscription; returns the number of entries.

    As in Pulsar, a subscription without any to expire is an error, after the others are done.
    Raises NothingExpired.
    """
    refusals, expired = list[NothingExpired](), 0
    for each in tuple(topic.subscriptions.values()):
        try:
            expired += await cursor_operations.expire_messages(topic, each, older_than_ms)
        except NothingExpired as error:
            refusals.append(error)
    if refusals:
        raise refusals[0]
    return expired
