"""The calls of Admin about the properties of topics and subscriptions.

>>> from ledgerfold.broker.client.administration.admin import Admin
>>> with Admin("127.0.0.1:7650") as admin:
...     admin.create_topic("orders", properties={"owner": "sales"})
...     admin.update_topic_properties("orders", {"level": "gold"}, remove=["owner"])
...     print(admin.topic_properties("orders"))
{'level': 'gold'}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ledgerfold.broker.client.administration.channel import Calls
from ledgerfold.v1 import admin_pb2


class PropertyCalls(Calls):
    """The property calls. A partitioned topic and its partitions have properties of their own."""

    def topic_properties(self, topic: str) -> dict[str, str]:
        """Returns the properties of a topic. Raises NotAllowed for a non-persistent topic."""
        request = admin_pb2.GetTopicPropertiesRequest(topic=topic)
        return dict(self._call(request).properties)

    def update_topic_properties(
        self, topic: str, properties: Mapping[str, str] | None = None, remove: Iterable[str] = ()
    ) -> None:
        """Sets properties of a topic, and removes those named by `remove`; others stay.

        Raises InvalidRequest for more than 100 properties, or more than 16,384 characters.
        """
        request = admin_pb2.UpdateTopicPropertiesRequest(topic=topic, set=properties, remove=remove)
        self._call(request)

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
