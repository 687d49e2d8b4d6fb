"""Conversions between an analysis and the wire: strategies by name, forecasts by strategy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.job.segment_map import SegmentMap
from ledgerfold.compactor.positions import ROW_BITS
from ledgerfold.compactor.strategies.registry import AnyStrategy, strategy_of
from ledgerfold.compactor.strategies.strategy import Strategy
from ledgerfold.compactor.user_strategies.own import Own
from ledgerfold.compactor.what_if.job import Figures
from ledgerfold.compactor.what_if.rows import Differing
from ledgerfold.storage.codec import decode, decoding
from ledgerfold.storage.errors import InvalidStrategy
from ledgerfold.strategies.catalogue import checked, listed
from ledgerfold.strategies.loading import place_of
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import CompactionStrategy, MessageId
from ledgerfold.v1.what_if_pb2 import (
    KeptMessages,
    KeyDifference,
    KeyDifferences,
    StrategyForecast,
    WhatIfInput,
)

# A user-defined strategy as its trial found it, or why it cannot run; None for a built-in strategy.
Tried = Own | InvalidStrategy | None
# The number of bytes of a value that are shown.
_VALUE_BYTES_MAX = 100


class Candidate(NamedTuple):
    """A strategy to analyse, built-in or user-defined."""

    requested: CompactionStrategy
    strategy: AnyStrategy | None
    own: Tried = None


def candidate(requested: CompactionStrategy, time_ms: int, trial: Tried = None) -> Candidate:
    """Returns a candidate. Raises InvalidRequest, UnknownStrategy, InvalidStrategy (no package
    offers that name).
    """
    requested = checked(requested)
    if listed(requested.name) is not None:
        return Candidate(requested, _strategy(requested, time_ms))
    place_of(requested.name)
    return Candidate(requested, None, trial)


def column_strategy(requested: CompactionStrategy, time_ms: int) -> Strategy:
    """Returns a strategy over columns. Raises InvalidRequest, UnknownStrategy."""
    strategy = _strategy(requested, time_ms)
    assert isinstance(strategy, Strategy)
    return strategy


def _strategy(requested: CompactionStrategy, time_ms: int) -> AnyStrategy:
    plan = CompactionPlan(
        strategy=requested.name, strategy_settings=requested.settings, time_ms=time_ms
    )
    return strategy_of(plan)


def input_of(figures: Figures) -> WhatIfInput:
    counts = figures.counts
    return WhatIfInput(
        messages=counts.messages_in,
        entries=counts.entries_in,
        bytes=counts.bytes_in,
        tombstones=counts.tombstones,
        null_keys=counts.null_keys,
    )


def forecast(requested: CompactionStrategy, figures: Figures, at: int = 0) -> StrategyForecast:
    """Returns the forecast of the strategy at that index of an analysis."""
    strategy_counts, sized = figures.strategy_counts[at], figures.sized[at]
    bytes_in = figures.counts.bytes_in
    reclaimable = bytes_in - sized.bytes
    return StrategyForecast(
        strategy=requested,
        messages=sized.messages,
        entries=sized.entries,
        bytes=sized.bytes,
        bytes_estimated=sized.bytes_estimated,
        keys=strategy_counts.keys,
        removed_events=strategy_counts.removed_events,
        bytes_reclaimable=reclaimable,
        garbage_ratio=reclaimable / bytes_in if bytes_in else 0.0,
    )


def differences(
    differing: Differing, segments: Sequence[InputSegment], check: Callable[[], None]
) -> KeyDifferences:
    """Returns the differences with the ids and values of surviving messages, which are looked up.

    `check` is called for each segment that is read. Raises what reading raises.
    """
    positions = {at for _, survivors in differing.listed for _, at in survivors if at >= 0}
    by_key: dict[int, KeptMessages] = {}
    for segment in segments:
        first = segment.ordinal << ROW_BITS
        rows = sorted(at - first for at in positions if first <= at < first + (1 << ROW_BITS))
        if rows:
            check()
            by_key.update({first + row: each for row, each in _messages(segment, rows).items()})
    answer = KeyDifferences(keys=differing.keys)
    for key, survivors in differing.listed:
        difference = KeyDifference(key=key)
        for count, at in survivors:
            messages = difference.kept.add(count=count)
            if at >= 0:
                messages.MergeFrom(by_key[at])
        answer.listed.append(difference)
    return answer


def _messages(segment: InputSegment, rows: Sequence[int]) -> dict[int, KeptMessages]:
    """Reads these rows of a segment, which ascend."""
    by_row, remaining = {}, list(reversed(rows))
    with SegmentMap(segment) as mapped:
        for entry in mapped.entries():
            header = entry.header
            if not remaining:
                break
            if remaining[-1] >= entry.row + header.message_count:
                continue
            with decoding(f"entry {header.position} of {segment.path}"):
                batch = decode(b"".join(mapped.raw(entry)), header)
                while remaining and remaining[-1] < entry.row + header.message_count:
                    row = remaining.pop()
                    at = row - entry.row
                    value = batch.value(at)
                    by_row[row] = KeptMessages(
                        last=MessageId(
                            ledger_id=header.ledger_id,
                            entry_id=header.entry_id,
                            batch_index=batch.batch_index(at),
                            partition=-1,
                        ),
                        value=value[:_VALUE_BYTES_MAX],
                        value_bytes=len(value),
                    )
    return by_row
