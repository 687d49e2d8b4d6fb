"""The folder of snapshots, DATA/snapshots/: names, records, and checks of completeness.

Each snapshot is a folder with a file of all records, and links to the files of all ledgers. It has
no subfolders, so that only one folder is synced. storage/snapshots.py saves and restores them; the
checks here also serve `ledgerfold verify`. Format: docs/FORMATS.md, "Snapshots".

    >>> from ledgerfold.storage.files import REAL
    >>> SnapshotFolder(folder, REAL).names()
    []
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from google.protobuf.message import DecodeError

from ledgerfold.storage.entry import crc32c
from ledgerfold.storage.errors import (
    Corruption,
    DiskFailure,
    InvalidRequest,
    MissingFile,
    SnapshotNotFound,
    StorageError,
)
from ledgerfold.storage.files import Files, size_if_any
from ledgerfold.storage.names import ASIDE_SUFFIX, KEY_INDEX_SUFFIX, SNAPSHOT_RECORDS, SNAPSHOTS
from ledgerfold.storage.records import decode, key
from ledgerfold.storage.segment import file_names
from ledgerfold.v1.records_pb2 import LedgerRecord, Snapshot, SnapshotRecords

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LEDGER, _TOPIC = key("ledger", ""), key("topic", "")
_CRC_BYTES = 4
_log = logging.getLogger(__name__)


class SnapshotFolder:
    """The folder of one data directory. It need not exist."""

    def __init__(self, data_dir: Path, files: Files) -> None:
        self.path, self._files = data_dir / SNAPSHOTS, files

    def sweep(self) -> None:
        """Removes incomplete snapshots, as far as possible."""
        try:
            for name in self._listed():
                if name.endswith(ASIDE_SUFFIX):
                    self._files.remove_dir(self.path / name)
        except DiskFailure as error:
            _log.warning("Not removed yet: %s", error)

    def names(self) -> list[str]:
        return [each for each in self._listed() if _NAME.fullmatch(each)]

    def _listed(self) -> list[str]:
        return self._files.listdir(self.path) if self._files.exists(self.path) else []

    def damaged(self) -> dict[str, StorageError]:
        """Returns the snapshots that cannot be restored, and why. Raises DiskFailure."""
        errors: dict[str, StorageError] = {}
        for name in self.names():
            try:
                self.check_files(self.load(name))
            except (Corruption, MissingFile) as error:
                errors[name] = error
            except SnapshotNotFound:
                path = str(self.path / name / SNAPSHOT_RECORDS)
                errors[name] = MissingFile(path, f"snapshot {name}")
        return errors

    def ledger_ids(self) -> set[int]:
        """Returns the ids of the ledgers of all snapshots that can be read. Raises DiskFailure."""
        return {ledger_id for _, ledgers in self.ledgers() for ledger_id in ledgers}

    def ledgers(self) -> Iterator[tuple[str, dict[int, LedgerRecord]]]:
        """Yields the name and the ledgers of each snapshot that can be read. Raises DiskFailure."""
        for name in self.names():
            with suppress(Corruption, SnapshotNotFound):
                yield name, ledgers_of(self.load(name))

    def load(self, name: str) -> SnapshotRecords:
        """Returns the records, after a check of their checksum.

        Raises InvalidRequest, SnapshotNotFound, Corruption, DiskFailure.
        """
        check_name(name)
        return read_records(self.path / name, self._files)

    def check_files(self, records: SnapshotRecords, folder: Path | None = None) -> None:
        """Checks that each file is there, and each segment has its size; key indexes may be absent.

        `folder`: where the snapshot is being saved. Raises MissingFile, DiskFailure.
        """
        folder = folder or self.path / records.name
        for record in ledgers_of(records).values():
            for path in self.unwhole(record, lambda each: folder / flat(each)):
                raise MissingFile(str(folder / flat(path)), f"snapshot {records.name}")

    def unwhole(self, record: LedgerRecord, path_of: Callable[[str], Path]) -> Iterator[str]:
        """Yields the ledger's files that are missing in a folder, or not of the recorded size."""
        sizes = {each.path: each.size_bytes for each in record.segments}
        for path in sorted(file_names(record)):
            # A key index may be deleted at any time.
            if path.endswith(KEY_INDEX_SUFFIX):
                continue
            size_bytes = size_if_any(path_of(path), self._files)
            if size_bytes is None or size_bytes != sizes.get(path, size_bytes):
                yield path

    def delete(self, name: str) -> None:
        """Raises InvalidRequest, SnapshotNotFound, DiskFailure."""
        check_name(name)
        if name not in self.names():
            raise SnapshotNotFound(name)
        aside = self.path / f"{name}{ASIDE_SUFFIX}"
        self._files.remove_dir(aside)
        self._files.replace(self.path / name, aside)
        self._files.sync_dir(self.path)
        self.sweep()


def read_records(folder: Path, files: Files) -> SnapshotRecords:
    """Returns the records of the snapshot in a folder. Raises as SnapshotFolder.load."""
    path = folder / SNAPSHOT_RECORDS
    try:
        with closing(files.open_read(path)) as file:
            data = file.pread(file.size_bytes, 0)
    except FileNotFoundError as error:
        raise SnapshotNotFound(folder.name) from error
    return decoded_records(data, str(path), "a snapshot")


def decoded_records(data: bytes, path: str, source: str) -> SnapshotRecords:
    """Returns the records in `data`, which was read from `path`. Raises Corruption.

    `source`: the kind of the file, for the error.
    """
    checksum, data = data[:_CRC_BYTES], data[_CRC_BYTES:]
    try:
        if checksum == checksum_of(data):
            return SnapshotRecords.FromString(data)
        found = "other bytes"
    except DecodeError as error:
        found = str(error)
    raise Corruption(path, 0, f"the records of {source}, with their checksum", found)


def ledgers_of(records: SnapshotRecords) -> dict[int, LedgerRecord]:
    """Returns the ledgers by id. Raises Corruption."""
    decoded = [
        decode(LedgerRecord, pair.key, pair.value)
        for pair in records.pairs
        if pair.key.startswith(_LEDGER)
    ]
    return {each.ledger_id: each for each in decoded}


def topics_of(records: SnapshotRecords) -> list[str]:
    """Returns the names of the topics, partitions included."""
    keys = [pair.key for pair in records.pairs if pair.key.startswith(_TOPIC)]
    return [each.removeprefix(_TOPIC).decode() for each in keys]


def described(records: SnapshotRecords) -> Snapshot:
    segments = [each for ledger in ledgers_of(records).values() for each in ledger.segments]
    return Snapshot(
        name=records.name,
        created_ms=records.created_ms,
        topics=len(topics_of(records)),
        size_bytes=sum(each.size_bytes for each in segments),
    )


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} is not a snapshot name: use 1 to 64 letters, digits, '-' and '_', and "
            "begin with a letter or a digit."
        )


def flat(path: str) -> str:
    """Returns the name in a snapshot of a file of a ledger: one folder is synced, not many."""
    return path.replace("/", "-")


def checksum_of(data: bytes) -> bytes:
    return crc32c(data).to_bytes(_CRC_BYTES, "little")
