"""The old messages of given keys, found with the key indexes of their segments.

A run that keeps unchanged segments reads only new messages. Their keys are looked up in the indexed
segments; the messages found, compared by key, take part in the run like scanned ones. Each message
that does not survive dies, and its segment changes.

Bound: the key sections of the entries of one segment that hold candidates.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ledgerfold.compactor.job.arrow_integers import from_arrow, to_arrow
from ledgerfold.compactor.job.dead_rows import dead_mask
from ledgerfold.compactor.job.key_columns import KeyColumns, Place
from ledgerfold.compactor.job.key_index import KeyIndex
from ledgerfold.compactor.job.key_sections import Keys, key_columns
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.key_hash import Hashes, hashes_of
from ledgerfold.compactor.positions import ROW_BITS, Integers
from ledgerfold.compactor.strategies.strategy import Facts, FragmentColumns, Strategy
from ledgerfold.storage.entry import HEADER_BYTES, Codec, EntryHeader, read_header, verify_sections
from ledgerfold.storage.errors import Corruption, InvalidRequest, MissingFile
from ledgerfold.storage.file_window import Window
from ledgerfold.storage.files import REAL
from ledgerfold.storage.names import key_index_path
from ledgerfold.storage.segment import shifted


class OldMessages(NamedTuple):
    """Messages that have one of the given keys: the index of the key of each, and its facts."""

    codes: Integers
    facts: Facts


class OldFragments(NamedTuple):
    """Old messages, folded: the fragments with the key of each, and the messages' positions."""

    codes: Integers
    fragments: FragmentColumns
    removed_events: int
    positions: Integers
    keys: int


def old_fragments(
    segments: Sequence[InputSegment], keys: pa.BinaryArray, strategy: Strategy
) -> OldFragments | None:
    """Returns the old messages of these distinct keys; None if there are none.

    Raises Corruption, MissingFile, IncompatibleFormat, DiskFailure.
    """
    old = list(old_messages(segments, keys, strategy.reads_event_times))
    if not old:
        return None
    codes = np.concatenate([each.codes for each in old])
    facts = joined([each.facts for each in old])
    known, dense = np.unique(codes, return_inverse=True)
    folded = strategy.begin(dense, facts, len(known))
    of_fragments = known if folded.codes is None else known[folded.codes]
    return OldFragments(
        of_fragments, folded.fragments, folded.removed_events, facts.positions, len(known)
    )


def joined(parts: Sequence[Facts]) -> Facts:
    """Concatenates facts, column by column."""
    columns: list[Any] = [
        None if column[0] is None else np.concatenate(column) for column in zip(*parts, strict=True)
    ]
    return Facts(*columns)


def old_messages(
    segments: Sequence[InputSegment], keys: pa.BinaryArray, reads_event_times: bool
) -> Iterator[OldMessages]:
    """Yields the messages of these distinct keys in each segment that has any, in order."""
    hashes = hashes_of(keys)
    # Sorted hashes are found several times as fast.
    order = np.argsort(hashes)
    keys, hashes = keys.take(to_arrow(order)), hashes[order]
    for segment in segments:
        messages = _in_segment(segment, keys, hashes, reads_event_times)
        if messages is not None:
            yield messages._replace(codes=order[messages.codes])


def _in_segment(
    segment: InputSegment, keys: pa.BinaryArray, hashes: Hashes, reads_event_times: bool
) -> OldMessages | None:
    with KeyIndex(key_index_path(segment.path), segment.record.key_index) as index:
        queries, rows = index.candidates(hashes)
        if not len(rows):
            return None
        if segment.record.HasField("dead"):
            is_live = ~dead_mask(segment)[rows]
            queries, rows = queries[is_live], rows[is_live]
            if not len(rows):
                return None
        order = np.argsort(rows, kind="stable")
        queries, rows = queries[order], rows[order]
        unique, row_of = np.unique(rows, return_inverse=True)
        numbers = np.searchsorted(index.first_rows, unique, "right") - 1
        touched, entry_of = np.unique(numbers, return_inverse=True)
        columns = KeyColumns(reads_event_times)
        first_rows, offsets = index.first_rows[touched], index.offsets[touched]
        for entry in read_keys(segment, offsets.tolist()):
            position = (segment.ordinal << ROW_BITS) + int(first_rows[columns.entries])
            columns.add_section(entry.location, entry.header, position, entry.keys)
        counts = np.array(columns.counts, np.int64)
        firsts = np.cumsum(counts) - counts
        picked = columns.pick(firsts[entry_of] + unique - first_rows[entry_of])
    # Different keys with equal hashes are excluded here.
    same = pc.equal(picked.keys.take(to_arrow(row_of)), keys.take(to_arrow(queries)))
    is_same = from_arrow(same.cast(pa.int32())) != 0
    is_same &= picked.has_key[row_of]
    if not is_same.any():
        return None
    return OldMessages(queries[is_same], picked.facts.where(row_of[is_same]))


# Small entries are read together.
READ_BYTES_MIN = 4096


class EntryKeys(NamedTuple):
    """An entry without its values. `location`: of the key section."""

    location: Place
    header: EntryHeader
    keys: Keys


def read_keys(segment: InputSegment, offsets: Iterable[int]) -> Iterator[EntryKeys]:
    """Yields the entries that begin at `offsets`, which ascend; headers and keys are verified.

    Few entries of many are read, so reading each costs less than mapping pages. Bound: one key
    section, or READ_BYTES_MIN; or one Pulsar batch.

    Raises Corruption, IncompatibleFormat, MissingFile, DiskFailure.
    """
    path, size_bytes = segment.path, segment.record.size_bytes
    try:
        file = REAL.open_read(Path(path))
    except FileNotFoundError as error:
        raise MissingFile(path, "the compaction plan") from error
    with closing(file):
        if file.size_bytes < size_bytes:
            raise MissingFile(path, "the compaction plan")
        window, size_wanted = Window(file.pread, size_bytes), READ_BYTES_MIN
        for offset in offsets:
            try:
                at = window.index(offset, HEADER_BYTES, size_wanted)
                header = read_header(window.view, at, path)
                is_batch = header.codec == Codec.PULSAR and not header.is_plain
                size = header.header_bytes + header.key_bytes
                if is_batch:
                    size = header.size_bytes
                at = window.index(offset, size, size)
                view = window.view
                section, values = verify_sections(view, header, at, path, keys_only=not is_batch)
            except Corruption as error:
                raise shifted(error, window.base) from error
            location = Place(path, offset + header.header_bytes)
            try:
                keys = key_columns(
                    header,
                    section,
                    partial(bytes, values),
                    unsized_empties_survive=segment.unsized_empties_survive,
                )
            except InvalidRequest as error:
                raise Corruption(*location, "a key section", str(error)) from error
            yield EntryKeys(location, header, keys)
            # The next key section is probably not much larger.
            size_wanted = max(size + size // 8, READ_BYTES_MIN)
