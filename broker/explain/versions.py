"""A version of a key, and its location: in a raw ledger, in the compacted one, or in both. Pure.

>>> version = KeyVersion(Position(3, 4), 1, 5, 0, 0, False)
>>> found = LocatedVersion(version, in_raw=True)
>>> found.name, found.is_tombstone, found.is_alone
('3:4:-1:1', True, False)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import Position
from ledgerfold.storage.key_scan import KeyVersion
from ledgerfold.storage.message_ids import id_text
from ledgerfold.v1.records_pb2 import MessageId


class LocatedVersion(NamedTuple):
    """A version and its location."""

    key_version: KeyVersion
    in_raw: bool = False
    in_compacted: bool = False
    partition: int = -1

    @property
    def position(self) -> Position:
        return self.key_version.position

    @property
    def is_tombstone(self) -> bool:
        return self.key_version.value_bytes == 0

    @property
    def is_alone(self) -> bool:
        """True if it was published alone, not in a batch."""
        return self.key_version.batch_index < 0

    @property
    def event_time_ms(self) -> int:
        return self.key_version.event_time_ms

    @property
    def publish_time_ms(self) -> int:
        return self.key_version.publish_time_ms

    @property
    def identity(self) -> tuple[Position, int]:
        return self.key_version[:2]

    @property
    def name(self) -> str:
        """The id, as commands accept it."""
        return id_text(*self.position, self.partition, self.key_version.batch_index)

    @property
    def message_id(self) -> MessageId:
        ledger_id, entry_id = self.position
        return MessageId(
            ledger_id=ledger_id,
            entry_id=entry_id,
            batch_index=self.key_version.batch_index,
            partition=self.partition,
        )


def found_in(
    raw: Iterable[KeyVersion], compacted: Iterable[KeyVersion], partition: int = -1
) -> Iterator[LocatedVersion]:
    """Merges both inputs, which are in order of id, each id at most once."""
    rest = iter(compacted)
    waiting = next(rest, None)
    for version in raw:
        is_both = False
        # Mostly, nothing compacted is left to compare with.
        while waiting is not None and waiting[:2] <= version[:2]:
            is_both = waiting[:2] == version[:2]
            if not is_both:
                yield LocatedVersion(waiting, False, True, partition)
            waiting = next(rest, None)
        yield LocatedVersion(version, True, is_both, partition)
    while waiting is not None:
        yield LocatedVersion(waiting, False, True, partition)
        waiting = next(rest, None)


def published_indexes(
    compacted: Iterable[StoredMessage], published: Iterable[StoredMessage]
) -> dict[int, int]:
    """Returns the published batch index for each current one of an entry that was renumbered.

    Pulsar's strategic compaction numbers the remaining messages of a batch from 0 (rule 13.4,
    docs/PROFILES.md); sequence ids stay. So the raw and the compacted entry are compared by
    sequence id.

        >>> def message(batch_index, sequence_id):
        ...     return StoredMessage(
        ...         batch_index, 3, b"k", False, b"", True, {}, 0, sequence_id, None
        ...     )
        >>> published_indexes([message(-1, 8)], [message(0, 7), message(1, 8)])
        {-1: 1}

    If messages of an entry share a sequence id, which producers may set freely, the first ones
    match.
    """
    indexes: dict[int, list[int]] = {}
    for message in published:
        indexes.setdefault(message.sequence_id, []).append(message.batch_index)
    return {
        message.batch_index: index.pop(0)
        for message in compacted
        if (index := indexes.get(message.sequence_id))
    }
