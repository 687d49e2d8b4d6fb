"""The broker process: from the lock on the data directory to the last flush.

Start: checks (start_checks.py), the lock on the data directory, the compactor's process in the
background, the recovery of the data directory (data_directory.py), then the server. One line on
standard output, and the ready file, report this, with the addresses:

  {"event": "ready", "listen": "127.0.0.1:7650", "pid": 4711, "data_dir": "/data", ...}

Stop: SIGTERM or SIGINT drains, ends streams and runs, closes ledgers. A second signal exits at
once: no data depends on a clean shutdown.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerfold import heap
from ledgerfold.broker.common.clock import Clock, ManualClock, WallClock
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.faults.disk import FaultyFiles
from ledgerfold.broker.faults.faults import Faults
from ledgerfold.broker.server.data_directory import held, recovered
from ledgerfold.broker.server.grpc_server import Server
from ledgerfold.broker.server.protection import Protection, hosts_of, protection_of
from ledgerfold.broker.server.seeding import check_archives, import_topics
from ledgerfold.broker.server.start_checks import check_start, temporary_path
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.worker.compactor import Compactor
from ledgerfold.broker.worker.service_compactor import compactor_of
from ledgerfold.storage.files import Files, make_durable_dir
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.lock import DirectoryLock
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.version import __version__

if TYPE_CHECKING:
    from ledgerfold.broker.http.server import AdminServer
    from ledgerfold.broker.metrics.process_metrics import ProcessMetrics
    from ledgerfold.broker.metrics.server import Metrics
    from ledgerfold.broker.page.server import PageServer
    from ledgerfold.broker.pulsar.server import PulsarServer

# Streams were ended with the topics: this is for responses in flight.
_GRACE_S = 0.5
_log = logging.getLogger(__name__)


def serve(settings: BrokerSettings) -> int:
    """Runs a broker until a signal ends it.

    Raises InvalidRequest, AddressInUse, DirectoryLocked, OSError, StorageError.
    """
    check_start(settings)
    check_archives(settings.imports)
    logging.basicConfig(
        stream=sys.stderr,
        level=settings.log_level,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    heap.keep_freed()
    # First, because a missing user-defined service must leave no directory behind.
    compactor = compactor_of(settings)
    make_durable_dir(settings.data_dir)
    faults = Faults() if settings.allow_faults else None
    with held(settings.data_dir, faults) as (metadata, lock):
        return asyncio.run(_serve(settings, metadata, lock, compactor, faults))


async def _serve(
    settings: BrokerSettings,
    metadata: MetadataStore,
    lock: DirectoryLock,
    compactor: Compactor,
    faults: Faults | None,
) -> int:
    clock = _clock(settings)
    make_files = Files if faults is None else partial(FaultyFiles, faults)
    process = _process_metrics(settings, make_files)
    metrics = _metrics(settings, process)
    files = make_files() if process is None else process.files
    # Meanwhile the worker imports its libraries. In a thread, because the loop watches the worker.
    await compactor.launch()
    store = await asyncio.to_thread(_opened, settings, metadata, lock, files, clock)
    if faults is not None:
        faults.is_reserve_lent = lambda: store.reserve.is_lent
    broker = Broker(settings, metadata, store, compactor, clock, faults)
    protection = protection_of(broker)
    certificates, guard = protection
    of_metrics = guard if settings.security.protects_metrics else None
    # In the order of the ready line.
    addresses = dict.fromkeys(("listen", "metrics", "admin", "pulsar", "ui"), "")
    if metrics is not None:
        hosts = hosts_of(settings, of_metrics, settings.metrics_listen or "")
        addresses["metrics"] = metrics.serve(broker, of_metrics, certificates, hosts)
    server = Server(broker, guard, certificates)
    pulsar = _pulsar(broker, protection)
    stopped = _stop_on_signals()
    http: list[AdminServer | PageServer] = []
    try:
        addresses["listen"] = await server.start()
        await broker.start()
        if guard is not None:
            broker.spawn(guard.run())
        if pulsar is not None:
            addresses["pulsar"] = await pulsar.start()
        if (admin := _admin(broker, pulsar, protection, process)) is not None:
            http.append(admin)
            addresses["admin"] = await admin.start(settings.admin_listen or "")
        if (page := _page(broker, protection)) is not None:
            http.append(page)
            addresses["ui"] = await page.start(settings.ui_listen or "")
    except BaseException:
        for each in http:
            await each.stop()
        # NOTE: gRPC's server would be stopped when it is deleted, without a loop to do it on, and
        # print a traceback behind the error.
        await server.stop(_GRACE_S)
        raise
    # Recovery has freed memory below objects that stay.
    heap.return_freed()
    # Existing objects live as long as the process: full collections need not scan them.
    gc.freeze()
    _announce(settings, addresses)
    await stopped.wait()
    _log.info("Stopping; a second signal exits at once.")
    await server.drain()
    if pulsar is not None:
        pulsar.stop_listening()
    if metrics is not None:
        metrics.stop()
    for each in http:
        await each.stop()
    await broker.stop()
    if pulsar is not None:
        await pulsar.stop(_GRACE_S)
    await server.stop(_GRACE_S)
    return 0


def _opened(
    settings: BrokerSettings,
    metadata: MetadataStore,
    lock: DirectoryLock,
    files: Files,
    clock: Clock,
) -> LedgerStore:
    store = recovered(settings, metadata, lock, files, clock.now_ms)
    import_topics(settings.imports, store, metadata, files)
    return store


def _admin(
    broker: Broker,
    pulsar: PulsarServer | None,
    protection: Protection,
    process: ProcessMetrics | None,
) -> AdminServer | None:
    """Returns the admin server, whose lookups name the port of Pulsar's protocol."""
    if broker.settings.admin_listen is None:
        return None
    # Imported only if configured: aiohttp takes longer than the rest of a start.
    from ledgerfold.broker.http.server import AdminServer

    url = None if pulsar is None else pulsar.service_url
    certificates, guard = protection
    # It serves metrics, too, which may be open to any client.
    of_metrics = guard if broker.settings.security.protects_metrics else None
    hosts = hosts_of(broker.settings, of_metrics, broker.settings.admin_listen)
    return AdminServer(
        broker, url, guard=guard, certificates=certificates, hosts=hosts, process=process
    )


def _page(broker: Broker, protection: Protection) -> PageServer | None:
    settings = broker.settings
    if settings.ui_listen is None:
        return None
    # Imported only if configured, too: it also needs a library for templates.
    from ledgerfold.broker.page.server import PageServer

    certificates, guard = protection
    return PageServer(
        broker,
        writes=settings.ui_writes,
        names=settings.ui_names,
        authentication=guard,
        certificates=certificates,
    )


def _process_metrics(
    settings: BrokerSettings, make_files: Callable[..., Files]
) -> ProcessMetrics | None:
    """Returns the metrics of the process, if a port serves any."""
    if settings.metrics_listen is None and settings.admin_listen is None:
        return None
    # Imported only if configured: most brokers start without it.
    from ledgerfold.broker.metrics.process_metrics import ProcessMetrics

    return ProcessMetrics(make_files)


def _metrics(settings: BrokerSettings, process: ProcessMetrics | None) -> Metrics | None:
    if settings.metrics_listen is None or process is None:
        return None
    from ledgerfold.broker.metrics.server import Metrics

    return Metrics(settings.metrics_listen, process)


def _pulsar(broker: Broker, protection: Protection) -> PulsarServer | None:
    settings = broker.settings
    if settings.pulsar_listen is None:
        return None
    # Imported only if configured, too.
    from ledgerfold.broker.pulsar.server import PulsarServer

    certificates, guard = protection
    return PulsarServer(
        broker,
        settings.pulsar_listen,
        settings.pulsar_advertise,
        guard=guard,
        certificates=certificates,
    )


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


def _announce(settings: BrokerSettings, addresses: Mapping[str, str]) -> None:
    ready = json.dumps(
        {
            "event": "ready",
            **{name: address for name, address in addresses.items() if address},
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
    # A process that waits for the file must never see it half written.
    temporary_path(path).write_text(ready + "\n")
    # It is not part of the data directory: any waiting process may read it.
    temporary_path(path).chmod(0o644)
    temporary_path(path).replace(path)
