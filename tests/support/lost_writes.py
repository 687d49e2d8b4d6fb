"""A history of the writes of the metadata, of which any number of the last ones can be lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from ledgerfold.storage.errors import (
    Corruption,
    MetadataLost,
    MissingFile,
)
from ledgerfold.storage.unnamed import unnamed_files
from tests.model.broker_lab import BrokerLab
from tests.support.lossy_files import CountedKeyValue, LossyFiles
from tests.support.offline import LEDGERS, Snapshot, taken
from tests.support.property_tests import stride

Pairs = list[tuple[bytes, bytes]]
Lab = TypeVar("Lab", bound=BrokerLab)
# The possible errors of a read of lost data.
LOST = (MetadataLost, Corruption, MissingFile)


class History(NamedTuple):
    """A directory after kill -9, and the store's content before each write, oldest first."""

    end: Snapshot
    stores: list[Pairs]

    def losses(self) -> range:
        """The numbers of writes to lose; the fast run tries a quarter of them."""
        return range(1, len(self.stores), stride(4))

    def lost(self, writes: int) -> Snapshot:
        """The directory, once the store has lost so many writes."""
        return Snapshot(self.end.contents, self.stores[-1 - writes])


def recorded(lab: BrokerLab, act: Callable[[], object]) -> History:
    """Records the writes of `act`, one by one; the lab is closed afterwards."""
    stores: list[Pairs] = [lab._pairs.scan(b"")]

    def note(call: str) -> None:
        if call == "write metadata":
            stores.append(lab._pairs.scan(b""))

    # NOTE: called before the effect of a write, so it records the content before each.
    lab.files.during = note
    act()
    stores.append(lab._pairs.scan(b""))
    lab.files.during = lambda call: None
    lab._drop()
    return History(taken(lab.files, lab._pairs), stores)


def resumed(kind: type[Lab], files: LossyFiles, pairs: CountedKeyValue) -> Lab:
    lab = kind.__new__(kind)
    lab.resume(files, pairs)
    return lab


def files_with_entries(snapshot: Snapshot, files: LossyFiles) -> set[str]:
    """Returns the files of the snapshot that still exist."""
    there = {each.relative for each in unnamed_files(LEDGERS, {}, files) if each.holds_entries}
    whole = {f"{path.parent.name}/{path.name}" for path in snapshot.contents}
    return there & whole
