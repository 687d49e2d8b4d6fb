"""The concatenated key columns of many entries.

The columns of each entry are collected as raw bytes; an operation on all entries then takes one
pass over the joined bytes, without a cost for each small entry.

A checksum only proves that these are the producer's bytes, and Arrow would follow a wrong offset to
any address: `check` proves that the columns match before Arrow uses them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.compactor.job.arrow_integers import as_offsets, to_arrow
from ledgerfold.compactor.job.key_sections import Keys, is_opaque
from ledgerfold.compactor.job.key_sections import key_columns as columns_of
from ledgerfold.compactor.job.pulsar_keys import KeySection
from ledgerfold.compactor.job.segment_map import PlacedEntry, SegmentMap
from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.compactor.strategies.strategy import Facts
from ledgerfold.storage.entry import EntryHeader
from ledgerfold.storage.errors import Corruption, InvalidRequest
from ledgerfold.storage.native import HAS_KEY
from ledgerfold.v1.entry_pb2 import NativeKeys


class Place(NamedTuple):
    """The place of a key section, for errors."""

    path: str
    offset: int


class Picked(NamedTuple):
    """The columns of a few rows."""

    keys: pa.BinaryArray
    has_key: Booleans
    facts: Facts


class KeyColumns:
    """The key columns of the entries added so far. Rows are messages, in order of id, dead ones
    included. An entry that cannot be opened has one row, regardless of the number of messages in
    its header.

    Call `check` before any column, except `pick`.
    """

    def __init__(self, reads_event_times: bool = False) -> None:
        self._reads_event_times = reads_event_times
        self.rows = self.entries = self.key_bytes = self.size_bytes = 0
        # The number of messages that are not dead, as the headers count them.
        self.messages = 0
        self.counts: list[int] = []
        self._positions: list[int] = []
        self._places: list[Place] = []
        self._key_offsets: list[bytes] = []
        self._keys: list[bytes] = []
        self._flags: list[bytes] = []
        self._value_sizes: list[bytes] = []
        self._event_times: list[bytes] = []
        self._is_alone: list[bool] = []
        self._publish_times: list[int] = []
        self._dead: list[Integers] = []
        # The rows of entries that survive regardless of the strategy: they are not messages.
        self._passing: list[int] = []

    def add(self, segment: SegmentMap, entry: PlacedEntry) -> Keys:
        """Adds an entry; returns its key columns. Raises Corruption (wrong checksum, does not
        parse).
        """
        header = entry.header
        location = Place(segment.path, entry.offset + header.header_bytes)
        try:
            keys = segment.key_section(entry)
            section = columns_of(
                header,
                keys,
                lambda: segment.value_section(entry),
                unsized_empties_survive=segment.segment.unsized_empties_survive,
            )
        except InvalidRequest as error:
            raise Corruption(*location, "a key section", str(error)) from error
        dead = segment.dead_rows(entry)
        if dead:
            self._dead.append(np.array(dead, np.int64) + self.rows)
            self.messages -= len(dead)
        self.add_section(location, header, segment.first_position + entry.row, section)
        return section

    def add_section(
        self, location: Place, header: EntryHeader, position: int, section: Keys
    ) -> None:
        """Adds an entry by its key section. `position`: of its first row."""
        rows = header.message_count
        if isinstance(section, KeySection):
            if section.is_opaque:
                rows = 1
            if section.passes:
                self._passing.append(self.rows)
        self.counts.append(rows)
        self._positions.append(position)
        self._places.append(location)
        self._key_offsets.append(section.key_offsets)
        self._keys.append(section.keys)
        self._flags.append(section.flags)
        self._value_sizes.append(section.value_sizes)
        if self._reads_event_times:
            self._event_times.append(section.event_times or bytes(8 * rows))
            # The batch rules are for batches that a run can read.
            self._is_alone.append(header.is_plain or is_opaque(section))
            self._publish_times.append(header.publish_time_ms)
        self.rows += rows
        self.messages += header.message_count
        self.entries += 1
        self.key_bytes += len(section.keys)
        self.size_bytes += header.size_bytes

    def add_singles(
        self, location: Place, position: int, section: NativeKeys, size_bytes: int
    ) -> None:
        """Adds entries of one message each as if they were one entry, by their joined columns.

        Only without event times. `size_bytes`: of the entries.
        """
        count = len(section.flags)
        self.counts.append(count)
        self._positions.append(position)
        self._places.append(location)
        self._key_offsets.append(section.key_offsets)
        self._keys.append(section.keys)
        self._flags.append(section.flags)
        self._value_sizes.append(section.value_sizes)
        self.rows += count
        self.messages += count
        self.entries += count
        self.key_bytes += len(section.keys)
        self.size_bytes += size_bytes

    def check(self) -> None:
        """Raises Corruption, naming the first entry whose columns do not match each other."""
        fits, counts = self._sizes_fit(), np.array(self.counts, np.int64)
        if fits.all():
            offsets = self._offsets()
            ends = np.cumsum(counts + 1)
            falls = np.zeros(len(offsets), np.bool_)
            np.less(offsets[1:], offsets[:-1], out=falls[1:])
            # Between two entries the offset returns to zero: it must be zero there.
            starts = ends - counts - 1
            falls[starts] = offsets[starts] != 0
            fits = ~np.logical_or.reduceat(falls, starts)
            fits &= offsets[ends - 1] == _sizes(self._keys)
        self._require(fits)

    def _sizes_fit(self) -> Booleans:
        """Returns which entries have columns of the sizes that their counts demand."""
        counts = np.array(self.counts, np.int64)
        fits: Booleans = (
            (_sizes(self._flags) == counts)
            & (_sizes(self._value_sizes) == 4 * counts)
            & (_sizes(self._key_offsets) == 4 * counts + 4)
        )
        if self._reads_event_times:
            fits &= _sizes(self._event_times) == 8 * counts
        return fits

    def _require(self, fits: Booleans) -> None:
        if not fits.all():
            location = self._places[int(np.argmin(fits))]
            raise Corruption(*location, "matching key columns", "columns that do not match")

    def pick(self, rows: Integers) -> Picked:
        """Returns these rows, which ascend, without processing the others. Raises Corruption if
        they do not match their entries' columns.
        """
        self._require(self._sizes_fit())
        counts, sizes = np.array(self.counts, np.int64), _sizes(self._keys)
        firsts = np.cumsum(counts) - counts
        entries = np.searchsorted(firsts, rows, "right") - 1
        # An entry has one more offset than rows.
        places = (rows + entries)[:, np.newaxis] + np.array([0, 1])
        offsets = np.frombuffer(b"".join(self._key_offsets), "<u4")[places].astype(np.int64)
        is_outside = offsets[:, 1] > sizes[entries]
        offsets += (np.cumsum(sizes) - sizes)[entries, np.newaxis]
        # A column of the keys, and of the bytes between them.
        bounds = offsets.ravel()
        falls = np.append(bounds[1:] < bounds[:-1], False).reshape(-1, 2).any(axis=1)
        fits = np.ones(len(counts), np.bool_)
        fits[entries[is_outside | falls]] = False
        self._require(fits)
        buffers = [None, pa.py_buffer(as_offsets(bounds)), pa.py_buffer(b"".join(self._keys))]
        column = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, buffers)
        within = rows - firsts[entries]
        facts = Facts(
            np.array(self._positions, np.int64)[entries] + within,
            np.frombuffer(b"".join(self._value_sizes), "<u4")[rows] != 0,
        )
        if self._reads_event_times:
            facts = facts._replace(
                event_times=np.frombuffer(b"".join(self._event_times), "<i8")[rows],
                is_alone=np.array(self._is_alone)[entries],
                publish_times=np.array(self._publish_times, np.int64)[entries],
            )
        has_key = self.has_key()[rows]
        return Picked(column.take(to_arrow(np.arange(0, len(column), 2))), has_key, facts)

    def facts(self) -> Facts:
        """Returns the facts of all rows, including those without a key."""
        is_value = np.frombuffer(b"".join(self._value_sizes), "<u4") != 0
        facts = Facts(self._row_positions(), is_value)
        if self._reads_event_times:
            facts = facts._replace(
                event_times=np.frombuffer(b"".join(self._event_times), "<i8"),
                is_alone=np.repeat(self._is_alone, self.counts),
                publish_times=np.repeat(np.array(self._publish_times, np.int64), self.counts),
            )
        return facts

    def _row_positions(self) -> Integers:
        counts = np.array(self.counts, np.int64)
        within = np.arange(self.rows, dtype=np.int64) - np.repeat(
            np.cumsum(counts) - counts, counts
        )
        return np.repeat(np.array(self._positions, np.int64), counts) + within

    def is_live(self) -> Booleans | None:
        """Returns which rows are live messages; None if all are (storage/deletion_vector.py)."""
        if not (self._dead or self._passing):
            return None
        is_live: Booleans = np.ones(self.rows, np.bool_)
        is_live[np.concatenate([*self._dead, self.passing()])] = False
        return is_live

    def passing(self) -> Integers:
        """Returns the rows of entries that survive under every strategy."""
        return np.array(self._passing, np.int64)

    def has_key(self) -> Booleans:
        flags = np.frombuffer(b"".join(self._flags), np.uint8)
        has_key: Booleans = (flags & HAS_KEY) != 0
        return has_key

    def keys(self) -> pa.BinaryArray:
        """Returns the keys. A row without a key has an empty one. Raises LimitExceeded."""
        sizes = _sizes(self._keys)
        counts = np.array(self.counts, np.int64)
        shifted = np.repeat(np.cumsum(sizes) - sizes, counts + 1)
        shifted += self._offsets()
        # An entry's last offset equals the next one's first: one of the two is dropped.
        is_repeated = np.zeros(len(shifted), np.bool_)
        is_repeated[np.cumsum(counts + 1)[:-1]] = True
        offsets = as_offsets(shifted[~is_repeated])
        return pa.Array.from_buffers(
            pa.binary(),
            self.rows,
            [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(self._keys))],
        )

    def value_sizes(self) -> Integers:
        """Returns the size of each row's value in bytes."""
        return np.frombuffer(b"".join(self._value_sizes), "<u4").astype(np.int64)

    def positions(self) -> Integers:
        """Returns the position of each entry's first row."""
        return np.array(self._positions, np.int64)

    def _offsets(self) -> NDArray[np.uint32]:
        return np.frombuffer(b"".join(self._key_offsets), "<u4")


def _sizes(columns: list[bytes]) -> Integers:
    return np.fromiter(map(len, columns), np.int64, len(columns))
