"""The calls of AdminService about the properties of topics and subscriptions.

The rules are in broker/topics/properties.py.
"""

from __future__ import annotations

from ledgerfold.broker.common.names import COMPACTION_CURSOR, persistent_topic
from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.rpc.existing import existing_names
from ledgerfold.broker.rpc.handlers import Handlers
from ledgerfold.broker.subscriptions.lifecycle import existing_subscription
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.partitions import on_each
from ledgerfold.broker.topics.properties import (
    set_subscription_properties,
    topic_properties,
    update_topic_properties,
)
from ledgerfold.storage.errors import NotAllowed
from ledgerfold.v1 import admin_pb2


class PropertyHandlers(Handlers):
    async def of_topic(
        self, request: admin_pb2.GetTopicPropertiesRequest
    ) -> admin_pb2.GetTopicPropertiesResponse:
        name = persistent_topic(request.topic)
        properties = topic_properties(self._broker, name)
        return admin_pb2.GetTopicPropertiesResponse(properties=properties)

    @runs_to_completion
    async def update_topic(self, request: admin_pb2.UpdateTopicPropertiesRequest) -> None:
        name = persistent_topic(request.topic)
        await update_topic_properties(self._broker, name, request.set, request.remove)

    async def of_subscription(
        self, request: admin_pb2.GetSubscriptionPropertiesRequest
    ) -> admin_pb2.GetSubscriptionPropertiesResponse:
        properties: dict[str, str] = {}
        for name in self._names(request):
            properties |= (await self._subscription(name, request.subscription)).recorded.properties
        return admin_pb2.GetSubscriptionPropertiesResponse(properties=properties)

    @runs_to_completion
    async def set_of_subscription(
        self, request: admin_pb2.SetSubscriptionPropertiesRequest
    ) -> None:
        async def change(name: str) -> None:
            subscription = await self._subscription(name, request.subscription)
            await set_subscription_properties(subscription, request.properties)

        await on_each(self._names(request), change)

    def _names(
        self,
        request: admin_pb2.GetSubscriptionPropertiesRequest
        | admin_pb2.SetSubscriptionPropertiesRequest,
    ) -> list[str]:
        """Returns the full names of the topic's partitions, or its own.

        Raises TopicNotFound, NotAllowed.
        """
        persistent_topic(request.topic)
        if request.subscription == COMPACTION_CURSOR:
            raise NotAllowed(f"{COMPACTION_CURSOR} is reserved for compaction: no properties.")
        return existing_names(self._broker, request.topic)

    async def _subscription(self, topic: str, name: str) -> Subscription:
        return existing_subscription(await self._broker.topic(topic, create=False), name)
