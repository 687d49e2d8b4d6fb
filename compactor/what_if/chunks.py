"""A chunk of an analysis: the key columns of many entries, and the sizes of their parts.

Chunks equal those of a run (compactor/job/scan.py), because a strategy's counts may depend on them.

A message has a **share** of the stored bytes of its entry. The key section is divided by key sizes
and the fixed columns of each message, the value section by value sizes. Shares are whole bytes and
add up to the sections exactly. The header belongs to no message: it remains as long as any message
of the entry does. The rest of an entry therefore has

    header + the shares of its surviving messages

which is exact if all survive. Otherwise the entry would be rebuilt, and this is an estimate: it
assumes that values compress evenly and that properties are as large as values, and excludes the
batch indexes (4 bytes a message).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.compactor.job.arrow_integers import offsets_of
from ledgerfold.compactor.job.key_columns import KeyColumns
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.job.scan import CHUNK_KEY_BYTES_MAX, CHUNK_ROWS_MAX
from ledgerfold.compactor.job.segment_map import PlacedEntry, SegmentMap
from ledgerfold.compactor.positions import Integers, sums_of
from ledgerfold.compactor.what_if.rows import Entries, packed
from ledgerfold.storage.entry import EntryHeader

# The bytes of a row in addition to its key: the offset, flags, and the size of the value.
KEY_ROW_BYTES = 9
VALUE_ROW_BYTES = 1


def chunks_of(segments: Sequence[InputSegment], reads_event_times: bool) -> Iterator[Collected]:
    """Yields the entries of the segments' ranges in chunks whose columns are checked.

    Raises Corruption, MissingFile, IncompatibleFormat, DiskFailure.
    """
    chunk = Collected(reads_event_times)
    for segment in segments:
        with SegmentMap(segment) as mapped:
            for entry in mapped.in_range():
                chunk.add(mapped, entry)
                columns = chunk.columns
                if columns.rows >= CHUNK_ROWS_MAX or columns.key_bytes >= CHUNK_KEY_BYTES_MAX:
                    columns.check()
                    yield chunk
                    chunk = Collected(reads_event_times)
    if chunk.columns.rows:
        chunk.columns.check()
        yield chunk


class Collected:
    """A chunk that grows by entries; its results are read when it is complete."""

    def __init__(self, reads_event_times: bool) -> None:
        self.columns = KeyColumns(reads_event_times)
        self._headers: list[EntryHeader] = []

    def add(self, mapped: SegmentMap, entry: PlacedEntry) -> None:
        self.columns.add(mapped, entry)
        self._headers.append(entry.header)

    def entries(self) -> Entries:
        return Entries(
            packed(self.columns.positions()),
            packed(self.counts),
            packed(self._of_headers("header_bytes")),
            packed(self._of_headers("message_count") - self.counts),
        )

    @cached_property
    def counts(self) -> Integers:
        """The rows of each entry."""
        return np.array(self.columns.counts, np.int64)

    def entry_bytes(self) -> Integers:
        return self._of_headers("size_bytes")

    def publish_times(self) -> Integers:
        return self._of_headers("publish_time_ms")

    def shares(self, keys: pa.BinaryArray, rows: Integers) -> Integers:
        """Returns the shares of these messages, which ascend. `keys`: of all messages."""
        entries = self._entries_of(rows)
        key_sums = offsets_of(keys)
        value_sums = sums_of(self.columns.value_sizes())
        sections = (
            Section(self._of_headers("key_bytes"), key_sums, KEY_ROW_BYTES),
            Section(self._of_headers("value_bytes"), value_sums, VALUE_ROW_BYTES),
        )
        of_keys, of_values = (each.shares(rows, self._bounds, entries) for each in sections)
        return of_keys + of_values

    def whole_shares(self, keys: pa.BinaryArray) -> Integers:
        """Returns the shares of all messages, headers included: they add up to the entries."""
        rows = np.arange(self.columns.rows, dtype=np.int64)
        headers = Section(self._of_headers("header_bytes"), np.zeros(len(rows) + 1, np.int64), 1)
        of_headers = headers.shares(rows, self._bounds, self._entries_of(rows))
        return self.shares(keys, rows) + of_headers

    def rows_at(self, positions: Integers) -> Integers:
        """Returns the row numbers of the messages at these positions."""
        # Positions have no gaps within a segment: a run of them is found in a short list.
        firsts = self.columns.positions()
        starts = np.flatnonzero(np.diff(firsts - self._bounds[:-1], prepend=-1))
        runs = np.searchsorted(firsts[starts], positions, "right") - 1
        return positions - (firsts - self._bounds[:-1])[starts][runs]

    @cached_property
    def _bounds(self) -> Integers:
        """The first row of each entry, and the end."""
        return sums_of(self.counts)

    def _entries_of(self, rows: Integers) -> Integers:
        """Returns the entry of each row. `rows` ascend."""
        ends = np.searchsorted(rows, self._bounds)
        return np.repeat(np.arange(len(self.counts)), np.diff(ends))

    def _of_headers(self, field: str) -> Integers:
        return np.fromiter(map(attrgetter(field), self._headers), np.int64, len(self._headers))


class Section(NamedTuple):
    """A section of many entries. `totals`: the stored bytes of each.

    A message weighs its size and `weight_per_row`; `sums`: the sizes of all messages before each
    row. Shares are computed only for requested messages, because most messages survive under no
    strategy:

        >>> sizes = np.array([9, 9, 79])
        >>> section = Section(np.array([100]), sums_of(sizes), weight_per_row=1)
        >>> section.shares(np.array([0, 2]), np.array([0, 3]), np.array([0, 0])).tolist()
        [10, 80]
    """

    totals: Integers
    sums: NDArray[np.integer]
    weight_per_row: int

    def shares(self, rows: Integers, bounds: Integers, entries: Integers) -> Integers:
        """Returns the shares of these rows. `bounds`: where each entry's rows begin; `entries`:
        that of each row.

        Shares are by weight; later messages get the remainders of rounding. Products stay far below
        2**63: an entry has a few MB.
        """
        weights = self._weight(bounds)
        before, totals_of_entries = weights[:-1][entries], np.diff(weights)[entries]
        totals = self.totals[entries]
        return self._part(rows + 1, before, totals_of_entries, totals) - self._part(
            rows, before, totals_of_entries, totals
        )

    def _part(
        self, rows: Integers, before: Integers, weights: Integers, totals: Integers
    ) -> Integers:
        """Returns the bytes of its entry that belong to the messages before each row."""
        part = self._weight(rows)
        part -= before
        part *= totals
        part //= weights
        return part

    def _weight(self, rows: Integers) -> Integers:
        """Returns the weight of all messages before these rows."""
        weight = rows * self.weight_per_row
        weight += self.sums[rows]
        return weight
