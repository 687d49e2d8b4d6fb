"""A single compaction in a data directory whose broker is down: Pulsar's CompactorTool.

It runs a broker without a port and without monitors: it takes the directory as `serve` does, loads
the topic, starts a worker, compacts, and stops. The record and the view are those of any run. After
a kill, the next start recovers the directory, as after a kill of a broker.

The options of `serve` are not stored in the directory. So broker-level retention limits and expiry,
which are unknown here, do not apply; limits set on the namespace or the topic do.

Ctrl-C or SIGTERM cancels the run and removes its files; a second one exits at once.
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

from ledgerfold.broker.common.clock import WallClock
from ledgerfold.broker.common.names import persistent_topic
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.server.data_directory import held, recovered
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.partitioned_compaction import PartitionedCompaction
from ledgerfold.broker.topics.partitions import PARTITIONS_MAX
from ledgerfold.broker.worker.compactor import Compactor
from ledgerfold.broker.worker.service_compactor import compactor_of
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
    """Compacts a topic and returns the final status; None if there was nothing new.

    `strategy`: used by this run only. `on_waiting` is called with the reason if the start is
    delayed. Raises FileNotFoundError, DirectoryLocked, TopicNotFound, KeyboardInterrupt,
    StorageError.
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
    """Disables the broker's limits, and makes room in the queue for every partition's run."""
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
    await broker.start(monitors=False)
    try:
        return await run_once(broker, name, strategy, on_status, on_waiting)
    finally:
        await broker.stop()


async def _report_waiting(compactor: Compactor, on_waiting: OnWaiting) -> None:
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
    """Compacts the topic, or each partition. A cancellation ends the runs first, then this call."""
    compaction = PartitionedCompaction(broker)
    triggered = asyncio.ensure_future(compaction.trigger(name, strategy))
    try:
        if not await asyncio.shield(triggered):
            return None
        status = await compaction.status(name)
        reporting = asyncio.create_task(_report_waiting(broker.compactor, on_waiting))
        try:
            async with aclosing(compaction.watch(name)) as statuses:
                async for status in statuses:
                    on_status(status)
        finally:
            reporting.cancel()
        return status
    except asyncio.CancelledError:
        # A run that is being queued cannot be cancelled yet.
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
