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

RocksDB's log may end with a write that was cut short, which was never acknowledged; or be damaged,
and then a broker that starts passes over all that comes behind. Here both are told apart from a
whole log, for nobody can tell them apart from each other.

Bounds: the whole store in memory; it holds records of some hundred bytes, as many as there are
ledgers, subscriptions, producers and runs.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.key_value import MemoryKeyValue

# What is written to, or not needed: RocksDB's text log, lock and options, the binding's settings.
_NOT_LINKED = ("LOG", "LOCK", "OPTIONS", "rocksdict")


class StoredPairs(NamedTuple):
    """`damage`: what is wrong with the end of the log; `pairs` are those before it."""

    pairs: MemoryKeyValue
    damage: Corruption | None = None


def read_pairs(folder: Path) -> StoredPairs:
    """Nobody may write meanwhile. Raises Corruption (elsewhere than in the log), OSError."""
    with tempfile.TemporaryDirectory(prefix="ledgerfold-") as name:
        links = Path(name)
        for path in folder.iterdir():
            if not path.name.startswith(_NOT_LINKED):
                (links / path.name).symlink_to(path.resolve())
        try:
            return StoredPairs(_read(links, folder, is_strict=True))
        except Corruption as damage:
            return StoredPairs(_read(links, folder, is_strict=False), damage)


def _read(links: Path, folder: Path, *, is_strict: bool) -> MemoryKeyValue:
    from rocksdict import AccessType, DBRecoveryMode, Options, Rdict

    modes = DBRecoveryMode
    options = Options(raw_mode=True)
    options.set_wal_recovery_mode(
        modes.absolute_consistency() if is_strict else modes.point_in_time()
    )
    pairs = MemoryKeyValue()
    try:
        store = Rdict(str(links), options, access_type=AccessType.read_only())
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
        text = str(error).replace(str(links), str(folder))
        raise Corruption(str(folder), 0, "an undamaged RocksDB store", text) from error
    return pairs
