"""Snapshots of a whole data directory, in DATA/snapshots/<name>/ (docs/FORMATS.md, "Snapshots").

A snapshot has a hard link to each file of each ledger, and a file with all records. Nothing is
copied: a ledger that is closed never changes. So while one is saved or restored no topic is loaded,
and all ledgers are closed. A crash leaves the state before or after:

* **Save**: everything is built in <name>.tmp, synced, and renamed. A failed one is removed. The
  next save or deletion, or a start, removes what could not be removed, or what a crash left.
* **Restore**: ledgers that no longer exist are listed as DELETING, so that a start would remove
  them, and linked; files that others have lost are linked, too; then one synced write replaces all
  records. Ledgers that the snapshot does not have are DELETING from then on. Cursors get new
  incarnations, which invalidate acknowledgements that clients send again later.
* **Delete**: it is renamed to <name>.tmp, and removed.

Ledger ids are never reused after a restore: the store record is not part of a snapshot.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.errors import (
    Corruption,
    DiskFailure,
    LedgerfoldError,
    LimitExceeded,
    MissingFile,
    NotAllowed,
    SnapshotExists,
    SnapshotNotFound,
)
from ledgerfold.storage.files import Files, make_durable_dir, size_if_any, write_file
from ledgerfold.storage.metadata import MetadataBatch, MetadataStore
from ledgerfold.storage.names import (
    ASIDE_SUFFIX,
    KEY_INDEX_SUFFIX,
    LABEL,
    SNAPSHOT_RECORDS,
    ledgers_dir,
)
from ledgerfold.storage.records import STORE_KEY, WRITES_KEY, decode, key
from ledgerfold.storage.removal import delete_ledgers
from ledgerfold.storage.segment import file_names
from ledgerfold.storage.snapshot_folder import (
    SnapshotFolder,
    check_name,
    checksum_of,
    described,
    flat,
    ledgers_of,
)
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_CLOSED,
    LEDGER_STATE_DELETING,
    CursorRecord,
    LedgerRecord,
    Snapshot,
    SnapshotRecords,
)

SNAPSHOTS_MAX = 1000
RECORDS_BYTES_MAX: Final = 512 * 1024 * 1024
_LEDGER, _CURSOR = key("ledger", ""), key("cursor", "")
_log = logging.getLogger(__name__)


class Snapshots(SnapshotFolder):
    """The snapshots of one data directory. One thread at a time uses them."""

    def __init__(
        self, data_dir: Path, metadata: MetadataStore, files: Files, clock_ms: Callable[[], int]
    ) -> None:
        super().__init__(data_dir, files)
        self._ledgers_dir = ledgers_dir(data_dir)
        self._metadata, self._clock_ms = metadata, clock_ms

    def listed(self) -> list[Snapshot]:
        """Returns the snapshots by name, without damaged ones. Raises DiskFailure."""
        snapshots = []
        for name in self.names():
            try:
                snapshots.append(described(self.load(name)))
            except (Corruption, SnapshotNotFound) as error:
                _log.warning("Snapshot %s is not listed: %s", name, error)
        return snapshots

    # Saving.

    def save(self, name: str) -> Snapshot:
        """Saves the state, while all ledgers are closed.

        Raises InvalidRequest, SnapshotExists, LimitExceeded, NotAllowed (a ledger is not closed),
        MissingFile, DiskFailure.
        """
        check_name(name)
        if name in (names := self.names()):
            raise SnapshotExists(name)
        if len(names) >= SNAPSHOTS_MAX:
            raise LimitExceeded("Snapshots", len(names) + 1, SNAPSHOTS_MAX, "Delete one first.")
        records = self._records(name)
        data = records.SerializeToString()
        if len(data) > RECORDS_BYTES_MAX:
            what = "Bytes of all metadata records"
            raise LimitExceeded(what, len(data), RECORDS_BYTES_MAX, "Delete topics.")
        make_durable_dir(self.path, self._files)
        self.sweep()
        try:
            self._build(records, data)
        except LedgerfoldError:
            self.sweep()
            raise
        try:
            self._files.sync_dir(self.path)
        except DiskFailure as error:
            what = f"Snapshot {name} is saved, but a power loss may undo that: a sync"
            raise DiskFailure(error.path, what, error.cause) from error
        reach("snapshot.renamed")
        return described(records)

    def _build(self, records: SnapshotRecords, data: bytes) -> None:
        """Links and writes all files in a temporary folder, then renames it. `data`: the
        records."""
        target = self.path / records.name
        aside = self.path / f"{records.name}{ASIDE_SUFFIX}"
        self._files.remove_dir(aside)
        self._files.make_dir(aside)
        for record in ledgers_of(records).values():
            for path in self._paths(record):
                self._link(self._ledgers_dir / path, aside / flat(path))
        self.check_files(records, aside)
        write_file(aside / SNAPSHOT_RECORDS, [checksum_of(data), data], self._files)
        self._files.sync_dir(aside)
        reach("snapshot.linked")
        self._files.replace(aside, target)

    def _records(self, name: str) -> SnapshotRecords:
        """Returns all records but those of ledgers that are being deleted."""
        records = SnapshotRecords(name=name, created_ms=self._clock_ms())
        for at, value in self._metadata.pairs():
            if at in (STORE_KEY, WRITES_KEY):
                continue
            if at.startswith(_LEDGER):
                ledger = decode(LedgerRecord, at, value)
                if ledger.state == LEDGER_STATE_DELETING:
                    continue
                if ledger.state != LEDGER_STATE_CLOSED:
                    raise NotAllowed(
                        f"Ledger {ledger.ledger_id} of {ledger.topic} could not be closed: see the "
                        "broker's log."
                    )
            records.pairs.add(key=at, value=value)
        return records

    def _paths(self, record: LedgerRecord) -> Iterator[str]:
        """Yields the ledger's existing files, relative to the ledgers folder."""
        for path in sorted(file_names(record)):
            # A key index may be deleted at any time.
            if not path.endswith(KEY_INDEX_SUFFIX) or self._files.exists(self._ledgers_dir / path):
                yield path
        label = f"{record.ledger_id}/{LABEL}"
        if self._files.exists(self._ledgers_dir / label):
            yield label

    def _link(self, source: Path, target: Path) -> None:
        try:
            self._files.link(source, target)
        except FileNotFoundError as error:
            raise MissingFile(str(source), "a ledger's record") from error

    # Restoring.

    def restore(
        self, records: SnapshotRecords, delete: Callable[[Collection[int]], None]
    ) -> list[int]:
        """Replaces all records by those of the snapshot, while all ledgers are closed.

        Returns the ids of the ledgers that are now DELETING, whose files the caller deletes. On an
        error nothing has changed, and `delete` removes what was brought back, unless it is unknown
        whether the records are replaced: then the next start decides. Raises MissingFile,
        NotAllowed, StorageError.
        """
        self.check_files(records)
        ledgers = ledgers_of(records)
        gone, restored = list[int](), list[int]()

        def edit(batch: MetadataBatch) -> None:
            gone.extend(each for each in batch.delete_everything() if each not in ledgers)
            for pair in records.pairs:
                if pair.key.startswith(_CURSOR):
                    batch.put(self._renewed(decode(CursorRecord, pair.key, pair.value)))
                else:
                    batch.put_encoded(pair.key, pair.value)

        try:
            with self._metadata.removals.exclusive():
                restored += self._list(records, ledgers)
                self._bring_back(records, ledgers)
                try:
                    self._metadata.change(edit)
                except DiskFailure as error:
                    if error.may_be_durable:
                        restored.clear()
                    raise
                self._metadata.restored.update(ledgers)
                self._metadata.count_durably()
        except LedgerfoldError:
            with suppress(DiskFailure):
                delete(restored)
            raise
        reach("restore.recorded")
        return gone

    def _renewed(self, cursor: CursorRecord) -> CursorRecord:
        """Returns the cursor for which no acknowledgement was made yet."""
        cursor.incarnation = self._metadata.new_incarnation(self._clock_ms())
        return cursor

    def _list(self, records: SnapshotRecords, records_by_id: dict[int, LedgerRecord]) -> list[int]:
        """Lists the ledgers that exist no more as being made. Returns their ids."""
        ledgers = {each.ledger_id: each for each in self._metadata.ledgers()}
        deleted = {
            ledger_id
            for ledger_id, each in ledgers.items()
            if ledger_id in records_by_id and each.state == LEDGER_STATE_DELETING
        }
        delete_ledgers(deleted, self._ledgers_dir, self._metadata, self._files)
        restored = [each for each in records_by_id if each in deleted or each not in ledgers]
        for ledger_id in records_by_id.keys() - restored:
            if ledgers[ledger_id] != records_by_id[ledger_id]:
                raise NotAllowed(
                    f"Ledger {ledger_id} was repaired after snapshot {records.name} was saved, so "
                    "it cannot be restored. Save a new snapshot."
                )
        with self._metadata.batch() as batch:
            for ledger_id in restored:
                batch.put_being_made(records_by_id[ledger_id])
        return restored

    def _bring_back(self, records: SnapshotRecords, records_by_id: dict[int, LedgerRecord]) -> None:
        """Links the files of the ledgers that exist no more; a start would remove them again.

        Also links files that are missing in, or differ in size from, those of existing ledgers.
        """
        reach("restore.marked")
        folder = self.path / records.name
        linked = [self._link_back(record, folder) for record in records_by_id.values()]
        if any(linked):
            self._files.sync_dir(self._ledgers_dir)
        reach("restore.linked")

    def _link_back(self, record: LedgerRecord, folder: Path) -> bool:
        """Links the missing files of the ledger. Returns whether any were missing."""
        ledger = self._ledgers_dir / str(record.ledger_id)
        paths = [*sorted(file_names(record)), f"{record.ledger_id}/{LABEL}"]
        lacking = [
            each
            for each in paths
            if (size_bytes := size_if_any(folder / flat(each), self._files)) is not None
            and size_bytes != size_if_any(self._ledgers_dir / each, self._files)
        ]
        if lacking:
            self._files.make_dir(ledger)
            for path in lacking:
                self._files.link(folder / flat(path), self._ledgers_dir / path)
            self._files.sync_dir(ledger)
        return bool(lacking)
