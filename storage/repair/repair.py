"""The execution of a repair plan (storage/repair/plan.py), which may be killed at any moment.

1. Every file that will be changed, or removed by the next start, is copied to
   DATA/repairs/<time>/ledgers/.
2. The manifest is written there: the steps, and each changed record, before and after.
3. Segments are split off: written to a temporary file, synced, renamed. No record names them yet.
4. One batch writes all records: the only moment at which anything changes for a reader.
5. Files or parts that no record names any more are removed; labels are written; then the manifest
   says "complete".

A repair that is killed before step 4 has changed nothing. After a later kill, the next repair
removes the remaining files, and marks the manifests of unfinished repairs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ledgerfold.storage.errors import MissingFile
from ledgerfold.storage.files import Files, replace_file
from ledgerfold.storage.key_value import KeyValueStore
from ledgerfold.storage.label import write_label
from ledgerfold.storage.names import (
    ASIDE_SUFFIX,
    LABEL,
    MANIFEST,
    REPAIRS,
    ledgers_dir,
    metadata_dir,
    write_mark_path,
)
from ledgerfold.storage.records import decode, encode_record
from ledgerfold.storage.repair.steps import RepairPlan, Step
from ledgerfold.storage.repair_manifest import (
    BEGUN,
    COMPLETE,
    INTERRUPTED,
    read_manifest,
    unfinished_repairs,
)
from ledgerfold.storage.segment import file_names
from ledgerfold.storage.write_mark import WriteMark
from ledgerfold.v1.records_pb2 import LedgerRecord

BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair of one data directory, whose lock is held.

    `pairs`: the metadata as they were read; `open_store` opens or creates a store for writing.
    `is_unusable`: the existing store cannot be opened.
    """

    data_dir: Path
    pairs: KeyValueStore
    open_store: Callable[[Path], KeyValueStore]
    files: Files
    now_ms: int
    is_unusable: bool = False

    def do(self, plan: RepairPlan) -> Path | None:
        """Executes the plan. Returns the folder of copies and manifest; None if there was nothing
        to do.

        Raises DiskFailure.
        """
        unfinished = unfinished_repairs(self.data_dir, self.files)
        folder = None
        if plan.steps:
            folder = self._make_folder()
            self._copy(plan, folder)
            manifest = self._manifest(plan)
            self._write_manifest(folder, manifest, BEGUN)
            self._split(plan)
            self._put(plan)
            self._cut(plan)
            self._label(plan)
            self._remove(plan, unfinished)
            self._write_manifest(folder, manifest, COMPLETE)
        for name in unfinished:
            old = self.data_dir / REPAIRS / name
            self._write_manifest(old, read_manifest(old, self.files), INTERRUPTED)
        return folder

    def _put(self, plan: RepairPlan) -> None:
        """Writes the read pairs and the plan's changes into the store, at once.

        Opening the store discards the damaged end of its log, from which more pairs may have been
        read. A store that cannot be opened is rebuilt in a temporary folder; the old one is already
        copied.
        """
        final = self._final(plan)
        folder = metadata_dir(self.data_dir)
        target = folder.with_name(folder.name + ASIDE_SUFFIX) if self.is_unusable else folder
        if self.is_unusable:
            self.files.remove_dir(target)
        with closing(self.open_store(target)) as store:
            stored = dict(store.scan(b""))
            puts = {key: value for key, value in final.items() if stored.get(key) != value}
            store.write(puts, stored.keys() - final.keys())
        if self.is_unusable:
            self.files.remove_dir(folder)
            self.files.replace(target, folder)
            self.files.sync_dir(self.data_dir)
        # NOTE: even where there was none: a start treats its absence as a loss of metadata.
        WriteMark.create(write_mark_path(self.data_dir), plan.writes, self.files)

    def _final(self, plan: RepairPlan) -> dict[bytes, bytes]:
        """Returns all pairs as they will be."""
        final = dict(self.pairs.scan(b""))
        for key in plan.deletes:
            final.pop(key, None)
        final |= {key: encode_record(record) for key, record in plan.puts.items()}
        return final

    def _label(self, plan: RepairPlan) -> None:
        for label in plan.labels:
            folder = ledgers_dir(self.data_dir) / str(label.ledger_id)
            if self.files.exists(folder):
                write_label(folder, label, self.files)
                self.files.sync_dir(folder)

    def _remove(self, plan: RepairPlan, unfinished: list[str]) -> None:
        """Removes copied files that no record names: a start would treat them as lost entries."""
        folder, paths = ledgers_dir(self.data_dir), set(plan.copies)
        for name in unfinished:
            manifest = read_manifest(self.data_dir / REPAIRS / name, self.files)
            paths |= {*manifest["copies"], *(each["target"] for each in manifest["split"])}
        named = set()
        for key, value in self._final(plan).items():
            if key.startswith(b"ledger/"):
                record = decode(LedgerRecord, key, value)
                named |= file_names(record)
        paths = {each for each in paths - named if not each.endswith(f"/{LABEL}")}
        existing = [folder / each for each in sorted(paths) if self.files.exists(folder / each)]
        for path in existing:
            self.files.remove(path)
        for parent in sorted({path.parent for path in existing}):
            self.files.sync_dir(parent)

    def _make_folder(self) -> Path:
        time = datetime.fromtimestamp(self.now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
        parent, number = self.data_dir / REPAIRS, 1
        folder = parent / time
        while self.files.exists(folder):
            number += 1
            folder = parent / f"{time}-{number}"
        self.files.make_dir(folder)
        self.files.sync_dir(self.data_dir)
        self.files.sync_dir(parent)
        return folder

    def _copy(self, plan: RepairPlan, folder: Path) -> None:
        source, target = metadata_dir(self.data_dir), metadata_dir(folder)
        if plan.copies_metadata and self.files.exists(source):
            self.files.make_dir(target)
            for name in self.files.listdir(source):
                self.files.copy(source / name, target / name)
            self.files.sync_dir(target)
            self.files.sync_dir(folder)
        ledgers = ledgers_dir(self.data_dir)
        for path in sorted(plan.copies):
            target = ledgers_dir(folder) / path
            self.files.make_dir(target.parent)
            self.files.copy(ledgers / path, target)
            for each in (target.parent, ledgers_dir(folder), folder):
                self.files.sync_dir(each)

    def _manifest(self, plan: RepairPlan) -> dict[str, Any]:
        after = {key: encode_record(record) for key, record in plan.puts.items()}
        return {
            "state": BEGUN,
            "time_ms": self.now_ms,
            "done": [step._asdict() for step in plan.steps],
            "refused": [step._asdict() for step in plan.refused],
            "copies": sorted(plan.copies),
            "split": [each._asdict() for each in plan.extracts],
            "cut": [each._asdict() for each in plan.cuts],
            "records": [
                {
                    "key": key.decode(errors="backslashreplace"),
                    "before": _text(self.pairs.get(key)),
                    "after": _text(after.get(key)),
                }
                for key in sorted(after.keys() | plan.deletes)
            ],
        }

    def _write_manifest(self, folder: Path, manifest: dict[str, Any], state: str) -> None:
        text = json.dumps(manifest | {"state": state}, indent=2) + "\n"
        replace_file(folder / MANIFEST, [text.encode()], self.files)

    def _split(self, plan: RepairPlan) -> None:
        folder = ledgers_dir(self.data_dir)
        for each in plan.extracts:
            blocks = self._blocks(folder / each.source, each.offset, each.size_bytes)
            replace_file(folder / each.target, blocks, self.files)
        for path, stored in plan.vectors.items():
            replace_file(folder / path, [stored], self.files)

    def _cut(self, plan: RepairPlan) -> None:
        folder = ledgers_dir(self.data_dir)
        for path, offset, size in plan.cuts:
            # Not in place: a snapshot may share the file.
            replace_file(folder / path, self._blocks(folder / path, offset, size), self.files)

    def _blocks(self, path: Path, offset: int, size_bytes: int) -> Iterator[bytes]:
        end = offset + size_bytes
        with closing(self.files.open_read(path)) as file:
            while offset < end:
                block = file.pread(min(BLOCK_BYTES, end - offset), offset)
                if not block:
                    raise MissingFile(str(path), "a repair")
                yield block
                offset += len(block)


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def messages_lost(steps: list[Step]) -> tuple[int, bool]:
    """Returns the known number of lost messages, and whether there may be more."""
    known = [each.messages for each in steps if each.messages is not None]
    return sum(known), len(known) < len(steps)
