"""The files of a run vanish while `verify` looks at them: a killed broker's worker removes them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ledgerfold.storage.entry import stamp
from ledgerfold.storage.files import Files
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.names import key_index_path, ledgers_dir, segment_path
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.records import STORE_KEY, encode_record, new_store_record
from ledgerfold.storage.repair.survey import take
from ledgerfold.storage.repair.verify import Finding, findings

LEDGER = 7


class Vanishing(Files):
    """Removes a folder before the operation of this number. `count`: those so far."""

    def __init__(self, folder: Path, number: int) -> None:
        super().__init__()
        self.count = 0
        self._folder, self._number = folder, number

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        return self._watched(found) if callable(found) and not name.startswith("_") else found

    def _watched(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == self._number:
                shutil.rmtree(self._folder)
            return operation(*arguments, **named)

        return watched


def make_run(data_dir: Path) -> Path:
    """Writes what a run has written before its commit. Returns its ledger's folder."""
    builder = NativeBatchBuilder("p")
    builder.add(b"value", b"key")
    entry = stamp(builder.build(sequence_id=0, publish_time_ms=0), 1, 0, 0, 1)
    for number in range(2):
        path = segment_path(LEDGER, number)
        file = ledgers_dir(data_dir) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(entry)
        (ledgers_dir(data_dir) / key_index_path(path)).write_bytes(b"an index, not an entry " * 9)
    return ledgers_dir(data_dir) / str(LEDGER)


def test_files_that_vanish_at_any_moment_are_no_damage(tmp_path: Path) -> None:
    """The torture met two of these moments in thousands of kills."""
    store = new_store_record()
    store.next_ledger_id = LEDGER + 1
    pairs = MemoryKeyValue()
    pairs.write({STORE_KEY: encode_record(store)}, ())

    def look(number: int) -> tuple[list[Finding], int]:
        """Returns the damage, and the number of operations."""
        data_dir = tmp_path / str(number)
        files = Vanishing(make_run(data_dir), number)
        found = findings(take(data_dir, pairs, files))
        return [each for each in found if not each.is_note], files.count

    undisturbed, count = look(0)
    assert count > 10
    for number in range(1, count + 1):
        assert look(number)[0] == undisturbed, number
