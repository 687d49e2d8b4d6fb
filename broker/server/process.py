"""The broker process: from the lock on the data directory to the last flush.

Start: checks (start_checks.py), the data directory (data_directory.py), server, then the compactor
in the background; one line on standard output, and the ready file, say that it serves and where:

    {"event": "ready", "listen": "127.0.0.1:7650", "pid": 4711, "data_dir": "/data", ...}

Stop: SIGTERM or SIGINT drains, ends streams and runs, closes ledgers. A second signal exits at
once: nothing depends on the clean way out.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerfold.broker.compaction.interfaces import OwnCompactor
from ledgerfold.broker.ground.clock import Clock, ManualClock, WallClock
from ledgerfold.broker.ground.settings import BrokerSettings
from ledgerfold.broker.server.allocator import keep_freed_memory
from ledgerfold.broker.server.compactors import compactor_of
from ledgerfold.broker.server.data_directory import held, recovered
from ledgerfold.broker.server.grpc_server import Server
from ledgerfold.broker.server.start_checks import aside, check_start
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.files import REAL, make_durable_dir
from ledgerfold.storage.lock import DirectoryLock
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.version import __version__

if TYPE_CHECKING:
    from ledgerfold.broker.metrics.server import Metrics

# Streams were ended with the topics: this is for what is on its way to the clients.
_GRACE_S = 0.5
_log = logging.getLogger(__name__)


def serve(settings: BrokerSettings) -> int:
    """Runs a broker until a signal ends it.

    Raises InvalidRequest, AddressInUse, DirectoryLocked, OSError, StorageError.
    """
    check_start(settings)
    logging.basicConfig(
        stream=sys.stderr,
        level=settings.log_level,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    keep_freed_memory()
    # A service of the user's own may not be there: then nothing is made.
    compactor = compactor_of(settings)
    make_durable_dir(settings.data_dir)
    with held(settings.data_dir) as (metadata, lock):
        return asyncio.run(_serve(settings, metadata, lock, compactor))


async def _serve(
    settings: BrokerSettings,
    metadata: MetadataStore,
    lock: DirectoryLock,
    compactor: OwnCompactor,
) -> int:
    clock = _clock(settings)
    metrics = _metrics(settings)
    files = REAL if metrics is None else metrics.files
    store = recovered(settings, metadata, lock, files, clock.now_ms)
    broker = Broker(settings, metadata, store, compactor, clock)
    metrics_listen = None if metrics is None else metrics.serve(broker)
    server = Server(broker)
    stopped = _stop_on_signals()
    listen = await server.start()
    await broker.start()
    # What exists now stays: a full collection would only walk over it again and again.
    gc.freeze()
    _announce(settings, listen, metrics_listen)
    await stopped.wait()
    _log.info("Stopping; a second signal exits at once.")
    await server.drain()
    if metrics is not None:
        metrics.stop()
    await broker.stop()
    await server.stop(_GRACE_S)
    return 0


def _metrics(settings: BrokerSettings) -> Metrics | None:
    if settings.metrics_listen is None:
        return None
    # Imported only when it is asked for: most brokers start without.
    from ledgerfold.broker.metrics.server import Metrics

    return Metrics(settings.metrics_listen)


def _clock(settings: BrokerSettings) -> Clock:
    start_ms = settings.test_clock_start_ms
    return WallClock() if start_ms is None else ManualClock(start_ms)


def _stop_on_signals() -> asyncio.Event:
    stopped = asyncio.Event()

    def on_signal() -> None:
        if stopped.is_set():
            os._exit(130)
        stopped.set()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    return stopped


def _announce(settings: BrokerSettings, listen: str, metrics_listen: str | None) -> None:
    metrics = {} if metrics_listen is None else {"metrics": metrics_listen}
    ready = json.dumps(
        {
            "event": "ready",
            "listen": listen,
            **metrics,
            "pid": os.getpid(),
            "data_dir": str(settings.data_dir),
            "durability": settings.store.durability,
            "version": __version__,
        }
    )
    if settings.ready_file is not None:
        _write_ready_file(settings.ready_file, ready)
    print(ready, flush=True)


def _write_ready_file(path: Path, ready: str) -> None:
    # A process that waits for the file must never see half of it.
    aside(path).write_text(ready + "\n")
    # It is no part of the data directory: whoever waits for it may read it.
    aside(path).chmod(0o644)
    aside(path).replace(path)
