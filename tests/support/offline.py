"""Verify and repair on a disk in memory, as the commands do it on a real one."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ledgerfold.storage.files import Files
from ledgerfold.storage.key_value import KeyValueStore
from ledgerfold.storage.names import SNAPSHOTS, write_mark_path
from ledgerfold.storage.repair.plan import make_plan
from ledgerfold.storage.repair.repair import Repair
from ledgerfold.storage.repair.steps import RepairPlan
from ledgerfold.storage.repair.survey import Survey, take
from ledgerfold.storage.repair.verify import Finding, findings
from ledgerfold.storage.repair_manifest import unfinished_repairs
from tests.model.broker_lab import DATA, BrokerLab
from tests.support.lossy_files import CountedKeyValue, LossyFiles

LEDGERS = DATA / "ledgers"
NOW_MS = 1_700_000_000_000


class Offline:
    """A data directory that no broker has open. `is_same_boot`: the machine did not stop since."""

    def __init__(
        self, data_dir: Path, pairs: KeyValueStore, files: Files, *, is_same_boot: bool = True
    ) -> None:
        self.data_dir, self._pairs, self._files = data_dir, pairs, files
        self._is_same_boot = is_same_boot

    def survey(self) -> Survey:
        return take(self.data_dir, self._pairs, self._files, is_same_boot=self._is_same_boot)

    def findings(self) -> list[Finding]:
        return list(findings(self.survey()))

    def damage(self) -> list[Finding]:
        """Without the notes."""
        return [each for each in self.findings() if not each.is_note]

    def unfinished(self) -> list[str]:
        return unfinished_repairs(self.data_dir, self._files)

    def plan(self) -> RepairPlan:
        return make_plan(self.survey(), NOW_MS)

    def repair(self) -> RepairPlan:
        plan = self.plan()
        Repair(self.data_dir, self._pairs, lambda _: self._pairs, self._files, NOW_MS).do(plan)
        return plan


class Snapshot(NamedTuple):
    """A data directory as files and records, to begin from again and again."""

    contents: dict[Path, bytes]
    pairs: list[tuple[bytes, bytes]]

    def ledger_files(self) -> dict[Path, bytes]:
        """Segments and labels."""
        return {path: each for path, each in self.contents.items() if LEDGERS in path.parents}

    def disk(self) -> tuple[LossyFiles, CountedKeyValue]:
        files = LossyFiles(Path("/disk"))
        pairs = CountedKeyValue(files)
        pairs.write(dict(self.pairs), ())
        files.make_dir(LEDGERS)
        for path, content in self.contents.items():
            files.make_dir(path.parent)
            file = files.create(path)
            file.write([content])
            file.sync()
        parents = {path.parent for path in self.contents}
        for folder in (*sorted(parents), LEDGERS, DATA, DATA.parent):
            files.sync_dir(folder)
        return files, pairs


def taken(files: LossyFiles, pairs: CountedKeyValue) -> Snapshot:
    contents = {}
    for parent in (LEDGERS, DATA / SNAPSHOTS):
        for folder in files.listdir(parent) if files.exists(parent) else ():
            for name in files.listdir(parent / folder):
                path = parent / folder / name
                contents[path] = files.open_read(path).pread(1 << 20, 0)
    mark = write_mark_path(DATA)
    contents[mark] = files.open_read(mark).pread(1 << 20, 0)
    return Snapshot(contents, pairs.scan(b""))


def started(files: LossyFiles, pairs: CountedKeyValue) -> BrokerLab:
    """A broker on that disk."""
    lab = BrokerLab.__new__(BrokerLab)
    lab.resume(files, pairs)
    return lab
