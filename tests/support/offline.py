"""Verify and repair on a disk in memory, as the commands do it on a real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from storage.files import Files
from storage.key_value import KeyValueStore
from storage.repair import Repair
from storage.repair_plan import RepairPlan, make_plan
from storage.survey import Survey, take
from storage.verify import Finding, findings

NOW_MS = 1_700_000_000_000


class Offline:
    """A data directory that no broker has open."""

    def __init__(self, data_dir: Path, pairs: KeyValueStore, files: Files) -> None:
        self.data_dir, self._pairs, self._files = data_dir, pairs, files

    def survey(self) -> Survey:
        return take(self.data_dir, self._pairs, self._files)

    def findings(self) -> list[Finding]:
        return list(findings(self.survey()))

    def damage(self) -> list[Finding]:
        """Without the notes."""
        return [each for each in self.findings() if not each.is_note]

    def plan(self) -> RepairPlan:
        return make_plan(self.survey(), NOW_MS)

    def repair(self) -> RepairPlan:
        plan = self.plan()
        open_store: Callable[[], KeyValueStore] = lambda: self._pairs  # noqa: E731
        Repair(self.data_dir, self._pairs, open_store, self._files, NOW_MS).do(plan)
        return plan
