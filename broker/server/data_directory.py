"""Acquisition and recovery of a data directory.

In this order: the lock; the removal of other users' permissions; the end of processes that a killed
broker's worker has left, which would write into files that recovery removes; the metadata;
recovery; the disk reserve. On a full disk a start uses the reserve.

  >>> import tempfile
  >>> from pathlib import Path
  >>> with held(Path(tempfile.mkdtemp())) as (metadata, lock):
  ...     print(lock.is_same_boot, metadata.topics())
  False []
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.faults.disk import FaultyKeyValue
from ledgerfold.broker.faults.faults import Faults
from ledgerfold.broker.worker.remains import end_left_over
from ledgerfold.storage.files import REAL, Files
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.lock import DirectoryLock
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import metadata_dir, reserve_path
from ledgerfold.storage.owner_only import narrow
from ledgerfold.storage.reserve import RESERVE_BYTES, Reserve
from ledgerfold.storage.rocks import RocksKeyValue
from ledgerfold.storage.snapshot_folder import SnapshotFolder
from ledgerfold.version import __version__

DESCRIPTORS_MAX = 65_536
_log = logging.getLogger(__name__)


def _raise_descriptor_limit() -> None:
    """Raises the soft limit of descriptors, whose usual value is for programs that use select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    target = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < target:
        resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))


@contextmanager
def held(
    data_dir: Path, faults: Faults | None = None
) -> Iterator[tuple[MetadataStore, DirectoryLock]]:
    """Locks the directory and opens its metadata. Raises DirectoryLocked, StorageError, OSError.

    `faults`: rules by which writes to the metadata fail.

    Also raises the limit of descriptors, and ends what earlier workers have left: from then on a
    new one may start.
    """
    _raise_descriptor_limit()
    with DirectoryLock(data_dir, __version__) as lock:
        narrow(data_dir)
        _make_room(data_dir)
        end_left_over(data_dir)
        path = metadata_dir(data_dir)
        rocks = RocksKeyValue(path, is_same_boot=lock.is_same_boot)
        pairs = rocks if faults is None else FaultyKeyValue(faults, rocks, path)
        metadata = MetadataStore(pairs)
        try:
            yield metadata, lock
        finally:
            metadata.close()


def _make_room(data_dir: Path) -> None:
    """Releases the disk reserve on a full disk: a broker that cannot start can delete nothing.

    A start writes to the metadata. After it, the reserve is allocated again.
    """
    if REAL.free_bytes(data_dir) < RESERVE_BYTES:
        _log.warning("%s is full: the disk reserve for deletions is used to start.", data_dir)
        Reserve(reserve_path(data_dir), REAL).empty()


def recovered(
    settings: BrokerSettings,
    metadata: MetadataStore,
    lock: DirectoryLock,
    files: Files,
    clock_ms: Callable[[], int],
) -> LedgerStore:
    """Opens the ledgers as the last owner left them. Raises StorageError."""
    store = LedgerStore(
        settings.data_dir, metadata, files=files, settings=settings.store, clock_ms=clock_ms
    )
    report = store.recover(is_same_boot=lock.is_same_boot)
    SnapshotFolder(settings.data_dir, files).sweep()
    lock.record_boot()
    store.reserve.keep()
    _log.info("Recovered %s: %s", settings.data_dir, report)
    return store
