"""The topics that an administrator's call names, once they are known to exist."""

from __future__ import annotations

from ledgerfold.broker.ground.names import persistent_topic
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.errors import TopicNotFound

COMPACTED = "compacted"


def existing_names(broker: Broker, name: str) -> list[str]:
    """The full name of a topic that exists, or of its partitions, loaded or not.

    Raises TopicNotFound, NotAllowed.
    """
    names = broker.partitions.names(persistent_topic(name, COMPACTED))
    for each in names:
        if broker.metadata.topic(each) is None:
            raise TopicNotFound(each)
    return names


async def existing_topics(broker: Broker, name: str) -> list[Topic]:
    """The same, loaded."""
    return [await broker.topic(each, create=False) for each in existing_names(broker, name)]
