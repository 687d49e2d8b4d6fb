"""Replays compaction triggers on a topic's history: pure, from columns to figures.

The history is the published log, entry by entry. A message's bytes are its share of its entry,
header included (chunks.py). Publish times never decrease: an earlier one is raised to the previous
one.

* `threshold`: after each entry, a run begins if the entries after the horizon have **more** bytes
  than the threshold (Pulsar's PersistentTopic.checkCompaction). Pulsar checks once a minute, a
  replay at each entry.
* `interval`: time is divided into periods from the first entry on. At the end of each period,
  before later entries, a run compacts the new entries. The period in which the history ends has no
  run.

A run takes no time. It reads the compacted ledger and the entries after the horizon, and writes the
strategy's survivors of both; the raw data below the horizon are deleted with it. At any time
therefore

    space  = the compacted ledger + the entries after the horizon
    rewind = space: the bytes that a reader from the earliest message reads to catch up

The mean space is over publish time (byte-hours), the mean rewind over entries (a reader starts
after each). The peak counts the new ledger in addition to the old one and the raw data, as during a
run.

With `publishing-order` and message strategies (lifetimes.py), several runs have the same result as
one run over everything, so the compacted ledger's size is computed for all horizons at once. Other
strategies are run for each horizon.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.compactor.strategies.strategy import Facts, Strategy
from ledgerfold.compactor.what_if.lifetimes import NEVER, Lifetimes
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.what_if_pb2 import Replay, SpacePoint

# Messages that all runs of a replay may read together, if each is run.
STEPS_MAX = 100_000_000
POINTS_MAX = 1_000
# The key of entries that survive every run: batches that do not parse.
PASSES = -2


class History(NamedTuple):
    """A history. Entries: publish time, bytes, messages. Messages, in order: key (-1: none, or
    PASSES), bytes, facts, position in the plan.

    An entry that cannot be opened is one message. The positions of facts are row numbers.
    """

    times_ms: Integers
    entry_bytes: Integers
    counts: Integers
    codes: Integers
    shares: Integers
    facts: Facts
    positions: Integers

    @property
    def ends(self) -> Integers:
        """The number of messages up to the end of each entry."""
        return np.cumsum(self.counts)

    @property
    def entries(self) -> Integers:
        """The entry of each message."""
        return np.repeat(np.arange(len(self.counts)), self.counts)

    @property
    def clock_ms(self) -> Integers:
        """The publish times, never decreasing."""
        clock: Integers = np.maximum.accumulate(self.times_ms)
        return clock


def threshold_horizons(entry_bytes: Integers, threshold_bytes: int) -> list[int]:
    """Returns the entries that are followed by a run.

    >>> threshold_horizons(np.array([5, 5, 1, 11, 2]), 10)
    [2, 3]
    """
    ends = np.cumsum(entry_bytes).tolist()
    horizons, before = [], 0
    while (at := bisect_right(ends, before + threshold_bytes)) < len(ends):
        horizons.append(at)
        before = ends[at]
    return horizons


def interval_horizons(clock_ms: Integers, interval_ms: int) -> list[int]:
    """Returns the entries that are followed by a run.

    >>> interval_horizons(np.array([0, 9, 10, 35, 39]), 10)
    [1, 2]
    """
    if not len(clock_ms):
        return []
    periods = (clock_ms - clock_ms[0]) // interval_ms
    horizons: list[int] = np.flatnonzero(np.diff(periods)).tolist()
    return horizons


def sizes_by_publishing_order(history: History, retain_null_key: bool) -> Integers:
    """Returns the output bytes of a run with its horizon at each entry."""
    entries, has_key = history.entries, history.codes >= 0
    passes = history.codes == PASSES
    rows = np.flatnonzero(has_key)
    order = rows[np.argsort(history.codes[rows], kind="stable")]
    # The entry of the key's next message; past the end if there is none.
    next_entries = np.full(len(entries), len(history.counts))
    has_next = history.codes[order[1:]] == history.codes[order[:-1]]
    next_entries[order[:-1][has_next]] = entries[order[1:][has_next]]
    stays = (has_key & history.facts.is_value) | (~has_key & retain_null_key) | passes
    return _sizes(history, np.flatnonzero(stays), next_entries[stays])


def sizes_by_lifetimes(history: History, lifetimes: Lifetimes) -> Integers:
    """Returns the output bytes of a run with its horizon at each entry; null keys are dropped."""
    rows = np.searchsorted(history.positions, lifetimes.starts)
    until = np.full(len(rows), len(history.counts))
    ends = lifetimes.ends != NEVER
    until[ends] = history.entries[np.searchsorted(history.positions, lifetimes.ends[ends])]
    passing = np.flatnonzero(history.codes == PASSES)
    rows = np.concatenate((rows, passing))
    until = np.concatenate((until, np.full(len(passing), len(history.counts))))
    return _sizes(history, rows, until)


def _sizes(history: History, rows: Integers, until: Integers) -> Integers:
    """Returns sizes for messages that survive from their entries until these entries."""
    changes = np.zeros(len(history.counts) + 1, np.int64)
    np.add.at(changes, history.entries[rows], history.shares[rows])
    np.subtract.at(changes, until, history.shares[rows])
    sizes: Integers = np.cumsum(changes[:-1])
    return sizes


def sizes_run_by_run(
    history: History,
    horizons: list[int],
    strategy_at: Callable[[int], Strategy],
    retain_null_key: bool,
    check: Callable[[], None] = lambda: None,
) -> Integers:
    """Returns the output bytes of each run over the last output and the new entries.

    `strategy_at`: the strategy of a run at a time; `check` is called for each run. Raises
    InvalidRequest if the runs read too much.
    """
    ends, clock = history.ends, history.clock_ms
    survivors, keyless = np.empty(0, np.int64), 0
    sizes, steps, start = [], 0, 0
    for horizon in horizons:
        check()
        end = int(ends[horizon])
        new = np.arange(start, end)
        has_key: Booleans = history.codes[new] >= 0
        stays = ~has_key if retain_null_key else history.codes[new] == PASSES
        keyless += int(history.shares[new[stays]].sum())
        rows = np.concatenate((survivors, new[has_key]))
        steps, start = steps + len(rows), end
        if steps > STEPS_MAX:
            raise InvalidRequest(
                f"{len(horizons)} runs would read more than {STEPS_MAX} messages. Use a larger "
                "threshold or interval, or publishing-order."
            )
        distinct, codes = np.unique(history.codes[rows], return_inverse=True)
        strategy = strategy_at(int(clock[horizon]))
        folded = strategy.begin(codes, history.facts.where(rows), len(distinct))
        survivors = np.sort(strategy.survivors(folded.fragments))
        sizes.append(keyless + int(history.shares[survivors].sum()))
    return np.array(sizes, np.int64)


def replay(history: History, horizons: list[int], sizes: Integers) -> Replay:
    """Replays runs. `sizes`: the output of each."""
    ends = np.cumsum(history.entry_bytes)
    if not len(ends):
        return Replay()
    at = np.array(horizons, np.int64)
    before = np.concatenate(([0], sizes[:-1])) if len(sizes) else sizes
    read = before + np.diff(ends[at], prepend=0)
    runs = np.searchsorted(at, np.arange(len(ends)), "right")
    space = np.concatenate(([0], sizes))[runs] + ends - np.concatenate(([0], ends[at]))[runs]
    clock = history.clock_ms
    lasted = np.diff(clock, append=clock[-1])
    rewritten = int(sizes.sum())
    return Replay(
        runs=len(horizons),
        bytes_read=int(read.sum()),
        bytes_rewritten=rewritten,
        write_amplification=rewritten / int(ends[-1]),
        space_peak_bytes=int(max(space.max(), (read + sizes).max(initial=0))),
        space_mean_bytes=float(np.average(space, weights=lasted if lasted.any() else None)),
        rewind_mean_bytes=float(space.mean()),
        points=shown_points(clock, space),
    )


def shown_points(times_ms: Integers, sizes: Integers) -> list[SpacePoint]:
    """Returns points of a chart of space over time, evenly chosen if there are many."""
    count = len(times_ms)
    which = np.unique(np.linspace(0, count - 1, min(POINTS_MAX, count), dtype=np.int64))
    shown = zip(times_ms[which].tolist(), sizes[which].tolist(), strict=True)
    return [SpacePoint(publish_time_ms=time_ms, bytes=size) for time_ms, size in shown]
