"""Removing ledgers, and files that no record names.

A ledger's files go before its record: a crash in between leaves a record in state DELETING, and the
next start goes on. What is gone is gone. What cannot be removed (a task still writes there, say)
is told to the caller or left for later, and is no reason not to start.

A raw segment is named by a record before it gets its first entry, and its entries go before its
record does. So one with entries that nobody names is not left over: it was stored, and the metadata
have lost it. It is kept under another name, and told.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path

from ledgerfold.storage.entry import HEADER_BYTES, has_header, read_header
from ledgerfold.storage.errors import Corruption, DiskFailure, IncompatibleFormat
from ledgerfold.storage.files import Files
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import KEPT_SUFFIX, SEGMENT_SUFFIX, TORN_SUFFIX, parse_ledger_dir
from ledgerfold.storage.recovery_report import RecoveryReport

_log = logging.getLogger(__name__)


def delete_ledger(ledger_id: int, ledgers_dir: Path, metadata: MetadataStore, files: Files) -> None:
    """Deletes files, folder, then the record, durably. Raises DiskFailure."""
    folder = ledgers_dir / str(ledger_id)
    if files.exists(folder):
        files.remove_dir(folder)
    files.sync_dir(ledgers_dir)
    if metadata.ledger(ledger_id) is not None:
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
    folders = (parse_ledger_dir(folder) for folder in files.listdir(ledgers_dir))
    metadata.skip_ledger_ids(max((each for each in folders if each is not None), default=0))
    for folder in files.listdir(ledgers_dir):
        ledger_id = parse_ledger_dir(folder)
        if ledger_id is None or ledger_id in report.damaged:
            continue
        is_orphan = ledger_id not in ledgers
        try:
            is_orphan &= not _keep_stored(ledgers_dir / folder, ledger_id, named, files, report)
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
        if f"{folder}/{name}" not in named and not name.endswith((TORN_SUFFIX, KEPT_SUFFIX)):
            files.remove(ledgers_dir / folder / name)
            removed.append(f"{folder}/{name}")
    return removed


def _keep_stored(
    folder: Path, ledger_id: int, named: set[str], files: Files, report: RecoveryReport
) -> bool:
    """Renames raw segments that hold entries and are not `named`; whether any such is there."""
    names = _listdir(folder, files)
    lost = [
        name
        for name in names
        if name.endswith(SEGMENT_SUFFIX)
        and f"{folder.name}/{name}" not in named
        and _is_of_ledger(folder / name, ledger_id, files)
    ]
    for name in lost:
        kept = folder / (name + KEPT_SUFFIX)
        files.replace(folder / name, kept)
        report.kept.append(str(kept))
        _log.error("%s holds entries that no record names: the metadata have lost them.", kept)
    if lost:
        files.sync_dir(folder)
    return bool(lost) or any(name.endswith(KEPT_SUFFIX) for name in names)


def _is_of_ledger(path: Path, ledger_id: int, files: Files) -> bool:
    """Whether it begins with an entry of that ledger. In a compacted one none has its id."""
    try:
        file = files.open_read(path)
    except FileNotFoundError:
        return False
    try:
        head = file.pread(HEADER_BYTES, 0)
        return has_header(head, 0) and read_header(head).ledger_id == ledger_id
    except (Corruption, IncompatibleFormat):
        return False
    finally:
        file.close()


def _listdir(path: Path, files: Files) -> list[str]:
    """What a folder holds: nothing, when it is gone."""
    try:
        return files.listdir(path)
    except FileNotFoundError:
        return []
