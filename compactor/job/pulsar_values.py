"""The values and properties of a Pulsar entry, for strategies that read them."""

from __future__ import annotations

from typing import NamedTuple

from ledgerfold.compactor.job.pulsar_keys import KeySection
from ledgerfold.storage.entry import EntryHeader
from ledgerfold.storage.pulsar.batch import PulsarBatch

Pairs = list[tuple[bytes, bytes]]


class MessageValues(NamedTuple):
    """The value of each row, and its properties; of a row that is no message, nothing."""

    contents: list[bytes]
    properties: list[Pairs]


def pulsar_values(
    header: EntryHeader, keys: KeySection, key_section: bytes, value_section: bytes
) -> MessageValues:
    """Returns what a strategy reads; what nobody can open alone as it was sent.

    Raises InvalidRequest.
    """
    if keys.passes:
        return MessageValues([b""], [[]])
    batch = PulsarBatch(header, key_section, value_section)
    return MessageValues(batch.contents(), [batch.pairs(row) for row in range(batch.rows)])
