"""A data directory in the hands of this process.

In this order: the lock, the metadata, the end of what a killed process's worker left running, which
would write into what recovery removes; then recovery, and the room that is kept in reserve. A start
on a full disk gives that room up when it cannot open the metadata without.

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

from ledgerfold.broker.compaction.worker_remains import end_left_over
from ledgerfold.broker.ground.settings import BrokerSettings
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import Files
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.lock import DirectoryLock
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import metadata_dir, reserve_path
from ledgerfold.storage.rocks import RocksKeyValue
from ledgerfold.version import __version__

DESCRIPTORS_MAX = 65_536
_log = logging.getLogger(__name__)


def _raise_descriptor_limit() -> None:
    """Ledgers and connections need them; the usual soft limit is for programs that select()."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


@contextmanager
def held(data_dir: Path) -> Iterator[tuple[MetadataStore, DirectoryLock]]:
    """Takes what descriptors there may be. Raises DirectoryLocked, StorageError."""
    _raise_descriptor_limit()
    with DirectoryLock(data_dir, __version__) as lock:
        metadata = MetadataStore(_pairs(data_dir, is_same_boot=lock.is_same_boot))
        try:
            yield metadata, lock
        finally:
            metadata.close()


def _pairs(data_dir: Path, *, is_same_boot: bool) -> RocksKeyValue:
    """On a full disk the room that is kept for deletions goes: who cannot start deletes nothing."""
    folder, reserve = metadata_dir(data_dir), reserve_path(data_dir)
    try:
        return RocksKeyValue(folder, is_same_boot=is_same_boot)
    except DiskFailure as error:
        if not (error.is_full and reserve.exists()):
            raise
        _log.warning("%s Room that is kept for deletions is used to start.", error)
    reserve.unlink()
    return RocksKeyValue(folder, is_same_boot=is_same_boot)


def recovered(
    settings: BrokerSettings,
    metadata: MetadataStore,
    lock: DirectoryLock,
    files: Files,
    clock_ms: Callable[[], int],
) -> LedgerStore:
    """The ledgers, as the last owner left them. Raises StorageError."""
    store = LedgerStore(
        settings.data_dir, metadata, files=files, settings=settings.store, clock_ms=clock_ms
    )
    # It would write into what recovery removes.
    end_left_over(settings.data_dir)
    report = store.recover(is_same_boot=lock.is_same_boot)
    lock.record_boot()
    store.reserve.keep()
    _log.info("Recovered %s: %s", settings.data_dir, report)
    return store
