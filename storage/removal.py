"""Removing ledgers, and files that no record names.

A ledger's files go before its record: a crash in between leaves a record in state DELETING, and the
next start goes on. What is gone is gone. What cannot be removed (somebody still writes there, say)
is told to the caller or left for later, and is no reason not to start.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerfold.v1.records_pb2 import LEDGER_KIND_COMPACTED, LEDGER_STATE_DELETING

from storage.errors import DiskFailure
from storage.files import Files
from storage.metadata import MetadataStore
from storage.names import TORN_SUFFIX, parse_ledger_dir

if TYPE_CHECKING:
    from storage.recovery import RecoveryReport

_log = logging.getLogger(__name__)


def delete_ledger(ledger_id: int, ledgers_dir: Path, metadata: MetadataStore, files: Files) -> None:
    """Deletes files, folder, then the record, durably. What another ledger lists stays.

    Raises DiskFailure.
    """
    record = metadata.ledger(ledger_id)
    shared: set[str] = set()
    listed: list[str] = []
    # Only a compacted ledger may list a segment of another, and only another compacted one's.
    if record is not None and record.kind == LEDGER_KIND_COMPACTED:
        shared = {
            segment.path
            for other in metadata.ledgers()
            if other.ledger_id != ledger_id and other.state != LEDGER_STATE_DELETING
            for segment in other.segments
        }
        listed = [segment.path for segment in record.segments]
    for folder in {str(ledger_id), *(path.split("/")[0] for path in listed)}:
        if not files.exists(ledgers_dir / folder):
            continue
        named = {path for path in shared if path.startswith(f"{folder}/")}
        is_own = folder == str(ledger_id)
        if named:
            sweep_folder(folder, named, ledgers_dir, files)
        elif is_own or metadata.ledger(int(folder)) is None:
            files.remove_dir(ledgers_dir / folder)
    files.sync_dir(ledgers_dir)
    if record is not None:
        with metadata.batch() as batch:
            batch.delete_ledger(ledger_id)


def delete_left(
    ledger_ids: Iterable[int], ledgers_dir: Path, metadata: MetadataStore, files: Files
) -> set[int]:
    """Deletes ledgers as far as that succeeds; those that are left."""
    left = set()
    for ledger_id in ledger_ids:
        try:
            delete_ledger(ledger_id, ledgers_dir, metadata, files)
        except DiskFailure as error:
            _log.warning("Ledger %d is not removed yet: %s", ledger_id, error)
            left.add(ledger_id)
    return left


def sweep(ledgers_dir: Path, metadata: MetadataStore, files: Files, report: RecoveryReport) -> None:
    """Removes what no record names. Torn copies stay as long as their ledger does."""
    ledgers = {record.ledger_id: record for record in metadata.ledgers()}
    named = {segment.path for record in ledgers.values() for segment in record.segments}
    for folder in files.listdir(ledgers_dir):
        ledger_id = parse_ledger_dir(folder)
        if ledger_id is None or ledger_id in report.damaged:
            continue
        names = _listdir(ledgers_dir / folder, files)
        # A later ledger may list segments of one that is gone.
        is_orphan = ledger_id not in ledgers and not any(f"{folder}/{x}" in named for x in names)
        try:
            if is_orphan:
                files.remove_dir(ledgers_dir / folder)
                report.orphans.append(folder)
            else:
                report.orphans += sweep_folder(folder, named, ledgers_dir, files)
        except DiskFailure as error:
            _log.warning("Not removed yet: %s", error)
            if is_orphan:
                report.left.append(ledger_id)


def sweep_folder(folder: str, named: set[str], ledgers_dir: Path, files: Files) -> list[str]:
    """Removes the files of a ledger's folder that are not `named`; which they were."""
    removed = []
    for name in _listdir(ledgers_dir / folder, files):
        if f"{folder}/{name}" not in named and not name.endswith(TORN_SUFFIX):
            files.remove(ledgers_dir / folder / name)
            removed.append(f"{folder}/{name}")
    return removed


def _listdir(path: Path, files: Files) -> list[str]:
    """What a folder holds: nothing, when it is gone."""
    try:
        return files.listdir(path)
    except FileNotFoundError:
        return []
