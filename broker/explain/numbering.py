"""The original batch indexes of messages that a compaction has renumbered.

Pulsar's strategic compaction numbers the remaining messages of a batch from 0 (rule 13.4,
docs/PROFILES.md); sequence ids stay. So the raw and the compacted entry of a position are compared
by sequence id.

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
    """Returns the published batch index for each current one.

    If messages of an entry share a sequence id, which producers may set freely, the first ones
    match.
    """
    indexes: dict[int, list[int]] = {}
    for message in published:
        indexes.setdefault(message.sequence_id, []).append(message.batch_index)
    return {
        message.batch_index: found.pop(0)
        for message in compacted
        if (found := indexes.get(message.sequence_id))
    }
