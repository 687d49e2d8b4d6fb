"""A version of a key, and its location: in a raw ledger, in the compacted one, or in both. Pure.

>>> version = KeyVersion(Position(3, 4), 1, 5, 0, 0, False)
>>> found = Found(version, in_raw=True)
>>> found.name, found.is_tombstone, found.is_alone
('3:4:-1:1', True, False)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby
from typing import NamedTuple

from ledgerfold.storage.entry import Position
from ledgerfold.storage.key_scan import KeyVersion
from ledgerfold.storage.message_ids import id_text
from ledgerfold.v1.records_pb2 import MessageId


class Found(NamedTuple):
    """A version and its location."""

    version: KeyVersion
    in_raw: bool = False
    in_compacted: bool = False
    partition: int = -1

    @property
    def position(self) -> Position:
        return self.version.position

    @property
    def is_tombstone(self) -> bool:
        return self.version.value_bytes == 0

    @property
    def is_alone(self) -> bool:
        """True if it was published alone, not in a batch."""
        return self.version.batch_index < 0

    @property
    def event_time_ms(self) -> int:
        return self.version.event_time_ms

    @property
    def publish_time_ms(self) -> int:
        return self.version.publish_time_ms

    @property
    def identity(self) -> tuple[Position, int]:
        return self.version.position, self.version.batch_index

    @property
    def name(self) -> str:
        """The id, as commands accept it."""
        return id_text(*self.position, self.partition, self.version.batch_index)

    @property
    def message_id(self) -> MessageId:
        ledger_id, entry_id = self.position
        return MessageId(
            ledger_id=ledger_id,
            entry_id=entry_id,
            batch_index=self.version.batch_index,
            partition=self.partition,
        )


def found_in(
    raw: Iterable[KeyVersion], compacted: Iterable[KeyVersion], partition: int = -1
) -> Iterator[Found]:
    """Merges both inputs, which are in order of id."""
    both = merge(
        (Found(version, in_raw=True, partition=partition) for version in raw),
        (Found(version, in_compacted=True, partition=partition) for version in compacted),
        key=lambda found: found.identity,
    )
    for _, group in groupby(both, key=lambda found: found.identity):
        first, *rest = group
        yield first._replace(in_compacted=True) if rest else first
