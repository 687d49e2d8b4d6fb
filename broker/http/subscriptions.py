"""The verbs about subscriptions: those of broker/rpc, over HTTP.

`__compaction` is one of them, as in Pulsar: deleting it disables compaction. Counts of messages are
counts of entries, as in Pulsar. Sources: Pulsar's PersistentTopics and PersistentTopicsBase.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Any

from ledgerfold.broker.common.names import COMPACTION_CURSOR, is_non_persistent
from ledgerfold.broker.http.answers import (
    Answer,
    Refusal,
    Request,
    answering,
    shown,
    whole_number,
)
from ledgerfold.broker.http.cluster import check_exists
from ledgerfold.broker.http.routes import Route
from ledgerfold.broker.http.topics import NAMESPACE, TOPIC, BrokerVerbs, properties_in
from ledgerfold.broker.rpc.admin_subscriptions import SubscriptionHandlers
from ledgerfold.broker.rpc.subscribe import unsubscribe
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.partitions import on_each
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import EARLIEST, LATEST
from ledgerfold.storage.errors import InvalidRequest, SubscriptionNotFound, TopicNotFound
from ledgerfold.v1 import admin_pb2, data_pb2
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import MessageId

_EARLIEST, _LATEST = StartPosition(earliest=True), StartPosition(latest=True)
ONE = f"{TOPIC}/subscription/{{subscription}}"


def subscription_routes(broker: Broker) -> list[Route]:
    verbs = SubscriptionVerbs(broker)
    return [
        ("GET", f"{TOPIC}/subscriptions", verbs.list_names),
        ("PUT", ONE, verbs.create),
        ("DELETE", ONE, verbs.delete),
        ("POST", f"{ONE}/skip_all", verbs.skip_all),
        ("POST", f"{NAMESPACE}/clearBacklog", verbs.clear_in_namespace),
        ("POST", f"{NAMESPACE}/clearBacklog/{{subscription}}", verbs.clear_in_namespace),
        ("POST", f"{NAMESPACE}/unsubscribe/{{subscription}}", verbs.delete_in_namespace),
        ("POST", f"{ONE}/skip/{{count}}", verbs.skip),
        ("POST", f"{ONE}/resetcursor/{{timestamp}}", verbs.reset_to_time),
        ("POST", f"{ONE}/resetcursor", verbs.reset_to_id),
        ("POST", f"{ONE}/expireMessages/{{seconds}}", verbs.expire),
        ("POST", f"{ONE}/expireMessages", verbs.expire_through),
        ("POST", f"{TOPIC}/all_subscription/expireMessages/{{seconds}}", verbs.expire),
    ]


def start_at(body: Any, *, inclusive: bool = True) -> StartPosition:
    """Returns the position named by Pulsar's JSON of a message id. Raises Refusal.

    -1:-1 is the earliest message; the largest numbers are the latest.
    """
    if body in ("latest", "earliest"):
        return _LATEST if body == "latest" else _EARLIEST
    message_id = _id_in(body)
    position = message_id.ledger_id, message_id.entry_id
    if position == EARLIEST:
        return _EARLIEST
    if position == LATEST:
        return _LATEST
    return StartPosition(message_id=message_id, inclusive=inclusive)


def _id_in(body: Any) -> MessageId:
    """Returns the message id of a body. Raises Refusal."""
    if not isinstance(body, dict) or "ledgerId" not in body or "entryId" not in body:
        raise Refusal(400, 'Name a message id, for example {"ledgerId": 7, "entryId": 0}.')
    fields = {"ledger_id": "ledgerId", "entry_id": "entryId"}
    numbers = {name: whole_number(field, body[field]) for name, field in fields.items()}
    small = {"batch_index": "batchIndex", "partition": "partitionIndex"}
    numbers |= {name: whole_number(field, body.get(field, -1)) for name, field in small.items()}
    if any(not -1 <= numbers[name] < 2**31 for name in small):
        raise Refusal(400, "batchIndex and partitionIndex must be -1 or an index.")
    return MessageId(**numbers)


class SubscriptionVerbs(BrokerVerbs):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._subscriptions = SubscriptionHandlers(broker)

    def _names(self, request: Request) -> dict[str, str]:
        """Returns the topic and the subscription for a gRPC request."""
        name = self._name(request)
        return {"topic": name, "subscription": request.names.get("subscription", "")}

    async def list_names(self, request: Request) -> Answer:
        topic = self._name(request)
        rpc_request = admin_pb2.ListSubscriptionsRequest(topic=topic)
        response = await self._subscriptions.list_names(rpc_request)
        return shown(list(response.subscriptions))

    async def create(self, request: Request) -> None:
        names, body = self._names(request), request.body
        if is_non_persistent(names["topic"]):
            why = "Create subscription on non-persistent topic can only be done through client"
            raise Refusal(400, why)
        properties = properties_in(body.get("properties") if isinstance(body, dict) else None)
        if isinstance(body, dict) and "messageId" in body:
            body = body["messageId"]
        start = _LATEST if body in (None, "", {}) else start_at(body)
        rpc_request = admin_pb2.CreateSubscriptionRequest(
            start=start, properties=properties, **names
        )
        await self._subscriptions.create(rpc_request)

    async def delete(self, request: Request) -> None:
        names, force = self._names(request), request.flag("force")
        rpc_request = data_pb2.UnsubscribeRequest(force=force, **names)
        await unsubscribe(self._broker, rpc_request)

    async def skip_all(self, request: Request) -> None:
        names = self._names(request)
        await self._subscriptions.clear_backlog(admin_pb2.ClearBacklogRequest(**names))

    async def clear_in_namespace(self, request: Request) -> None:
        """Skips the backlogs of one subscription, or of all, of the topics of a namespace."""

        async def clear(topic: str, subscription: str) -> None:
            rpc_request = admin_pb2.ClearBacklogRequest(topic=topic, subscription=subscription)
            await self._subscriptions.clear_backlog(rpc_request)

        is_found, name = await self._in_namespace(request, clear), request.names.get("subscription")
        if name is not None and not is_found:
            raise Refusal(404, f"Subscription {name} not found in namespace {request.namespace}")

    async def delete_in_namespace(self, request: Request) -> None:
        """Deletes a subscription of the topics of a namespace, where no consumer is connected."""
        if request.names["subscription"] == COMPACTION_CURSOR:
            raise Refusal(
                405, f"Delete {COMPACTION_CURSOR} topic by topic: it disables compaction."
            )

        async def delete(topic: str, subscription: str) -> None:
            rpc_request = data_pb2.UnsubscribeRequest(topic=topic, subscription=subscription)
            await unsubscribe(self._broker, rpc_request)

        await self._in_namespace(request, delete)

    async def _in_namespace(
        self, request: Request, change: Callable[[str, str], Awaitable[None]]
    ) -> bool:
        """Changes the subscription that the request names, or each except `__compaction`, of the
        persistent topics of a namespace. Returns whether there was one.

        Raises the first error after all of them, also that of a topic that cannot be loaded.
        """
        check_exists(self._broker, request.namespace)
        wanted = request.names.get("subscription")

        async def changed(name: str) -> bool:
            with suppress(TopicNotFound):
                topic = await self._broker.any_topic(name, create=False)
                if isinstance(topic, Topic):
                    found = [each for each in topic.subscriptions if wanted in (None, each)]
                    await on_each(found, partial(change_one, name))
                    return bool(found)
            return False

        async def change_one(name: str, subscription: str) -> None:
            with suppress(SubscriptionNotFound):
                await change(name, subscription)

        return any(await on_each(self._broker.names.listed(request.namespace), changed))

    async def skip(self, request: Request) -> None:
        names, count = self._names(request), request.number("count")
        rpc_request = admin_pb2.SkipMessagesRequest(entries=count, **names)
        with answering(InvalidRequest, 400):
            await self._subscriptions.skip_messages(rpc_request)

    async def reset_to_time(self, request: Request) -> None:
        start = StartPosition(publish_time_ms=request.number("timestamp"))
        await self._reset(request, start)

    async def reset_to_id(self, request: Request) -> None:
        if self._broker.partitions.count(self._name(request)):
            raise Refusal(405, "Reset-cursor at position is not allowed for partitioned-topic")
        is_excluded = isinstance(request.body, dict) and request.body.get("isExcluded") is True
        await self._reset(request, start_at(request.body, inclusive=not is_excluded))

    async def _reset(self, request: Request, start: StartPosition) -> None:
        names = self._names(request)
        rpc_request = admin_pb2.ResetCursorRequest(
            topic=names["topic"], subscription=names["subscription"], start=start
        )
        await self._subscriptions.reset_cursor(rpc_request)

    async def expire(self, request: Request) -> None:
        names, seconds = self._names(request), request.number("seconds")
        if not 0 < seconds < 2**31:
            raise Refusal(400, "The age of the messages to expire must be 1 second or more.")
        await self._subscriptions.expire_messages(
            admin_pb2.ExpireMessagesRequest(
                topic=names["topic"],
                subscription=names["subscription"],
                older_than_ms=seconds * 1000,
            )
        )

    async def expire_through(self, request: Request) -> None:
        """Expires messages up to one. `isExcluded` has no effect, as in Pulsar."""
        names, through = self._names(request), _id_in(request.body)
        if self._broker.partitions.count(names["topic"]):
            reason = "Expire message at position is not supported for partitioned-topic"
            raise Refusal(405, reason)
        rpc_request = admin_pb2.ExpireMessagesRequest(
            topic=names["topic"], subscription=names["subscription"], through=through
        )
        await self._subscriptions.expire_messages(rpc_request)
