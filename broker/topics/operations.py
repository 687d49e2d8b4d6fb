"""Administrative operations on a topic: truncate, terminate, disable compaction.

Truncating and disabling end or await a running compaction, and no other begins meanwhile. Sources:
Pulsar's PersistentTopicsBase and PersistentTopic; docs/PROFILES.md, rules 7.1 and 15.7.

* **Truncate**: broker/topics/trimming.py. A running compaction is ended, because its input is
  deleted.
* **Terminate**: nothing is published any more, permanently; readers see the end.
* **Disable compaction** is what deleting the subscription `__compaction` does. It waits for a
  running compaction and deletes its output with the rest of the compacted view; trimming no longer
  waits for a horizon. The profile decides whether a failed run prevents it. A threshold that is
  still set enables compaction again.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.compaction.commit import drop
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.broker.topics.trimming import truncate
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import CompactionFailed, SubscriptionNotFound, TopicTerminated
from ledgerfold.v1.records_pb2 import RUN_STATE_CANCELLED, RUN_STATE_ERROR


async def truncate_topic(broker: Broker, name: str) -> None:
    """Deletes the topic's data.

    Raises TopicNotFound, SubscriptionBusy (another operation is in progress), StorageError.
    """
    async with _without_compaction(broker, name) as topic:
        await truncate(topic)


async def terminate_topic(broker: Broker, name: str) -> Position:
    """Terminates the topic; returns its final position. Raises TopicNotFound, StorageError."""
    topic = await broker.topic(name, create=False, to_write=True)
    end = await topic.log.terminate()
    for producer in tuple(topic.producers.values()):
        producer.end(TopicTerminated(name))
    for reader in tuple(topic.readers):
        reader.wake()
    return end


async def disable_compaction(broker: Broker, name: str) -> None:
    """Deletes the compacted view and the compaction cursor.

    Raises TopicNotFound, SubscriptionNotFound, SubscriptionBusy, CompactionFailed (by the profile's
    rule), StorageError.
    """
    topic = await broker.topic(name, create=False, to_write=True)
    if not topic.record.compaction_cursor:
        raise SubscriptionNotFound(name, COMPACTION_CURSOR)
    async with _without_compaction(broker, name, waits=True) as topic:
        if topic.emulation().failed_run_blocks_disabling:
            _check_last_run(topic)
        await drop(topic)
        await topic.trim()


@asynccontextmanager
async def _without_compaction(
    broker: Broker, name: str, *, waits: bool = False
) -> AsyncIterator[Topic]:
    """Holds the topic loaded with no compaction.

    `waits`: awaits a running one instead of ending it.
    """
    await broker.topic(name, create=False, to_write=True)
    with broker.compaction.barred(name):
        if waits:
            await broker.compaction.ended(name)
        else:
            await broker.compaction.fence(name, "truncated")
        async with broker.held(name) as topic:
            yield topic


def _check_last_run(topic: Topic) -> None:
    runs = topic.broker.metadata.runs(topic.name)
    if not runs or runs[-1].number <= topic.last_run_before_load:
        return
    if runs[-1].state in (RUN_STATE_ERROR, RUN_STATE_CANCELLED):
        raise CompactionFailed(f"run {runs[-1].number}", runs[-1].error_message)
