"""The transaction index: the aborted transactions whose marker a segment holds.

    >>> line = AbortedTransaction(7, first_offset=3, last_offset=9, last_stable_offset=10)
    >>> read_aborted(aborted_bytes([line]), 0, 10)
    [AbortedTransaction(producer_id=7, first_offset=3, last_offset=9, last_stable_offset=10)]

Source: TransactionIndex, AbortedTxn of Kafka 4.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from ledgerfold.v1.records_pb2 import AbortedTransaction as AbortedRecord

if TYPE_CHECKING:
    from ledgerfold.v1.kafka_pb2 import KafkaAbortedInfo

_VERSION = 0
# Version, and the fields of AbortedTransaction.
_ENTRY = struct.Struct(">hqqqq")


class AbortedTransaction(NamedTuple):
    """An aborted transaction. `last_offset`: its marker's."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int

    @classmethod
    def of(cls, message: AbortedRecord | KafkaAbortedInfo) -> AbortedTransaction:
        return cls(
            message.producer_id,
            message.first_offset,
            message.last_offset,
            message.last_stable_offset,
        )

    def record(self) -> AbortedRecord:
        return AbortedRecord(**self._asdict())


def aborted_bytes(entries: Iterable[AbortedTransaction]) -> bytes:
    return b"".join(_ENTRY.pack(_VERSION, *each) for each in entries)


def read_aborted(data: bytes, first: int, end: int) -> list[AbortedTransaction] | None:
    """Returns the entries whose marker is at or after `first`, and before `end`; None if invalid.

    >>> read_aborted(b"\\0" * 33, 0, 10), read_aborted(b"\\1" * 34, 0, 10)
    (None, None)
    """
    if len(data) % _ENTRY.size:
        return None
    transactions = list[AbortedTransaction]()
    for version, *fields in _ENTRY.iter_unpack(data):
        each = AbortedTransaction(*fields)
        if version != _VERSION or not 0 <= each.first_offset <= each.last_offset:
            return None
        if first <= each.last_offset < end:
            transactions.append(each)
    return transactions
