"""The versions of a key, located: in a raw ledger, in the compacted one, or in both. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.key_scan import KeyVersion


def found_in(
    raw: Iterable[KeyVersion], compacted: Iterable[KeyVersion], partition: int = -1
) -> Iterator[KeyVersion]:
    """Merges both inputs, which are in order of id, each id at most once."""
    rest = iter(compacted)
    waiting = next(rest, None)
    for version in raw:
        is_both = False
        # Mostly, nothing compacted is left to compare with.
        while waiting is not None and waiting[:2] <= version[:2]:
            is_both = waiting[:2] == version[:2]
            if not is_both:
                yield waiting._replace(in_compacted=True, partition=partition)
            waiting = next(rest, None)
        yield version._replace(in_raw=True, in_compacted=is_both, partition=partition)
    while waiting is not None:
        yield waiting._replace(in_compacted=True, partition=partition)
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
