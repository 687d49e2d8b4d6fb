"""The calls of Admin about subscriptions.

>>> from ledgerfold.broker.client import MessageId
>>> from ledgerfold.broker.client.administration.admin import Admin
>>> with Admin("127.0.0.1:7650") as admin:
...     admin.create_topic("audited")
...     admin.create_subscription("audited", "auditor", MessageId.earliest)
...     print(admin.list_subscriptions("audited"))
['auditor']
"""

from __future__ import annotations

from collections.abc import Mapping

from ledgerfold.broker.client.administration.channel import Calls
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.v1 import admin_pb2, data_pb2


class SubscriptionCalls(Calls):
    """The subscription calls. Each raises TopicNotFound; those that need a subscription raise
    SubscriptionNotFound.
    """

    def create_subscription(
        self,
        topic: str,
        subscription: str,
        start: MessageId | None = None,
        *,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Creates a durable subscription that begins after `start`; at the end if it is None.

        Raises SubscriptionExists.
        """
        request = admin_pb2.CreateSubscriptionRequest(
            topic=topic, subscription=subscription, start=_start(start), properties=properties
        )
        self._call(request)

    def list_subscriptions(self, topic: str) -> list[str]:
        """Returns the names of the topic's subscriptions. Raises TopicNotFound."""
        return list(self._call(admin_pb2.ListSubscriptionsRequest(topic=topic)).subscriptions)

    def expire_messages(
        self,
        topic: str,
        subscription: str,
        older_than_ms: int | None = None,
        *,
        through: MessageId | None = None,
    ) -> int:
        """Acknowledges the messages of a backlog that were published more than `older_than_ms` ago,
        or those up to the message `through`, with its whole batch.

        `subscription` "": of all subscriptions. Returns the number of expired entries. Raises
        NothingExpired if the named subscription has no backlog, or has nearly caught up and
        nothing expired, or if `through` is after the last message.
        """
        request = admin_pb2.ExpireMessagesRequest(
            topic=topic,
            subscription=subscription,
            older_than_ms=older_than_ms,
            through=None if through is None else through.to_record(),
        )
        return int(self._call(request).entries)

    def reset_cursor(
        self,
        topic: str,
        subscription: str,
        start: MessageId | None = None,
        *,
        inclusive: bool = True,
        ago_ms: int | None = None,
    ) -> None:
        """Moves a subscription to the message `start`, or to the first one of the last `ago_ms`.

        Give one of the two. `inclusive`: `start` itself is delivered again, too. The consumers of
        the subscription reconnect automatically.
        """
        request = admin_pb2.ResetCursorRequest(
            topic=topic, subscription=subscription, ago_ms=ago_ms
        )
        if start is not None:
            request.start.CopyFrom(_start(start))
            request.start.inclusive = inclusive and request.start.HasField("message_id")
        self._call(request)

    def skip_messages(self, topic: str, subscription: str, entries: int) -> int:
        """Skips up to `entries` entries of the backlog. Returns their number."""
        request = admin_pb2.SkipMessagesRequest(
            topic=topic, subscription=subscription, entries=entries
        )
        return int(self._call(request).entries)

    def clear_backlog(self, topic: str, subscription: str) -> int:
        """Skips the whole backlog. Returns the number of its entries."""
        request = admin_pb2.ClearBacklogRequest(topic=topic, subscription=subscription)
        return int(self._call(request).entries)

    def unsubscribe(self, topic: str, subscription: str, *, force: bool = False) -> None:
        """Deletes a subscription.

        Raises SubscriptionNotFound, and SubscriptionBusy if consumers are connected, which `force`
        disconnects.
        """
        self._call(data_pb2.UnsubscribeRequest(topic=topic, subscription=subscription, force=force))

    def subscription_properties(self, topic: str, subscription: str) -> dict[str, str]:
        """Returns the properties of a subscription, of all partitions together."""
        request = admin_pb2.GetSubscriptionPropertiesRequest(topic=topic, subscription=subscription)
        return dict(self._call(request).properties)

    def update_subscription_properties(
        self, topic: str, subscription: str, properties: Mapping[str, str]
    ) -> None:
        """Replaces the properties of a subscription; limits as of update_topic_properties()."""
        request = admin_pb2.SetSubscriptionPropertiesRequest(
            topic=topic, subscription=subscription, properties=properties
        )
        self._call(request)


def _start(start: MessageId | None) -> data_pb2.StartPosition:
    if start is None or start == MessageId.latest:
        return data_pb2.StartPosition(latest=True)
    if start == MessageId.earliest:
        return data_pb2.StartPosition(earliest=True)
    return data_pb2.StartPosition(message_id=start.to_record())
