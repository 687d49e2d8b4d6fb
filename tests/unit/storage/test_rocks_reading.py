"""A read-only store: all its intact pairs, and no file of it changes.

tests/unit/cli/test_damage.py looks at every byte of one.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from ledgerfold.storage.rocks import RocksKeyValue
from ledgerfold.storage.rocks_reading import read_pairs

PAIRS = [(b"key %d" % number, b"value %d" % number) for number in range(4)]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """A store of four writes, as kill -9 leaves it."""
    store = RocksKeyValue(tmp_path / "metadata")
    for key, value in PAIRS:
        store.write({key: value}, ())
    shutil.copytree(tmp_path / "metadata", tmp_path / "killed")
    store.close()
    return tmp_path / "killed"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_all_pairs_are_read_without_writing(killed: Path) -> None:
    """The tests of commands alone had read more than one pair."""
    before = contents(killed)
    found = read_pairs(killed)
    assert found.pairs.scan(b"") == PAIRS
    assert (found.damage, found.is_tail, found.is_unusable) == (None, False, False)
    assert contents(killed) == before


def test_an_incomplete_write_is_a_damaged_tail(killed: Path) -> None:
    (log,) = (path for path in killed.glob("*.log") if path.stat().st_size)
    log.write_bytes(log.read_bytes()[:-1])
    found = read_pairs(killed)
    assert found.pairs.scan(b"") == PAIRS[:-1]
    assert (found.damage is not None, found.is_tail, found.is_unusable) == (True, True, False)


def test_a_missing_folder_is_a_lost_store(tmp_path: Path) -> None:
    found = read_pairs(tmp_path / "metadata")
    assert found.pairs.scan(b"") == []
    assert (found.damage is not None, found.is_unusable) == (True, True)
