"""One compaction of a topic in a data directory whose broker is down: Pulsar's CompactorTool.

A broker without a port, without monitors: it takes the directory as `serve` does, loads the topic,
starts a worker, compacts, and stops. The record and the view are those of any run. Killed, it
leaves what a killed broker leaves, and the next start puts it in order.

What `serve` was told is not in the directory. So nothing is trimmed by limits of the broker, which
are not known here, and nothing expires; limits set on the namespace or the topic hold.

Ctrl-C or SIGTERM cancels the run, whose files go; a second one exits at once.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import signal
import sys
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace

from ledgerfold.broker.compaction.interfaces import OwnCompactor
from ledgerfold.broker.ground.clock import WallClock
from ledgerfold.broker.ground.names import persistent_topic
from ledgerfold.broker.ground.settings import BrokerSettings
from ledgerfold.broker.server.compactors import compactor_of
from ledgerfold.broker.server.data_directory import held, recovered
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.partitioned_compaction import PartitionedCompaction
from ledgerfold.broker.topics.partitions import PARTITIONS_MAX
from ledgerfold.storage.files import REAL
from ledgerfold.storage.lock import DirectoryLock
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import metadata_dir
from ledgerfold.v1.admin_pb2 import (
    COMPACTOR_STATE_RESTARTING,
    COMPACTOR_STATE_STARTING,
    GetCompactionStatusResponse,
)
from ledgerfold.v1.records_pb2 import CompactionStrategy

OnStatus = Callable[[GetCompactionStatusResponse], object]
OnWaiting = Callable[[str], object]


def compact(
    settings: BrokerSettings,
    topic: str,
    strategy: CompactionStrategy | None = None,
    on_status: OnStatus = lambda status: None,
    on_waiting: OnWaiting = lambda why: None,
) -> GetCompactionStatusResponse | None:
    """How it ended; None: there was nothing new. `strategy`: of this run alone. `on_waiting` hears
    what keeps it from beginning, where something does.

    Raises FileNotFoundError, DirectoryLocked, TopicNotFound, KeyboardInterrupt, StorageError.
    """
    name = persistent_topic(topic, "compacted")
    if not metadata_dir(settings.data_dir).is_dir():
        missing = str(metadata_dir(settings.data_dir))
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), missing)
    logging.basicConfig(stream=sys.stderr, level=settings.log_level)
    with held(settings.data_dir) as (metadata, lock):
        try:
            here = _alone(settings)
            return asyncio.run(
                _compact(here, metadata, lock, name, strategy, on_status, on_waiting)
            )
        except asyncio.CancelledError:
            raise KeyboardInterrupt from None


def _alone(settings: BrokerSettings) -> BrokerSettings:
    """Nothing goes by the broker's limits, and every partition's run has a place in the queue."""
    return replace(
        settings,
        retention_ms=-1,
        retention_bytes=-1,
        message_ttl_ms=0,
        compaction_queue_max=PARTITIONS_MAX,
    )


async def _compact(
    settings: BrokerSettings,
    metadata: MetadataStore,
    lock: DirectoryLock,
    name: str,
    strategy: CompactionStrategy | None,
    on_status: OnStatus,
    on_waiting: OnWaiting,
) -> GetCompactionStatusResponse | None:
    _cancel_on_signals()
    compactor = compactor_of(settings)
    clock = WallClock()
    store = recovered(settings, metadata, lock, REAL, clock.now_ms)
    broker = Broker(settings, metadata, store, compactor, clock)
    await broker.start(by_itself=False)
    try:
        return await run_once(broker, name, strategy, on_status, on_waiting)
    finally:
        await broker.stop()


async def _tell_of_waiting(compactor: OwnCompactor, on_waiting: OnWaiting) -> None:
    await compactor.known()
    if compactor.state in (COMPACTOR_STATE_STARTING, COMPACTOR_STATE_RESTARTING):
        on_waiting(compactor.message)


async def run_once(
    broker: Broker,
    name: str,
    strategy: CompactionStrategy | None,
    on_status: OnStatus,
    on_waiting: OnWaiting = lambda why: None,
) -> GetCompactionStatusResponse | None:
    """Of each partition, where the topic has any. Cancelled, it ends them, and then itself."""
    compaction = PartitionedCompaction(broker)
    triggered = asyncio.ensure_future(compaction.trigger(name, strategy))
    try:
        if not await asyncio.shield(triggered):
            return None
        status = await compaction.status(name)
        telling = asyncio.create_task(_tell_of_waiting(broker.compactor, on_waiting))
        try:
            async with aclosing(compaction.watch(name)) as statuses:
                async for status in statuses:
                    on_status(status)
        finally:
            telling.cancel()
        return status
    except asyncio.CancelledError:
        # A run that is only half queued could not be cancelled yet.
        await asyncio.gather(triggered, return_exceptions=True)
        await compaction.cancel(broker.partitions.names(name))
        raise


def _cancel_on_signals() -> None:
    task = asyncio.current_task()
    assert task is not None

    def on_signal() -> None:
        if task.cancelling():
            os._exit(130)
        task.cancel()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
