"""Removal of ledgers, and of files that no record names.

A ledger's files are deleted before its record: a crash in between leaves a record in state
DELETING, and the next start continues. Missing files are ignored. A failed removal (a task may
still write there) is reported to the caller or tried again later, and does not prevent a start.

Before files are removed, the writes that marked their ledger are durably counted
(storage/write_mark.py): if these writes are lost, the next start detects it, and removes no file
with an entry.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import Files
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import DELETION_VECTOR_SUFFIX, LABEL, TORN_SUFFIX, parse_ledger_dir
from ledgerfold.storage.recovery_report import RecoveryReport
from ledgerfold.storage.unnamed import UnnamedFile, listdir

_log = logging.getLogger(__name__)


def delete_ledgers(
    ledger_ids: Iterable[int], ledgers_dir: Path, metadata: MetadataStore, files: Files
) -> None:
    """Deletes the files, the folders, then the records, durably, with one sync and one write.

    Raises DiskFailure.
    """
    with metadata.removals.shared():
        gone = [each for each in ledger_ids if not metadata.is_restored(each)]
        if not gone:
            return
        folders = [path for each in gone if files.exists(path := ledgers_dir / str(each))]
        if folders:
            metadata.allow_removal()
        for folder in folders:
            files.remove_dir(folder)
        files.sync_dir(ledgers_dir)
        with metadata.batch() as batch:
            for ledger_id in gone:
                if metadata.ledger(ledger_id) is not None:
                    batch.delete("ledger", ledger_id)


def delete_left(
    ledger_ids: Iterable[int], ledgers_dir: Path, metadata: MetadataStore, files: Files
) -> set[int]:
    """Deletes as many of the ledgers as possible. Returns those that remain."""
    failed = set()
    for ledger_id in ledger_ids:
        try:
            delete_ledgers((ledger_id,), ledgers_dir, metadata, files)
        except DiskFailure as error:
            _log.warning("Ledger %d is not removed yet: %s", ledger_id, error)
            failed.add(ledger_id)
    return failed


def sweep(
    ledgers_dir: Path, unnamed: Iterable[UnnamedFile], files: Files, report: RecoveryReport
) -> None:
    """Removes files that no record names, except those that a lost record may have named.

    Removes nothing that holds an entry while anything is missing, in the metadata or in a ledger.
    """
    keeps_entries = report.is_incomplete or bool(report.damaged)
    of_folder: dict[int, list[UnnamedFile]] = {}
    for each in unnamed:
        of_folder.setdefault(each.ledger_id, []).append(each)
    for folder in files.listdir(ledgers_dir):
        ledger_id = parse_ledger_dir(folder)
        if ledger_id is None or ledger_id in report.damaged:
            continue
        in_folder = of_folder.get(ledger_id, [])
        is_orphan = ledger_id not in report.ledger_ids
        retained = [each for each in in_folder if keeps_entries and each.holds_entries]
        if retained:
            # Without it, a repair could not tell which messages of its segment are dead.
            retained += [each for each in in_folder if each.path.suffix == DELETION_VECTOR_SUFFIX]
        report.preserved += [str(each.path) for each in retained]
        try:
            if is_orphan and not retained:
                files.remove_dir(ledgers_dir / folder)
                report.orphans.append(folder)
                continue
            for each in in_folder:
                if each not in retained:
                    files.remove(each.path)
                    report.orphans.append(f"{folder}/{each.path.name}")
        except DiskFailure as error:
            _log.warning("Not removed yet: %s", error)
            if is_orphan:
                report.undeleted.append(ledger_id)


def sweep_folder(folder: str, named: set[str], ledgers_dir: Path, files: Files) -> None:
    """Removes the files of a closed ledger's folder that are not `named`, except its label."""
    for name in listdir(ledgers_dir / folder, files):
        if f"{folder}/{name}" not in named and name != LABEL and not name.endswith(TORN_SUFFIX):
            files.remove(ledgers_dir / folder / name)
