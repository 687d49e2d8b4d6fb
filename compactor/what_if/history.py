"""A topic's history as columns for replays, scanned by Spark and joined in the driver.

Memory of the driver: about 70 bytes a message and the distinct keys of each chunk. A history has at
most MESSAGES_MAX messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.job.distinct import HashedKeys
from ledgerfold.compactor.job.engine import Context
from ledgerfold.compactor.job.lookup import joined
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.job.rows import Failure, succeeded
from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies.strategy import Facts
from ledgerfold.compactor.what_if.chunks import Collected, chunks_of
from ledgerfold.compactor.what_if.replay import PASSES, History
from ledgerfold.compactor.what_if.rows import joined_codes, key_blob
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError

MESSAGES_MAX = 10_000_000


class HistoryChunk(NamedTuple):
    """A part of a History; `codes` are indexes into `keys`, or as in a History."""

    times_ms: Integers
    entry_bytes: Integers
    counts: Integers
    codes: Integers
    shares: Integers
    facts: Facts
    keys: bytes


@dataclass(frozen=True)
class HistoryScan:
    """A Spark task that scans segments into chunks, in order. Picklable."""

    reads_event_times: bool

    def __call__(
        self, runs: Iterable[tuple[InputSegment, ...]]
    ) -> Iterator[HistoryChunk | Failure]:
        segments = tuple(chain.from_iterable(runs))
        try:
            for chunk in chunks_of(segments, self.reads_event_times):
                yield _chunk_of(chunk)
        except LedgerfoldError as error:
            yield Failure.of(error)


def read_history(
    context: Context,
    runs: Sequence[tuple[InputSegment, ...]],
    reads_event_times: bool,
) -> History:
    """Reads a history. Raises InvalidRequest if it is too long, and what scanning raises."""
    messages = sum(segment.record.messages for run in runs for segment in run)
    if messages > MESSAGES_MAX:
        raise InvalidRequest(
            f"The history has {messages} messages; at most {MESSAGES_MAX} are replayed."
        )
    if not runs:
        return history_of([])
    scanned = context.parallelize(runs, len(runs)).mapPartitions(HistoryScan(reads_event_times))
    return history_of(scanned.collect())


def history_of(chunks: Sequence[HistoryChunk | Failure]) -> History:
    """Joins chunks. Raises the error of a failed task."""
    chunks_read = succeeded(chunks)
    if not chunks_read:
        none = np.empty(0, np.int64)
        return History(none, none, none, none, none, Facts(none, none.astype(np.bool_)), none)
    facts = joined([each.facts for each in chunks_read])
    return History(
        np.concatenate([each.times_ms for each in chunks_read]),
        np.concatenate([each.entry_bytes for each in chunks_read]),
        np.concatenate([each.counts for each in chunks_read]),
        joined_codes([(each.keys, each.codes) for each in chunks_read]),
        np.concatenate([each.shares for each in chunks_read]),
        facts._replace(positions=np.arange(len(facts.positions), dtype=np.int64)),
        facts.positions,
    )


def _chunk_of(chunk: Collected) -> HistoryChunk:
    columns = chunk.columns
    keys = columns.keys()
    distinct = HashedKeys.of(keys).numbered()
    codes = np.where(columns.has_key(), distinct.codes, -1)
    codes[columns.passing()] = PASSES
    return HistoryChunk(
        chunk.publish_times(),
        chunk.entry_bytes(),
        chunk.counts,
        codes,
        chunk.whole_shares(keys),
        columns.facts(),
        key_blob(distinct.keys),
    )
