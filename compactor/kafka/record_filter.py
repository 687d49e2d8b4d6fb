"""What a round keeps: of each batch, and of its records.

Rules, batch by batch:
* What is aborted, and a marker that may go and whose delete horizon has come, loses its records.
* A batch without records goes, but for a header alone where the broker needs it: the last one of a
  producer that it remembers, and the one that ends at the round's upper bound.
* A marker that may go and has no horizon yet gets one; so does a batch that keeps a tombstone.

Record by record: what is behind the map's last offset stays; of the others those that the map chose
(merge.py), but for a tombstone whose horizon has come.

Source: Cleaner.cleanInto, Cleaner.shouldRetainRecord and MemoryRecords.filterTo of Kafka 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.kafka.batches import Batches
from ledgerfold.compactor.kafka.records import Records
from ledgerfold.compactor.kafka.transactions import AbortedIndex, Line
from ledgerfold.compactor.positions import Booleans, Integers


@dataclass(frozen=True)
class Rules:
    """What the round's plan and its map say."""

    latest: int
    upper_bound: int
    time_ms: int
    delete_retention_ms: int
    lines: tuple[Line, ...]
    discardable: Integers
    # Of each producer: its epoch, and its last data offset or -1.
    producers: dict[int, tuple[int, int]]

    @property
    def horizon_ms(self) -> int:
        """What is stamped in this round."""
        return self.time_ms + self.delete_retention_ms


@dataclass(frozen=True)
class Verdicts:
    """Of each batch of a stretch."""

    # All of its records go, unread.
    is_dropped: Booleans
    # What is left of it stays, even if that is its header.
    keeps_header: Booleans
    # A marker whose transaction is empty.
    may_go: Booleans


class Kept(NamedTuple):
    """Rows of records that stay, ascending, and which of them are tombstones."""

    rows: Integers
    is_null: Booleans


def verdicts(batches: Batches, rules: Rules, aborted: AbortedIndex) -> Verdicts:
    """`aborted` is of the rules' lines."""
    may_go = batches.is_control & np.isin(batches.last_offset, rules.discardable)
    has_come = batches.has_horizon & (batches.column("base_timestamp_ms") <= rules.time_ms)
    return Verdicts(
        is_dropped=aborted.covers(batches) | (may_go & has_come),
        keeps_header=_is_producers_last(batches, rules)
        | (batches.last_offset + 1 == rules.upper_bound),
        may_go=may_go,
    )


def _is_producers_last(batches: Batches, rules: Rules) -> Booleans:
    found = np.zeros(len(batches), np.bool_)
    if not rules.producers:
        return found
    data_offsets = [offset for _, offset in rules.producers.values() if offset >= 0]
    likely = np.isin(batches.last_offset, data_offsets) | batches.is_control
    epochs = batches.column("producer_epoch")
    for index in np.flatnonzero(likely).tolist():
        epoch, last = rules.producers.get(int(batches.producer_id[index]), (-1, -2))
        if last >= 0:
            found[index] = batches.last_offset[index] == last
        elif last == -1:
            found[index] = batches.is_control[index] and epochs[index] == epoch
    return found


def kept_records(batches: Batches, records: Records, rules: Rules, chosen: Integers) -> Kept:
    """Of data batches that are not dropped. `chosen`: offsets that the map keeps, ascending.

    Raises Corruption.
    """
    offset = records.offset
    start, end = np.searchsorted(chosen, (offset[0], offset[-1] + 1)).tolist()
    part = chosen[start:end]
    rows = np.searchsorted(offset, part)
    # What the map chose in batches that are not among these: other tombstones, other stretches.
    rows = rows[offset[rows] == part]
    is_null = records.columns(rows).is_null()
    if is_null.any():
        expired = batches.has_horizon & (batches.column("base_timestamp_ms") <= rules.time_ms)
        stays = ~(is_null & expired[records.batches][records.batch[rows]])
        rows, is_null = rows[stays], is_null[stays]
    if offset[-1] > rules.latest:
        behind = np.flatnonzero(offset > rules.latest)
        # The map chose nothing there.
        rows = np.concatenate((rows, behind))
        is_null = np.concatenate((is_null, records.columns(behind).is_null()))
    return Kept(rows, is_null)
