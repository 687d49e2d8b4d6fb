"""Transactions in a cleaning: aborted data and discardable markers.

* A data batch of an aborted transaction is removed, and adds no keys to the map. It is aborted if
  the transaction index has a line of its producer whose first offset is at or below the batch's
  last offset, and whose marker follows the batch.
* A marker is discardable if no batch of its transaction precedes it, not even a batch without
  records. A control batch without a record is discardable, too. Until a marker is removed, its
  index line is kept with it: if a batch precedes the marker, the line is copied.

The index is that of the whole log from its start: transactions aborted before the log start, or
before the segments, are excluded. A batch is looked up by its own offset, so a line whose marker
precedes the batch never matches.

Source: CleanedTransactionMetadata of Kafka 4.1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable
from enum import IntEnum
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.kafka.batches import Batches
from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.storage.errors import KafkaError
from ledgerfold.storage.kafka.records import records_of
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction


class Kind(IntEnum):
    """The kind of a transactional or control batch. ABORT and COMMIT have Kafka's numbers."""

    ABORT = 0
    COMMIT = 1
    DATA = 2
    EMPTY = 3
    OTHER = 4


class AbortedIndex:
    """The index, for lookups by a batch's producer and offset."""

    def __init__(self, lines: Iterable[AbortedTransaction]) -> None:
        self._lines: defaultdict[int, list[AbortedTransaction]] = defaultdict(list)
        for line in sorted(lines, key=lambda line: (line.last_offset, line.first_offset)):
            self._lines[line.producer_id].append(line)

    def covers(self, batches: Batches) -> Booleans:
        """Returns which batches are aborted data."""
        is_covered = np.zeros(len(batches), np.bool_)
        if not self._lines:
            return is_covered
        for index in np.flatnonzero(batches.is_transactional & ~batches.is_control).tolist():
            offset = int(batches.last_offset[index])
            is_covered[index] = self._has(int(batches.producer_id[index]), offset)
        return is_covered

    def _has(self, producer_id: int, offset: int) -> bool:
        lines = self._lines.get(producer_id, [])
        at = bisect_right(lines, offset, key=lambda line: line.last_offset)
        return at < len(lines) and lines[at].first_offset <= offset


def facts_of(batches: Batches) -> Integers:
    """Returns rows of (last offset, producer id, kind), for transactional and control batches.

    Raises Corruption.
    """
    indexes = np.flatnonzero(batches.is_transactional | batches.is_control)
    kinds = [
        _kind(batches, index) if batches.is_control[index] else Kind.DATA
        for index in indexes.tolist()
    ]
    rows: Integers = np.stack(
        (
            batches.last_offset[indexes],
            batches.producer_id[indexes],
            np.array(kinds, np.int64),
        ),
        axis=1,
    )
    return rows


def _kind(batches: Batches, index: int) -> Kind:
    try:
        record = next(records_of(b"".join(batches.raw(index)[1:])), None)
    except KafkaError as error:
        batches.refuse(index, error.message)
    if record is None:
        return Kind.EMPTY
    # A version and a type, 16 bits each.
    kind = int.from_bytes((record.key or b"")[2:4], "big", signed=True)
    return Kind(kind) if kind in (Kind.ABORT, Kind.COMMIT) and record.key else Kind.OTHER


class Decided(NamedTuple):
    """The last offsets of discardable control batches, ascending, and the index lines that stay,
    each with the marker at its last offset.
    """

    discardable: Integers
    lines: list[AbortedTransaction]


def decide(facts: Iterable[tuple[int, int, int]], lines: Iterable[AbortedTransaction]) -> Decided:
    """Decides about markers. `facts`: of all batches of the cleaned segments, in offset order.

    Memory: the index, and a number for each marker.
    """
    waiting = sorted(lines, key=lambda line: line.first_offset, reverse=True)
    aborted: dict[int, AbortedTransaction] = {}
    was_seen: set[int] = set()
    committed: set[int] = set()
    discardable: list[int] = []
    remaining: list[AbortedTransaction] = []
    for offset, producer_id, kind in facts:
        while waiting and waiting[-1].first_offset <= offset:
            line = waiting.pop()
            _forget_before(line.first_offset, line.producer_id, aborted, was_seen)
            aborted.setdefault(line.producer_id, line)
        _forget_before(offset, producer_id, aborted, was_seen)
        match kind:
            case Kind.DATA if producer_id in aborted:
                was_seen.add(producer_id)
            case Kind.DATA:
                committed.add(producer_id)
            case Kind.ABORT:
                line_of = aborted.pop(producer_id, None)
                if line_of is not None and producer_id in was_seen:
                    remaining.append(line_of)
                else:
                    discardable.append(offset)
                was_seen.discard(producer_id)
            case Kind.COMMIT if producer_id in committed:
                committed.discard(producer_id)
            case Kind.COMMIT | Kind.EMPTY:
                discardable.append(offset)
    return Decided(np.array(discardable, np.int64), remaining)


def _forget_before(
    offset: int, producer_id: int, aborted: dict[int, AbortedTransaction], was_seen: set[int]
) -> None:
    """Drops a line whose marker is missing after a repair, once its end has passed."""
    line = aborted.get(producer_id)
    if line is not None and line.last_offset < offset:
        del aborted[producer_id]
        was_seen.discard(producer_id)
