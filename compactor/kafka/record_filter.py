"""Selects the batches and records that a cleaning keeps.

Rules for batches:

* Aborted batches, and discardable markers whose delete horizon has passed, lose their records.
* A batch without records is deleted, except that its header stays if the broker needs it: the last
  batch of a known producer, and the one that ends at the upper bound of the cleaning.
* A discardable marker without a horizon gets one; so does a batch that keeps a tombstone.

Rules for records: records after the map's last offset stay; before it those that the map chose
(scan.py), except tombstones whose horizon has passed.

Source: Cleaner.cleanInto, Cleaner.shouldRetainRecord and MemoryRecords.filterTo of Kafka 4.1.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.kafka.batches import Batches
from ledgerfold.compactor.kafka.records import Records
from ledgerfold.compactor.kafka.transactions import AbortedIndex
from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.kafka.cleanable import delete_horizon_ms
from ledgerfold.storage.kafka.transaction_index import AbortedTransaction

# The last data offset, or -1, and the epoch of each producer.
Producers = Mapping[int, tuple[int, int]]


@dataclass(frozen=True)
class Rules:
    """The parameters of a filter, from the plan and the map."""

    latest: int
    upper_bound: int
    time_ms: int
    delete_retention_ms: int
    lines: tuple[AbortedTransaction, ...]
    discardable: Integers
    producers: Producers

    @property
    def horizon_ms(self) -> int:
        """The delete horizon that this cleaning sets, or NO_TIMESTAMP."""
        return delete_horizon_ms(self.time_ms, self.delete_retention_ms)


@dataclass(frozen=True)
class BatchDecisions:
    """The decisions about each batch of a chunk."""

    # All records are removed, unread.
    is_dropped: Booleans
    # The batch stays, even if only as a header.
    keeps_header: Booleans
    # A marker whose transaction has no data left.
    is_discardable: Booleans


class Kept(NamedTuple):
    """The rows of records that stay, ascending, and which of them are tombstones."""

    rows: Integers
    is_null: Booleans


def decide_batches(batches: Batches, rules: Rules, aborted: AbortedIndex) -> BatchDecisions:
    """Decides about batches. `aborted`: the index of the rules' lines."""
    is_discardable = batches.is_control & np.isin(batches.last_offset, rules.discardable)
    has_come = batches.has_horizon & (batches.column("base_timestamp_ms") <= rules.time_ms)
    return BatchDecisions(
        is_dropped=aborted.covers(batches) | (is_discardable & has_come),
        keeps_header=is_producers_last(
            rules.producers,
            batches.producer_id,
            batches.column("producer_epoch"),
            batches.last_offset,
            batches.is_control,
        )
        | (batches.last_offset + 1 == rules.upper_bound),
        is_discardable=is_discardable,
    )


def is_producers_last(
    producers: Producers,
    producer_id: Integers,
    producer_epoch: Integers,
    last_offset: Integers,
    is_control: Booleans,
) -> Booleans:
    """Returns which batches hold a known producer's last sequence number, or its epoch."""
    found = np.zeros(len(producer_id), np.bool_)
    if not producers:
        return found
    data_offsets = [last for last, _ in producers.values() if last >= 0]
    is_likely = np.isin(last_offset, data_offsets) | is_control
    for index in np.flatnonzero(is_likely).tolist():
        last, epoch = producers.get(int(producer_id[index]), (-2, -1))
        if last >= 0:
            found[index] = last_offset[index] == last
        elif last == -1:
            found[index] = is_control[index] and producer_epoch[index] == epoch
    return found


def kept_records(records: Records, rules: Rules, rows: Integers) -> Kept:
    """Filters records that the map chose, of data batches that are not dropped.

    Raises Corruption.
    """
    is_null = records.columns(rows).is_null()
    if is_null.any():
        batches = records.source
        expired = batches.has_horizon & (batches.column("base_timestamp_ms") <= rules.time_ms)
        stays = ~(is_null & expired[records.batches][records.batch[rows]])
        rows, is_null = rows[stays], is_null[stays]
    return Kept(rows, is_null)


def kept_of_all(records: Records, rules: Rules, chosen: Integers) -> Kept:
    """Filters all records of data batches that extend beyond the map.

    `chosen`: the offsets of the records that the map chose, ascending. Raises Corruption.
    """
    offset = records.offset
    first, behind = np.searchsorted(chosen, (offset[0], offset[-1] + 1)).tolist()
    kept = kept_records(records, rules, np.flatnonzero(np.isin(offset, chosen[first:behind])))
    # The map covers none of these.
    uncovered = np.flatnonzero(offset > rules.latest)
    is_null = records.columns(uncovered).is_null()
    return Kept(np.concatenate((kept.rows, uncovered)), np.concatenate((kept.is_null, is_null)))
