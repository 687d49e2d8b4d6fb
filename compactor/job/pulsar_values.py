"""The values and properties of a Pulsar entry, for strategies that read them."""

from __future__ import annotations

from typing import NamedTuple

from ledgerfold.compactor.job.pulsar_keys import KeySection
from ledgerfold.storage.entry import EntryHeader
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.pulsar.batch import PulsarBatch

Pairs = list[tuple[bytes, bytes]]


class MessageValues(NamedTuple):
    """The value of each row, and its properties; of rows that are no messages, nothing."""

    contents: list[bytes]
    properties: list[Pairs]


def pulsar_values(
    header: EntryHeader, keys: KeySection, key_section: bytes, value_section: bytes
) -> MessageValues:
    """Returns what a strategy reads; encrypted values, and those that do not decompress, as sent.

    Raises InvalidRequest.
    """
    count = header.message_count
    if keys.passes:
        return MessageValues([b""] * count, [[]] * count)
    batch = PulsarBatch(header, key_section, value_section)
    try:
        contents = batch.contents()
    except InvalidRequest:
        if not header.is_plain:
            raise
        contents = [value_section]
    properties = [batch.pairs(row) for row in range(batch.rows)]
    rest = count - len(contents)
    return MessageValues(contents + [b""] * rest, properties + [[]] * rest)
