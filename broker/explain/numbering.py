"""Which message of a published batch one of the compacted ledger is, where it was numbered anew.

Strategic compaction of Pulsar's kind numbers what it leaves of a batch from 0 on (rule 13.4,
docs/PROFILES.md); sequence ids stay. So the two entries of one position are compared by those.

    >>> from ledgerfold.storage.decoded import StoredMessage
    >>> def message(batch_index, sequence_id):
    ...     return StoredMessage(batch_index, 3, b"k", False, b"", True, {}, 0, sequence_id, None)
    >>> published_indexes([message(-1, 8)], [message(0, 7), message(1, 8)])
    {-1: 1}
"""

from __future__ import annotations

from collections.abc import Iterable

from ledgerfold.storage.decoded import StoredMessage


def published_indexes(
    compacted: Iterable[StoredMessage], published: Iterable[StoredMessage]
) -> dict[int, int]:
    """The batch index that each had when it was published, by the one that it has now.

    Of an entry whose messages share sequence ids, as a producer of its own mind may have it, the
    first ones are taken.
    """
    indexes: dict[int, list[int]] = {}
    for message in published:
        indexes.setdefault(message.sequence_id, []).append(message.batch_index)
    return {
        message.batch_index: found.pop(0)
        for message in compacted
        if (found := indexes.get(message.sequence_id))
    }
