"""Existence checks for topics named by an administrator's call."""

from __future__ import annotations

from ledgerfold.broker.common.given_names import is_stand_in, shown_topic
from ledgerfold.broker.common.names import full_topic, persistent_topic
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.errors import NotAllowed

COMPACTED = "compacted"


def recorded_name(broker: Broker, name: str) -> str:
    """Returns the full name of a topic, even if it is given by its display stand-in.

    Raises InvalidRequest.
    """
    full = full_topic(name)
    if not is_stand_in(full):
        return full
    names = [each.name for each in broker.metadata.topics()]
    names += (each.name for each in broker.metadata.partitioned_topics())
    return next((each for each in names if shown_topic(each) == full), full)


def existing_names(broker: Broker, name: str) -> list[str]:
    """Returns the full name of an existing topic, or of its partitions, loaded or not.

    Raises TopicNotFound.
    """
    names = broker.partitions.names(recorded_name(broker, name))
    for each in names:
        if not broker.exists(each):
            raise broker.partitions.not_found(each, broker.settings.creates_topics)
    return names


def stored_names(broker: Broker, name: str) -> list[str]:
    """Returns existing_names() of a persistent topic. Raises TopicNotFound, NotAllowed."""
    persistent_topic(name, COMPACTED)
    return existing_names(broker, name)


def check_whole(broker: Broker, topic: str, why: str) -> None:
    """Raises NotAllowed for a partitioned topic."""
    if broker.partitions.count(topic):
        raise NotAllowed(f"{why}: name {topic}-partition-0 or another.")


async def stored_topics(broker: Broker, name: str) -> list[Topic]:
    """Returns the topics of stored_names(), loaded."""
    return [await broker.topic(each, create=False) for each in stored_names(broker, name)]
