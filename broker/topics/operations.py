"""What an administrator may take from a topic: its data, its future, its compaction.

Each waits for, or ends, the compaction that is on its way, and no other begins meanwhile. Sources:
Pulsar's PersistentTopicsBase and PersistentTopic; docs/PROFILES.md, rules 7.1 and 15.7.

* **Truncate**: broker/topics/trimming.py. A run on its way is ended: its input goes.
* **Terminate**: nothing is published any more; readers see the end. For good.
* **Disable compaction** is what deleting the subscription `__compaction` means. A run on its way is
  waited for, and what it wrote goes with the rest of the compacted view; raw data wait for no
  horizon any more. Whether a run that failed stands in the way, the profile decides. A
  threshold that is still set brings compaction back.
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
    """Raises TopicNotFound, SubscriptionBusy (another one is at it), StorageError."""
    async with _without_compaction(broker, name) as topic:
        await truncate(topic)


async def terminate_topic(broker: Broker, name: str) -> Position:
    """The last entry there will ever be. Raises TopicNotFound, StorageError."""
    topic = await broker.topic(name, create=False, to_write=True)
    end = await topic.log.terminate()
    for producer in tuple(topic.producers.values()):
        producer.end(TopicTerminated(name))
    for reader in tuple(topic.readers):
        reader.wake()
    return end


async def disable_compaction(broker: Broker, name: str) -> None:
    """Raises TopicNotFound, SubscriptionNotFound, SubscriptionBusy, CompactionFailed (the profile
    wants it), StorageError.
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
    """The topic, which stays loaded. `waits`: for the run on its way, instead of ending it."""
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
