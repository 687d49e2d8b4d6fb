"""Properties of topics and subscriptions: texts that administrators set, and clients at SUBSCRIBE.

They have no effect on the broker. A partitioned topic and each of its partitions have their own. A
subscription's are part of its cursor's record, and new partitions get a copy of those of the first
partition. Rules (Pulsar's PIP-109 and PersistentTopicsBase): an update of a topic's properties is
merged into them, an update of a subscription's replaces them.

  >>> updated({"a": "1", "b": "2"}, {"b": "3"}, ["a", "unknown"])
  {'b': '3'}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ledgerfold.broker.common.given_names import check_properties
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.loaded_topic import LoadedTopic
from ledgerfold.storage.errors import NotAllowed, StorageError, TopicNotFound
from ledgerfold.storage.metadata import MetadataBatch
from ledgerfold.v1.records_pb2 import PartitionedTopicRecord, TopicRecord


def topic_properties(broker: Broker, name: str) -> dict[str, str]:
    """Returns the properties of a topic, partitioned or not. Raises TopicNotFound."""
    record = broker.metadata.partitioned_topic(name) or broker.metadata.topic(name)
    if record is None:
        raise TopicNotFound(name)
    return dict(record.properties)


async def update_topic_properties(
    broker: Broker, name: str, changes: Mapping[str, str], remove: Iterable[str]
) -> None:
    """Sets and removes properties in one synced write.

    Raises TopicNotFound, InvalidRequest, StorageError, Moved (the topic was unloaded).
    """

    def change(record: TopicRecord | PartitionedTopicRecord) -> None:
        properties = updated(record.properties, changes, remove)
        record.ClearField("properties")
        record.properties.update(properties)

    def edit(record: TopicRecord, batch: MetadataBatch) -> None:
        change(record)

    if broker.partitions.count(name):
        await broker.change_partitioned(name, change)
        return
    topic = await broker.any_topic(name, create=False)
    if not isinstance(topic, LoadedTopic):
        raise NotAllowed(f"{name} is not persistent: it has no properties.")
    await topic.stored.change(edit)


def updated(
    properties: Mapping[str, str], changes: Mapping[str, str], remove: Iterable[str]
) -> dict[str, str]:
    """Returns the properties after an update. Raises InvalidRequest if there are too many."""
    removed = set(remove)
    kept = {name: value for name, value in properties.items() if name not in removed}
    check_properties("a topic", kept | dict(changes))
    return kept | dict(changes)


async def set_subscription_properties(
    subscription: Subscription, properties: Mapping[str, str]
) -> None:
    """Replaces the properties; returns when that is durable.

    Raises InvalidRequest, NotAllowed (it is not durable), StorageError, or the error that the
    subscription was closed with.
    """
    check_properties("a subscription", properties)
    if not subscription.is_durable:
        raise NotAllowed(f"Subscription {subscription.name!r} is not durable: no properties.")
    recorded, after = subscription.recorded, dict(properties)
    before, recorded.properties = recorded.properties, after
    try:
        await subscription.persist()
    except StorageError:
        if recorded.properties is after:
            recorded.properties = before
        raise
