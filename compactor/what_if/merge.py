"""The second task of an analysis: reduces a bucket's fragments to survivors, by strategy.

The task does what the merge of compactor/job/scan.py does for a run, but encodes the keys of a
bucket once for all strategies. Message strategies then process the spooled messages one after the
other, as in compactor/job/merge_messages.py. Memory: that of a run's task, with the fragments of
all column strategies, the current messages of one message strategy, and 16 bytes a message if
differences are requested.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.job.arrow_integers import to_arrow
from ledgerfold.compactor.job.merge_messages import Spool, decided
from ledgerfold.compactor.job.rows import Failure, Messages, by_task
from ledgerfold.compactor.positions import ROW_BITS, Integers
from ledgerfold.compactor.strategies.registry import AnyStrategy
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.compactor.strategies.strategy import Codes, Strategy
from ledgerfold.compactor.what_if.rows import (
    AnalysisRow,
    Chunk,
    Differing,
    Entries,
    Kept,
    StrategyCounts,
    Survivors,
    joined_blobs,
    unpacked,
)


@dataclass(frozen=True)
class Merge:
    """A merge task. `first_ordinals`: the first segment of each sizing task. `differences_max`:
    keys to list.

    `earlier`: survivors under strategies of other jobs, to compare with.
    """

    strategies: tuple[AnyStrategy, ...]
    first_ordinals: tuple[int, ...]
    differences_max: int
    earlier: tuple[Survivors, ...] = ()

    def rows(self, rows: Iterable[AnalysisRow]) -> Iterator[AnalysisRow]:
        """Yields rows for the sizing tasks. Raises StrategyFailed."""
        chunks: list[Chunk] = []
        with Spool() as spool:
            for row in rows:
                match row[1]:
                    case Chunk() as content:
                        chunks.append(content)
                    case Messages() as content:
                        spool.add(content)
                    case Kept() as content:
                        yield from self._to_sizing(content)
                    case Entries() as content:
                        yield from self._to_their_tasks(content)
                    case Failure() as content:
                        for task in range(len(self.first_ordinals)):
                            yield task, content
                        return
                    case content:
                        yield 0, content
            if chunks:
                yield from self._merged(chunks, spool)

    def _to_their_tasks(self, entries: Entries) -> Iterator[AnalysisRow]:
        """Sends a chunk's entries to all tasks that they may belong to; each task selects its
        entries.
        """
        ends = np.frombuffer(entries.positions, "<i8")[[0, -1]] >> ROW_BITS
        low, high = np.searchsorted(self.first_ordinals, ends, "right") - 1
        for task in range(int(low), int(high) + 1):
            yield task, entries

    def _merged(self, chunks: list[Chunk], spool: Spool) -> Iterator[AnalysisRow]:
        # In log order, so that fragments of one key need no sorting.
        chunks.sort(key=attrgetter("first"))
        bucket = _Bucket.of(chunks)
        merged = dict[tuple[int, ...], tuple[StrategyCounts, Integers]]()
        survivors = []
        for number, strategy in enumerate(self.strategies):
            if isinstance(strategy, MessageStrategy):
                requested = decided(strategy, spool)
                strategy_counts = StrategyCounts(
                    number, len(requested.current), requested.removed_events
                )
                positions = requested.survivors()
            else:
                # Strategies with equal results in every chunk have equal results here, too.
                parts = tuple(id(chunk.parts[number]) for chunk in chunks)
                if parts not in merged:
                    merged[parts] = bucket.reduce(number, strategy)
                strategy_counts, positions = merged[parts]
                strategy_counts = strategy_counts._replace(strategy=number)
            yield 0, strategy_counts
            survivors.append(positions)
        yield from self._to_sizing(_survivors_of(chunks, survivors))
        if self.differences_max:
            yield 0, self._differing(bucket, survivors)

    def _to_sizing(self, survivors: Kept) -> Iterator[AnalysisRow]:
        (positions, shares), marks = survivors.messages.columns, survivors.mark_column
        firsts = np.array(self.first_ordinals, np.int64) << ROW_BITS
        for task, places in by_task(positions, firsts):
            yield task, Kept.of(positions[places], shares[places], marks[places])

    def _differing(
        self,
        bucket: _Bucket,
        survivors: Sequence[Integers],
    ) -> Differing:
        places = [chunk.places for chunk in bucket.chunks if chunk.places is not None]
        positions = np.concatenate([unpacked(each[0]) for each in places])
        codes = np.concatenate(
            [of[unpacked(each[1])] for of, each in zip(bucket.codes, places, strict=True)]
        )
        order = np.argsort(positions, kind="stable")
        positions, codes = positions[order], codes[order]
        survivors = [*survivors, *(each.among(positions) for each in self.earlier)]
        survivor_codes = [codes[np.searchsorted(positions, each)] for each in survivors]
        stays, times = np.unique(np.concatenate(survivors), return_counts=True)
        loose = stays[times < len(survivors)]
        differing = np.unique(codes[np.searchsorted(positions, loose)])
        listed = bucket.keys.take(to_arrow(differing)).to_pylist()
        first = sorted(zip(listed, differing.tolist(), strict=True))[: self.differences_max]
        return Differing(
            len(differing),
            tuple(
                (
                    key,
                    tuple(map(_last_kept, survivor_codes, survivors, [code] * len(survivor_codes))),
                )
                for key, code in first
            ),
        )


def _last_kept(rows: Integers, positions: Integers, code: int) -> tuple[int, int]:
    """Returns the number of a key's surviving messages, and the last one's position."""
    own = positions[rows == code]
    return len(own), int(own[-1]) if len(own) else -1


class _Bucket(NamedTuple):
    """The keys of a bucket, and the code of each key of a chunk."""

    chunks: Sequence[Chunk]
    keys: pa.BinaryArray
    codes: Sequence[Codes]

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> _Bucket:
        return cls(chunks, *joined_blobs(chunk.keys for chunk in chunks))

    def reduce(self, number: int, strategy: Strategy) -> tuple[StrategyCounts, Integers]:
        """Runs one strategy. Returns its counts and the surviving positions, ascending."""
        parts = [chunk.parts[number] for chunk in self.chunks]
        codes = np.concatenate(
            [
                of if (places := part.code_column) is None else of[places]
                for of, part in zip(self.codes, parts, strict=True)
            ]
        )
        columns = tuple(
            np.concatenate([unpacked(each) for each in column])
            for column in zip(*(part.columns for part in parts), strict=True)
        )
        key_count = len(self.keys)
        is_present = np.zeros(key_count, np.bool_)
        is_present[codes] = True
        if not is_present.all():
            # A strategy receives only keys that have fragments.
            codes = (np.cumsum(is_present) - 1)[codes]
            key_count = int(np.count_nonzero(is_present))
        folded = strategy.join(codes, columns, key_count)
        positions = np.sort(strategy.survivors(folded.fragments))
        return StrategyCounts(number, key_count, folded.removed_events), positions


def _survivors_of(chunks: Sequence[Chunk], survivors: Sequence[Integers]) -> Kept:
    """Returns the candidates that survive under any strategy. `survivors`: by strategy."""
    candidates = [chunk.candidates.columns for chunk in chunks]
    positions, shares = (np.concatenate(column) for column in zip(*candidates, strict=True))
    marks = np.zeros(len(positions), np.uint16)
    # Several strategies may share one array.
    marked: dict[int, int] = defaultdict(int)
    for number, stay in enumerate(survivors):
        marked[id(stay)] |= 1 << number
    for stay in survivors:
        if mark := marked.pop(id(stay), 0):
            marks[np.searchsorted(positions, stay)] |= np.uint16(mark)
    rows_marked = np.flatnonzero(marks)
    return Kept.of(positions[rows_marked], shares[rows_marked], marks[rows_marked])
