"""All pairs of a RocksDB store, without a change to any of its files.

RocksDB opened for reading writes nothing, but its Python binding writes a file of its own into the
folder. So the store is opened through a temporary folder of links.

    >>> from ledgerfold.storage.rocks import RocksKeyValue
    >>> pairs = RocksKeyValue(folder / "metadata")
    >>> pairs.write({b"key": b"value"}, ())
    >>> pairs.close()
    >>> found = read_pairs(folder / "metadata")
    >>> found.pairs.scan(b"key"), found.damage
    ([(b'key', b'value')], None)

What is damaged is read as far as that is possible:

1. RocksDB's log may end with a write that was cut short, which was never acknowledged; or be
   damaged: then writes behind the damage are read, too, which a broker that starts passes over.
2. A store that does not open is mended by RocksDB in a copy, which drops what cannot be read.
3. Where even that fails there is nothing: the ledgers tell what they can (storage/repair_lost.py).

Bounds: the whole store in memory; it holds records of some hundred bytes, as many as there are
ledgers, subscriptions, producers and runs.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.key_value import MemoryKeyValue

# What is written to, or not needed: RocksDB's text log, lock and options, the binding's settings.
_NOT_LINKED = ("LOG", "LOCK", "OPTIONS", "rocksdict")
# How much of a damaged log RocksDB reads.
_ALL, _ALL_BUT_THE_TAIL = "absolute_consistency", "tolerate_corrupted_tail_records"
_ALL_THAT_IS_GOOD = "skip_any_corrupted_record"


class StoredPairs(NamedTuple):
    """`damage`: what is wrong with the store. `is_tail`: only with the end of its log.

    `is_unusable`: RocksDB does not open it.
    """

    pairs: MemoryKeyValue
    damage: Corruption | None = None
    is_tail: bool = False
    is_unusable: bool = False


def read_pairs(folder: Path) -> StoredPairs:
    """Nobody may write meanwhile. A folder that is not there is a store that is lost.

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
        return StoredPairs(_mended(folder), damage, is_unusable=True)


def _mended(folder: Path) -> MemoryKeyValue:
    """Returns what is left when RocksDB has mended a copy."""
    from rocksdict import Rdict

    with tempfile.TemporaryDirectory(prefix="ledgerfold-") as name:
        copy = Path(name) / "metadata"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("LOCK", "rocksdict*"))
        try:
            Rdict.repair(str(copy), _options())
            return _read(copy, folder, _ALL_THAT_IS_GOOD)
        except Exception:
            # The binding raises plain Exception for whatever RocksDB reports.
            return MemoryKeyValue()


def _options() -> Any:
    from rocksdict import Options

    return Options(raw_mode=True)


def _read(store_folder: Path, folder: Path, mode: str) -> MemoryKeyValue:
    from rocksdict import AccessType, DBRecoveryMode, Rdict

    options = _options()
    options.set_wal_recovery_mode(getattr(DBRecoveryMode, mode)())
    pairs = MemoryKeyValue()
    try:
        store = Rdict(str(store_folder), options, access_type=AccessType.read_only())
        try:
            cursor = store.iter()
            cursor.seek_to_first()
            while cursor.valid():
                pairs.write({bytes(cursor.key()): bytes(cursor.value())}, ())
                cursor.next()
            # A block that cannot be read ends the iteration without a word.
            cursor.status()
        finally:
            store.close()
    except Exception as error:
        # The binding raises plain Exception for whatever RocksDB reports.
        text = str(error).replace(str(store_folder), str(folder))
        raise Corruption(str(folder), 0, "an undamaged RocksDB store", text) from error
    return pairs
