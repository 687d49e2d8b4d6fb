"""The scan of an analysis: reads key sections once, and reduces them for every strategy.

The task does what the scan of compactor/job/scan.py does for a run. The most expensive work is done
once for all strategies: reading and verifying, encoding and hashing keys, and ordering messages by
key. Keys are numbered bucket by bucket, so a bucket's part of a column in that order is a slice.
For messages that may survive it emits their bytes (chunks.py); a message that no strategy keeps in
its chunk cannot survive in the whole (compactor/strategies/registry.py).

For message strategies, one scan of messages follows (scan_messages.py), which reads the columns
that any of them needs. Under these strategies, any message may survive.

A task's memory is about 80 bytes a message of its chunk, 24 more for each strategy, and three times
the keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.job.arrow_integers import to_arrow
from ledgerfold.compactor.job.distinct import HashedKeys
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.job.rows import Counts, Messages
from ledgerfold.compactor.job.scan_messages import scan_messages
from ledgerfold.compactor.positions import ROW_BITS, Booleans, Integers, grouped
from ledgerfold.compactor.strategies.registry import AnyStrategy
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.compactor.strategies.strategy import Codes, Facts, Folded, Strategy, by_key
from ledgerfold.compactor.what_if.chunks import Collected, chunks_of
from ledgerfold.compactor.what_if.rows import (
    AnalysisRow,
    Chunk,
    Kept,
    Part,
    Shared,
    StrategyCounts,
    key_blob,
    packed,
)


@dataclass(frozen=True)
class Scan:
    """A scan of segments. `finds_differences`: emits the key of each message."""

    strategies: tuple[AnyStrategy, ...]
    buckets: int
    retain_null_key: bool
    finds_differences: bool

    def rows(self, segments: Sequence[InputSegment]) -> Iterator[AnalysisRow]:
        """Yields rows for the merge tasks.

        Raises Corruption, MissingFile, IncompatibleFormat, DiskFailure.
        """
        reads_event_times = any(each.reads_event_times for each in self._over_columns.values())
        for chunk in chunks_of(segments, reads_event_times):
            yield from self._reduced(chunk)
        by_message = [each for each in self.strategies if isinstance(each, MessageStrategy)]
        if by_message:
            reads = frozenset[str]().union(*(each.reads for each in by_message))
            for bucket, content in scan_messages(segments, reads, self.buckets):
                # Counts were taken from the keys already.
                if isinstance(content, Messages):
                    yield bucket, content

    @property
    def _over_columns(self) -> dict[int, Strategy]:
        return {
            number: each
            for number, each in enumerate(self.strategies)
            if isinstance(each, Strategy)
        }

    def _reduced(self, chunk: Collected) -> Iterator[AnalysisRow]:
        columns = chunk.columns
        facts, has_key, keys = columns.facts(), columns.has_key(), columns.keys()
        yield int(facts.positions[0] >> ROW_BITS) % self.buckets, chunk.entries()
        if len(passing := columns.passing()):
            marks = np.full(len(passing), (1 << len(self.strategies)) - 1, "<u2")
            yield 0, Kept.of(facts.positions[passing], chunk.shares(keys, passing), marks)
        is_keyless, is_live = ~has_key, columns.is_live()
        if is_live is not None:
            has_key, is_keyless = has_key & is_live, is_keyless & is_live
        keyless = int(np.count_nonzero(is_keyless))
        if keyless and self.retain_null_key:
            rows = np.flatnonzero(is_keyless)
            yield 0, self._keyless(facts.positions[rows], chunk.shares(keys, rows))
        keyed = self._keyed(facts, keys, None if has_key.all() else has_key)
        folds = self._folds(keyed)
        for number, strategy in enumerate(self.strategies):
            if isinstance(strategy, MessageStrategy):
                yield 0, StrategyCounts(number, 0, keyless)
            else:
                dropped = 0 if self.retain_null_key else keyless
                yield 0, StrategyCounts(number, 0, folds[number].removed_events + dropped)
        rows = self._candidates(chunk, folds, keyed)
        shares = chunk.shares(keys, rows if keyed.rows is None else keyed.rows[rows])
        yield from self._in_buckets(keyed, folds, rows, shares)
        yield (
            0,
            Counts(
                messages_in=columns.messages,
                entries_in=columns.entries,
                bytes_in=columns.size_bytes,
                tombstones=keyed.facts.tombstones,
                null_keys=keyless,
            ),
        )

    def _keyless(self, positions: Integers, shares: Integers) -> Kept:
        """Keeps messages without a key under column strategies; message strategies always drop
        them.
        """
        marks = np.full(len(positions), sum(1 << number for number in self._over_columns), "<u2")
        return Kept.of(positions, shares, marks)

    def _keyed(self, facts: Facts, keys: pa.BinaryArray, has_key: Booleans | None) -> _Keyed:
        rows = None if has_key is None else np.flatnonzero(has_key)
        if rows is not None:
            facts, keys = facts.where(rows), keys.take(to_arrow(rows))
        distinct, hashes, codes = HashedKeys.of(keys).numbered()
        bounds = np.array([0, len(distinct)])
        if self.buckets > 1:
            order, ends = grouped(hashes % self.buckets, self.buckets)
            numbers = np.empty(len(distinct), codes.dtype)
            numbers[order] = np.arange(len(distinct), dtype=codes.dtype)
            distinct, codes = distinct.take(to_arrow(order)), numbers[codes]
            bounds = np.concatenate(([0], ends))
        if len(self._over_columns) > 1:
            facts = facts._replace(ordered=by_key(codes))
        return _Keyed(rows, facts, distinct, codes, bounds)

    def _folds(self, keyed: _Keyed) -> dict[int, Folded]:
        """Folds the chunk under each strategy, keys ascending; equal results share one object."""
        facts, begun = keyed.facts, dict[Strategy, Folded]()
        requested = {
            number: each.simpler(facts) or each for number, each in self._over_columns.items()
        }
        for strategy in requested.values():
            if strategy not in begun:
                folded = strategy.begin(keyed.codes, facts, len(keyed.keys))
                begun[strategy] = _by_code(folded)
        return {number: begun[each] for number, each in requested.items()}

    def _candidates(self, chunk: Collected, folds: Mapping[int, Folded], keyed: _Keyed) -> Integers:
        """Returns the rows, among those with a key, that may survive."""
        if len(folds) < len(self.strategies):
            return np.arange(len(keyed.codes), dtype=np.int64)
        may_stay = np.zeros(chunk.columns.rows, np.bool_)
        # Strategies that share an object have the same survivors.
        for number, folded in {id(each): (number, each) for number, each in folds.items()}.values():
            survivors = self._over_columns[number].survivors(folded.fragments)
            may_stay[chunk.rows_at(survivors)] = True
        return np.flatnonzero(may_stay if keyed.rows is None else may_stay[keyed.rows])

    def _in_buckets(
        self, keyed: _Keyed, folds: Mapping[int, Folded], rows: Integers, shares: Integers
    ) -> Iterator[AnalysisRow]:
        """Yields the buckets. `rows`: the candidates, with their shares."""
        positions, codes, bounds = keyed.facts.positions, keyed.codes, keyed.bounds
        candidates = _by_bucket(codes[rows], bounds)
        every = _by_bucket(codes, bounds) if self.finds_differences else None
        for bucket, (start, end) in enumerate(pairwise(bounds.tolist())):
            if start == end:
                continue
            parts = {id(each): _part_of(each, start, end) for each in folds.values()}
            chosen = candidates[bucket]
            places = None
            if every is not None:
                these = every[bucket]
                places = packed(positions[these]), packed(codes[these] - start)
            yield (
                bucket,
                Chunk(
                    int(positions[0]),
                    key_blob(keyed.keys.slice(start, end - start)),
                    {number: parts[id(each)] for number, each in folds.items()},
                    Shared.of(positions[rows[chosen]], shares[chosen]),
                    places,
                ),
            )


class _Keyed(NamedTuple):
    """The messages of a chunk that have a key.

    `rows`: their rows in the chunk, without dead ones; None: all. `codes`: the key of each, as an
    index into `keys`, whose `bounds` delimit the buckets' keys.
    """

    rows: Integers | None
    facts: Facts
    keys: pa.BinaryArray
    codes: Codes
    bounds: Integers


def _by_code(folded: Folded) -> Folded:
    codes = folded.codes
    if codes is None or (codes[1:] >= codes[:-1]).all():
        return folded
    order = np.argsort(codes, kind="stable")
    fragments = tuple(each[order] for each in folded.fragments)
    return folded._replace(fragments=fragments, codes=codes[order])


def _part_of(folded: Folded, start: int, end: int) -> Part:
    """Returns the part for the keys between the two, renumbered."""
    if folded.codes is None:
        return Part.of(None, tuple(each[start:end] for each in folded.fragments))
    low, high = np.searchsorted(folded.codes, [start, end])
    fragments = tuple(each[low:high] for each in folded.fragments)
    return Part.of(folded.codes[low:high] - start, fragments)


def _by_bucket(codes: Codes, bounds: Integers) -> list[Integers]:
    """Returns the rows of each bucket."""
    rows, ends = grouped(np.searchsorted(bounds, codes, "right") - 1, len(bounds) - 1)
    return np.split(rows, ends[:-1])
