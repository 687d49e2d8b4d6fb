"""A data directory in the hands of this process.

In this order: the lock, the rights of others, the metadata, the end of what a killed process's
worker left running, which would write into what recovery removes; then recovery, and the room that
is kept in reserve. On a full disk a start uses that room.

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
from ledgerfold.storage.files import REAL, Files
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.lock import DirectoryLock
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import metadata_dir, reserve_path
from ledgerfold.storage.owner_only import narrow
from ledgerfold.storage.reserve import RESERVE_BYTES, Reserve
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
        narrow(data_dir)
        _make_room(data_dir)
        pairs = RocksKeyValue(metadata_dir(data_dir), is_same_boot=lock.is_same_boot)
        metadata = MetadataStore(pairs)
        try:
            yield metadata, lock
        finally:
            metadata.close()


def _make_room(data_dir: Path) -> None:
    """On a full disk the room that is kept for deletions: who cannot start deletes nothing.

    A start writes to the metadata. When it is over, what is left of that room is kept again.
    """
    if REAL.free_bytes(data_dir) < RESERVE_BYTES:
        _log.warning("%s is full: room that is kept for deletions is used to start.", data_dir)
        Reserve(reserve_path(data_dir), REAL).empty()


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
