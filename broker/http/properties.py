"""The properties of topics and subscriptions, over HTTP.

Source: Pulsar's PersistentTopicsBase. An update of a topic's properties is merged into them, an
update of a subscription's replaces them.
"""

from __future__ import annotations

from ledgerfold.broker.common.names import is_non_persistent
from ledgerfold.broker.http.answers import Answer, Refusal, Request, shown
from ledgerfold.broker.http.routes import Route
from ledgerfold.broker.http.topics import TOPIC, BrokerVerbs, properties_in
from ledgerfold.broker.rpc.admin_properties import PropertyHandlers
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.v1 import admin_pb2

_PROPERTIES = "properties"
_OF_TOPIC = f"{TOPIC}/{_PROPERTIES}"
_OF_SUBSCRIPTION = f"{TOPIC}/subscription/{{subscription}}/{_PROPERTIES}"


def property_routes(broker: Broker) -> list[Route]:
    verbs = PropertyVerbs(broker)
    return [
        ("GET", _OF_TOPIC, verbs.of_topic),
        ("PUT", _OF_TOPIC, verbs.update_topic),
        ("DELETE", _OF_TOPIC, verbs.remove_of_topic),
        ("GET", _OF_SUBSCRIPTION, verbs.of_subscription),
        ("PUT", _OF_SUBSCRIPTION, verbs.set_of_subscription),
    ]


class PropertyVerbs(BrokerVerbs):
    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self._properties = PropertyHandlers(broker)

    def _topic(self, request: Request) -> str:
        name = self._name(request)
        if is_non_persistent(name):
            raise Refusal(406, "Need to provide a persistent topic name")
        return name

    async def of_topic(self, request: Request) -> Answer:
        name = self._topic(request)
        rpc_request = admin_pb2.GetTopicPropertiesRequest(topic=name)
        properties = dict((await self._properties.of_topic(rpc_request)).properties)
        if not properties and self._broker.partitions.count(name):
            # As in Pulsar: without a body.
            return shown(None)
        return shown(properties)

    async def update_topic(self, request: Request) -> None:
        changes = properties_in(request.body)
        name = self._topic(request)
        rpc_request = admin_pb2.UpdateTopicPropertiesRequest(topic=name, set=changes)
        await self._properties.update_topic(rpc_request)

    async def remove_of_topic(self, request: Request) -> None:
        """Removes one property, if there is. Without a name it changes nothing."""
        names = [request.query["key"]] if "key" in request.query else []
        name = self._topic(request)
        rpc_request = admin_pb2.UpdateTopicPropertiesRequest(topic=name, remove=names)
        await self._properties.update_topic(rpc_request)

    async def of_subscription(self, request: Request) -> Answer:
        rpc_request = admin_pb2.GetSubscriptionPropertiesRequest(
            topic=self._name(request), subscription=request.names["subscription"]
        )
        response = await self._properties.of_subscription(rpc_request)
        return shown(dict(response.properties))

    async def set_of_subscription(self, request: Request) -> None:
        rpc_request = admin_pb2.SetSubscriptionPropertiesRequest(
            topic=self._name(request),
            subscription=request.names["subscription"],
            properties=properties_in(request.body),
        )
        await self._properties.set_of_subscription(rpc_request)
