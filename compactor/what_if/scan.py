"""The one scan of an analysis: key sections in, what every strategy makes of them out.

As compactor/scan.py does for a run. What costs most is done once for all strategies: reading and
verifying, encoding the keys as numbers, and their hashes. Beside the fragments it tells what is
needed to say how large the survivors are (shares.py).

Where strategies that decide message by message are asked about, one scan of messages follows, which
takes what any of them reads: scan_messages.py.

Chunks are those of a run: what a strategy counts may depend on them. A task's memory is about 60
bytes a message of its chunk, 24 more for each strategy, and three times the keys.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.arrow_integers import from_arrow, to_arrow
from ledgerfold.compactor.key_columns import KeyColumns
from ledgerfold.compactor.plan import InputSegment
from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.compactor.rows import Counts, Messages
from ledgerfold.compactor.scan import CHUNK_KEY_BYTES_MAX, CHUNK_ROWS_MAX
from ledgerfold.compactor.scan_messages import scan_messages
from ledgerfold.compactor.segment_map import PlacedEntry, SegmentMap
from ledgerfold.compactor.strategies.ordering import by_key
from ledgerfold.compactor.strategies.registry import AnyStrategy
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.compactor.strategies.strategy import Codes, Folded, Strategy
from ledgerfold.compactor.what_if.rows import (
    KEYLESS,
    AnalysisRow,
    Chunk,
    Entries,
    Judged,
    Kept,
    Part,
    packed,
)
from ledgerfold.compactor.what_if.shares import Sections, shared_out
from ledgerfold.storage.entry import EntryHeader


@dataclass(frozen=True)
class Scan:
    """How segments are scanned. `finds_differences`: tells which key each message has."""

    strategies: tuple[AnyStrategy, ...]
    buckets: int
    retain_null_key: bool
    finds_differences: bool

    def rows(self, segments: Sequence[InputSegment]) -> Iterator[AnalysisRow]:
        """Rows for the merge tasks.

        Raises Corruption, MissingFile, IncompatibleFormat, DiskFailure.
        """
        reads_event_times = any(
            each.reads_event_times for each in self.strategies if isinstance(each, Strategy)
        )
        for chunk in chunks_of(segments, reads_event_times):
            yield from self._reduced(chunk)
        by_message = [each for each in self.strategies if isinstance(each, MessageStrategy)]
        if by_message:
            reads = frozenset[str]().union(*(each.reads for each in by_message))
            for bucket, content in scan_messages(segments, reads, self.buckets):
                # Its counts are those that the keys gave.
                if isinstance(content, Messages):
                    yield bucket, content

    def _reduced(self, chunk: Collected) -> Iterator[AnalysisRow]:
        columns = chunk.columns
        facts, has_key, keys = columns.facts(), columns.has_key(), columns.keys()
        yield 0, chunk.entries(facts.positions)
        keyless = columns.rows - int(np.count_nonzero(has_key))
        if keyless:
            if self.retain_null_key:
                yield 0, Kept(KEYLESS, packed(facts.positions[~has_key]))
            keys = keys.take(to_arrow(np.flatnonzero(has_key)))
            facts = facts.where(has_key)
        tombstones = len(facts.is_value) - int(np.count_nonzero(facts.is_value))
        encoded = keys.dictionary_encode()
        found, codes = encoded.dictionary, from_arrow(encoded.indices)
        dropped = 0 if self.retain_null_key else keyless
        if len(self.strategies) > 1:
            # Once for all of them: within a key the order stays that of positions.
            ordered = by_key(codes)
            codes, facts = ordered.codes, facts.where(ordered.rows)
        begun: dict[int, Folded] = {}
        for number, strategy in enumerate(self.strategies):
            if isinstance(strategy, MessageStrategy):
                yield 0, Judged(number, 0, keyless)
            else:
                begun[number] = strategy.begin(codes, facts, len(found))
                yield 0, Judged(number, 0, begun[number].removed_events + dropped)
        yield from self._in_buckets(found, begun, facts.positions, codes)
        yield (
            0,
            Counts(
                messages_in=columns.rows,
                entries_in=columns.entries,
                bytes_in=columns.size_bytes,
                tombstones=tombstones,
                null_keys=keyless,
            ),
        )

    def _in_buckets(
        self,
        keys: pa.BinaryArray,
        begun: Mapping[int, Folded],
        positions: Integers,
        codes: Codes,
    ) -> Iterator[AnalysisRow]:
        places = (positions, codes.astype(np.int64)) if self.finds_differences else None
        if self.buckets == 1:
            parts = {number: Part.of(each.codes, each.fragments) for number, each in begun.items()}
            yield 0, Chunk.of(keys, parts, places)
            return
        # As in a run: crc32 is the same everywhere.
        hashes = np.fromiter(map(zlib.crc32, keys.to_pylist()), np.int64, len(keys)) % self.buckets
        for bucket in range(self.buckets):
            chosen = hashes == bucket
            if chosen.any():
                yield bucket, _part_of(keys, chosen, begun, places)


def _part_of(
    keys: pa.BinaryArray,
    chosen: Booleans,
    begun: Mapping[int, Folded],
    places: tuple[Integers, Integers] | None,
) -> Chunk:
    """Of the keys that are chosen, under new codes."""
    renumbered = np.cumsum(chosen) - 1
    parts = {}
    for number, folded in begun.items():
        codes, rows = None, chosen
        if folded.codes is not None:
            rows = chosen[folded.codes]
            codes = renumbered[folded.codes[rows]]
        parts[number] = Part.of(codes, tuple(each[rows] for each in folded.fragments))
    if places is not None:
        positions, row_codes = places
        rows = chosen[row_codes]
        places = positions[rows], renumbered[row_codes[rows]]
    return Chunk.of(keys.take(to_arrow(np.flatnonzero(chosen))), parts, places)


def chunks_of(segments: Sequence[InputSegment], reads_event_times: bool) -> Iterator[Collected]:
    """The entries of their ranges, in chunks whose columns are checked.

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
    """The key columns of many entries, and how large the parts of each are."""

    def __init__(self, reads_event_times: bool) -> None:
        self.columns = KeyColumns(reads_event_times)
        self._headers: list[EntryHeader] = []

    def add(self, mapped: SegmentMap, entry: PlacedEntry) -> None:
        self.columns.add(mapped, entry)
        self._headers.append(entry.header)

    def entries(self, positions: Integers) -> Entries:
        """`positions`: those of all messages."""
        counts = self.counts()
        return Entries(
            packed(positions[np.cumsum(counts) - counts]),
            packed(counts),
            packed(self._of_headers("header_bytes")),
            self._shares().astype("<u4").tobytes(),
        )

    def counts(self) -> Integers:
        return self._of_headers("message_count")

    def entry_bytes(self) -> Integers:
        return self._of_headers("size_bytes")

    def publish_times(self) -> Integers:
        return self._of_headers("publish_time_ms")

    def whole_shares(self) -> Integers:
        """Of each message, the header's among them: they add up to the entry."""
        counts = self.counts()
        ones = np.ones(self.columns.rows, np.int64)
        return self._shares() + shared_out(self._of_headers("header_bytes"), counts, ones)

    def _shares(self) -> Integers:
        sections = Sections(self._of_headers("key_bytes"), self._of_headers("value_bytes"))
        columns = self.columns
        return sections.shares(self.counts(), columns.key_sizes(), columns.value_sizes())

    def _of_headers(self, field: str) -> Integers:
        return np.fromiter(map(attrgetter(field), self._headers), np.int64, len(self._headers))
