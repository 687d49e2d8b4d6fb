"""The topics that an administrator's call names, once they are known to exist."""

from __future__ import annotations

from ledgerfold.broker.ground.given_names import is_stand_in, shown_topic
from ledgerfold.broker.ground.names import persistent_topic
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.errors import TopicNotFound

COMPACTED = "compacted"


def recorded_name(broker: Broker, name: str, doing: str = "used") -> str:
    """The full name of a topic, also of one that is listed by a stand-in.

    Raises InvalidRequest, NotAllowed.
    """
    full = persistent_topic(name, doing)
    if not is_stand_in(full):
        return full
    names = [each.name for each in broker.metadata.topics()]
    names += (each.name for each in broker.metadata.partitioned_topics())
    return next((each for each in names if shown_topic(each) == full), full)


def existing_names(broker: Broker, name: str) -> list[str]:
    """The full name of a topic that exists, or of its partitions, loaded or not.

    Raises TopicNotFound, NotAllowed.
    """
    names = broker.partitions.names(recorded_name(broker, name, COMPACTED))
    for each in names:
        if broker.metadata.topic(each) is None:
            raise TopicNotFound(each)
    return names


async def existing_topics(broker: Broker, name: str) -> list[Topic]:
    """The same, loaded."""
    return [await broker.topic(each, create=False) for each in existing_names(broker, name)]
