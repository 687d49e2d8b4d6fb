"""The second task of an analysis: the fragments of a bucket become what stays, by strategy.

As compactor/merge.py does for a run; the keys of a bucket are encoded once for all strategies.
Those that decide message by message are asked one after the other about what was laid aside, as
compactor/merge_messages.py does. Memory: what a run's task holds, with the fragments of all
strategies over columns, the messages that stand under one of the others, and where differences are
asked for, 16 bytes a message.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from ledgerfold.compactor.arrow_integers import from_arrow, to_arrow
from ledgerfold.compactor.merge_messages import Spool, asked_about
from ledgerfold.compactor.positions import ROW_BITS, Integers
from ledgerfold.compactor.rows import Failure, Messages
from ledgerfold.compactor.strategies.registry import AnyStrategy
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.compactor.strategies.strategy import Codes, Strategy
from ledgerfold.compactor.what_if.rows import (
    AnalysisRow,
    Chunk,
    Differing,
    Entries,
    Judged,
    Kept,
    key_column,
    unpacked,
)
from ledgerfold.compactor.what_if.survivors import Survivors


@dataclass(frozen=True)
class Merge:
    """`first_ordinals`: the first segment of each sizing task. `differences_max`: keys to list.
    `given`: what stays under strategies that other jobs asked, to compare with."""

    strategies: tuple[AnyStrategy, ...]
    first_ordinals: tuple[int, ...]
    differences_max: int
    given: tuple[Survivors, ...] = ()

    def rows(self, rows: Iterable[AnalysisRow]) -> Iterator[AnalysisRow]:
        """Rows for the sizing tasks. Raises StrategyFailed."""
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
        """Those of a chunk may belong to several tasks, which take what is theirs."""
        ends = np.frombuffer(entries.positions, "<i8")[[0, -1]] >> ROW_BITS
        low, high = np.searchsorted(self.first_ordinals, ends, "right") - 1
        for task in range(int(low), int(high) + 1):
            yield task, entries

    def _merged(self, chunks: list[Chunk], spool: Spool) -> Iterator[AnalysisRow]:
        # In the order of the log, so that nobody has to sort what is of one key.
        chunks.sort(key=attrgetter("first"))
        bucket = _Bucket.of(chunks)
        merged = dict[tuple[int, ...], tuple[Judged, Integers]]()
        survivors = []
        for number, strategy in enumerate(self.strategies):
            if isinstance(strategy, MessageStrategy):
                asked = asked_about(strategy, spool)
                judged = Judged(number, len(asked.standing), asked.removed_events)
                positions = asked.survivors()
            else:
                # Those that came down to one in every chunk come to the same here, too.
                parts = tuple(id(chunk.parts[number]) for chunk in chunks)
                if parts not in merged:
                    merged[parts] = bucket.judge(number, strategy)
                judged, positions = merged[parts]
                judged = judged._replace(strategy=number)
            yield 0, judged
            survivors.append(positions)
        yield from self._to_sizing(_kept(chunks, survivors))
        if self.differences_max:
            yield 0, self._differing(bucket, survivors)

    def _to_sizing(self, kept: Kept) -> Iterator[AnalysisRow]:
        (positions, shares), marks = kept.messages.columns, kept.mark_column
        firsts = np.array(self.first_ordinals, np.int64) << ROW_BITS
        bounds = [*np.searchsorted(positions, firsts).tolist(), len(positions)]
        for task, (start, end) in enumerate(pairwise(bounds)):
            if start < end:
                yield task, Kept.of(positions[start:end], shares[start:end], marks[start:end])

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
        survivors = [*survivors, *(each.among(positions) for each in self.given)]
        kept = [codes[np.searchsorted(positions, each)] for each in survivors]
        stays, times = np.unique(np.concatenate(survivors), return_counts=True)
        loose = stays[times < len(survivors)]
        differing = np.unique(codes[np.searchsorted(positions, loose)])
        listed = bucket.keys.take(to_arrow(differing)).to_pylist()
        first = sorted(zip(listed, differing.tolist(), strict=True))[: self.differences_max]
        return Differing(
            len(differing),
            tuple(
                (key, tuple(map(_last_kept, kept, survivors, [code] * len(kept))))
                for key, code in first
            ),
        )


def _last_kept(kept: Integers, positions: Integers, code: int) -> tuple[int, int]:
    """How many messages of a key stay, and the last one's position."""
    own = positions[kept == code]
    return len(own), int(own[-1]) if len(own) else -1


class _Bucket(NamedTuple):
    """All keys of a bucket, and the place among them of each of a chunk's."""

    chunks: Sequence[Chunk]
    keys: pa.BinaryArray
    codes: Sequence[Codes]

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> _Bucket:
        columns = [key_column(chunk.keys) for chunk in chunks]
        encoded = pa.concat_arrays(columns).dictionary_encode()
        codes = from_arrow(encoded.indices)
        bounds = np.cumsum([0, *map(len, columns)])
        return cls(
            chunks, encoded.dictionary, [codes[start:end] for start, end in pairwise(bounds)]
        )

    def judge(self, number: int, strategy: Strategy) -> tuple[Judged, Integers]:
        """What one strategy makes of it; the positions that stay, ascending."""
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
            # A strategy is asked about keys of which there are fragments.
            codes = (np.cumsum(is_present) - 1)[codes]
            key_count = int(np.count_nonzero(is_present))
        folded = strategy.join(codes, columns, key_count)
        positions = np.sort(strategy.survivors(folded.fragments))
        return Judged(number, key_count, folded.removed_events), positions


def _kept(chunks: Sequence[Chunk], survivors: Sequence[Integers]) -> Kept:
    """Those candidates that survive under any strategy. `survivors`: by strategy."""
    candidates = [chunk.candidates.columns for chunk in chunks]
    positions, shares = (np.concatenate(column) for column in zip(*candidates, strict=True))
    marks = np.zeros(len(positions), np.uint16)
    # Several strategies may have come to one array.
    marked: dict[int, int] = defaultdict(int)
    for number, stay in enumerate(survivors):
        marked[id(stay)] |= 1 << number
    for stay in survivors:
        if mark := marked.pop(id(stay), 0):
            marks[np.searchsorted(positions, stay)] |= np.uint16(mark)
    kept = np.flatnonzero(marks)
    return Kept.of(positions[kept], shares[kept], marks[kept])
