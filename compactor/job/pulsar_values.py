"""The values and properties of a Pulsar entry, for strategies that read them."""

from __future__ import annotations

from typing import NamedTuple

from ledgerfold.compactor.job.pulsar_keys import KeySection
from ledgerfold.storage.entry import EntryHeader
from ledgerfold.storage.pulsar.batch import PulsarBatch

Pairs = list[tuple[bytes, bytes]]


class MessageValues(NamedTuple):
    """The value of each row, and its properties; nothing for a row that is not a message."""

    contents: list[bytes]
    properties: list[Pairs]


def pulsar_values(
    header: EntryHeader, keys: KeySection, key_section: bytes, value_section: bytes
) -> MessageValues:
    """Returns the parts that a strategy reads; of an entry that cannot be opened, the bytes as
    sent.

    Raises InvalidRequest.
    """
    if keys.passes:
        return MessageValues([b""], [[]])
    batch = PulsarBatch(header, key_section, value_section)
    return MessageValues(batch.contents(), [batch.pairs(row) for row in range(batch.rows)])
