"""A read-only view of all pairs of a RocksDB store, which changes none of its files.

RocksDB in read-only mode writes nothing, but its Python binding writes a file into the folder. So
the store is opened through a temporary folder of links.

    >>> from ledgerfold.storage.rocks import RocksKeyValue
    >>> pairs = RocksKeyValue(folder / "metadata")
    >>> pairs.write({b"key": b"value"}, ())
    >>> pairs.close()
    >>> found = read_pairs(folder / "metadata")
    >>> found.pairs.scan(b"key"), found.damage
    ([(b'key', b'value')], None)

Damaged stores are read as far as possible:

1. RocksDB's log may end with a truncated write, which was never acknowledged; or be damaged: then
   writes after the damage are read, too, which a starting broker ignores.
2. A store that does not open is repaired by RocksDB in a copy, without the unreadable parts.
3. If even that fails, the result is empty: then only the ledgers can help (storage/repair/lost.py).

Bounds: the whole store in memory. Records have a few hundred bytes; their number is that of
ledgers, subscriptions, producers and runs.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.rocks import pairs_in

# Files that are written or not needed: RocksDB's text log, lock, options; the binding's settings.
_NOT_LINKED = ("LOG", "LOCK", "OPTIONS", "rocksdict")
# RocksDB's recovery modes, which determine how much of a damaged log is read.
_ALL, _ALL_BUT_THE_TAIL = "absolute_consistency", "tolerate_corrupted_tail_records"
_ALL_THAT_IS_GOOD = "skip_any_corrupted_record"


class StoredPairs(NamedTuple):
    """The pairs of a store. `damage`: its first damage. `is_tail`: only the end of its log is
    damaged.

    `is_unusable`: RocksDB does not open it.
    """

    pairs: MemoryKeyValue
    damage: Corruption | None = None
    is_tail: bool = False
    is_unusable: bool = False


def read_pairs(folder: Path) -> StoredPairs:
    """Reads a store, which nothing may write meanwhile. A missing folder is a lost store.

    Raises OSError.
    """
    if not folder.is_dir():
        damage = Corruption(str(folder), 0, "a RocksDB store", "no such folder")
        return StoredPairs(MemoryKeyValue(), damage, is_unusable=True)
    with tempfile.TemporaryDirectory(prefix="ledgerfold-") as name:
        links = Path(name)
        for path in folder.iterdir():
            if not path.name.startswith(_NOT_LINKED):
                (links / path.name).symlink_to(path.resolve())
        try:
            return StoredPairs(_read(links, folder, _ALL))
        except Corruption as error:
            damage = error
        for mode, is_tail in ((_ALL_BUT_THE_TAIL, True), (_ALL_THAT_IS_GOOD, False)):
            try:
                return StoredPairs(_read(links, folder, mode), damage, is_tail)
            except Corruption:
                continue
        return StoredPairs(_repaired(folder), damage, is_unusable=True)


def _repaired(folder: Path) -> MemoryKeyValue:
    """Returns the pairs that remain after RocksDB has repaired a copy."""
    from rocksdict import Options, Rdict

    with tempfile.TemporaryDirectory(prefix="ledgerfold-") as name:
        copy = Path(name) / "metadata"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("LOCK", "rocksdict*"))
        try:
            Rdict.repair(str(copy), Options(raw_mode=True))
            return _read(copy, folder, _ALL_THAT_IS_GOOD)
        except Exception:
            # The binding raises plain Exception for all RocksDB errors.
            return MemoryKeyValue()


def _read(store_folder: Path, folder: Path, mode: str) -> MemoryKeyValue:
    from rocksdict import AccessType, DBRecoveryMode, Options, Rdict

    options = Options(raw_mode=True)
    options.set_wal_recovery_mode(getattr(DBRecoveryMode, mode)())
    pairs = MemoryKeyValue()
    try:
        store = Rdict(str(store_folder), options, access_type=AccessType.read_only())
        try:
            pairs.write(dict(pairs_in(store, b"")), ())
        finally:
            store.close()
    except Exception as error:
        # The binding raises plain Exception for all RocksDB errors.
        text = str(error).replace(str(store_folder), str(folder))
        raise Corruption(str(folder), 0, "an undamaged RocksDB store", text) from error
    return pairs
