"""An analysis as the wire asks for it and gets it: strategies by name, forecasts by strategy.

A strategy of one's own is not forecast: its code is loaded, tried and held to its bounds by runs
alone, and its forecast says so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ledgerfold.compactor.plan import InputSegment
from ledgerfold.compactor.positions import ROW_BITS
from ledgerfold.compactor.segment_map import SegmentMap
from ledgerfold.compactor.strategies.registry import AnyStrategy, strategy_of
from ledgerfold.compactor.strategies.strategy import Strategy
from ledgerfold.compactor.what_if.job import Figures
from ledgerfold.compactor.what_if.rows import Differing
from ledgerfold.storage.codec import decode, decoding
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

_OWN = "It is one of your own, whose code only a real run asks: there is no forecast of it."
# Of a value that is shown.
_VALUE_BYTES_MAX = 100


class Candidate(NamedTuple):
    """A strategy that is asked about; None: it cannot be forecast."""

    asked: CompactionStrategy
    strategy: AnyStrategy | None


def candidate(asked: CompactionStrategy, time_ms: int) -> Candidate:
    """Raises InvalidRequest, UnknownStrategy, InvalidStrategy (no package offers that name)."""
    asked = checked(asked)
    if listed(asked.name) is not None:
        return Candidate(asked, _strategy(asked, time_ms))
    place_of(asked.name)
    return Candidate(asked, None)


def column_strategy(asked: CompactionStrategy, time_ms: int) -> Strategy:
    """One that is over columns. Raises InvalidRequest, UnknownStrategy."""
    strategy = _strategy(asked, time_ms)
    assert isinstance(strategy, Strategy)
    return strategy


def _strategy(asked: CompactionStrategy, time_ms: int) -> AnyStrategy:
    plan = CompactionPlan(strategy=asked.name, strategy_settings=asked.settings, time_ms=time_ms)
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


def forecasts(candidates: Sequence[Candidate], figures: Figures) -> list[StrategyForecast]:
    """In the order of the candidates; figures are of those with a strategy."""
    found = iter(zip(figures.judged, figures.sized, strict=True))
    answers = []
    for asked, strategy in candidates:
        forecast = StrategyForecast(strategy=asked)
        if strategy is None:
            forecast.not_forecast = _OWN
        else:
            judged, sized = next(found)
            bytes_in = figures.counts.bytes_in
            forecast.messages, forecast.entries = sized.messages, sized.entries
            forecast.bytes, forecast.bytes_estimated = sized.bytes, sized.bytes_estimated
            forecast.keys, forecast.removed_events = judged.keys, judged.removed_events
            forecast.bytes_reclaimable = bytes_in - sized.bytes
            forecast.garbage_ratio = forecast.bytes_reclaimable / bytes_in if bytes_in else 0.0
        answers.append(forecast)
    return answers


def differences(
    differing: Differing, segments: Sequence[InputSegment], check: Callable[[], None]
) -> KeyDifferences:
    """With the ids and values of what stays, which are looked up.

    `check` is called for each segment that is looked into. Raises what reading raises.
    """
    wanted = {at for _, kept in differing.listed for _, at in kept if at >= 0}
    found: dict[int, KeptMessages] = {}
    for segment in segments:
        first = segment.ordinal << ROW_BITS
        rows = sorted(at - first for at in wanted if first <= at < first + (1 << ROW_BITS))
        if rows:
            check()
            found.update({first + row: each for row, each in _messages(segment, rows).items()})
    answer = KeyDifferences(keys=differing.keys)
    for key, kept in differing.listed:
        difference = KeyDifference(key=key)
        for count, at in kept:
            messages = difference.kept.add(count=count)
            if at >= 0:
                messages.MergeFrom(found[at])
        answer.listed.append(difference)
    return answer


def _messages(segment: InputSegment, rows: Sequence[int]) -> dict[int, KeptMessages]:
    """Those rows of a segment, which ascend."""
    found, left = {}, list(reversed(rows))
    with SegmentMap(segment) as mapped:
        for entry in mapped.entries():
            header = entry.header
            if not left:
                break
            if left[-1] >= entry.row + header.message_count:
                continue
            with decoding(f"entry {header.position} of {segment.path}"):
                batch = decode(b"".join(mapped.raw(entry)), header)
                while left and left[-1] < entry.row + header.message_count:
                    row = left.pop()
                    at = row - entry.row
                    value = batch.value(at)
                    found[row] = KeptMessages(
                        last=MessageId(
                            ledger_id=header.ledger_id,
                            entry_id=header.entry_id,
                            batch_index=batch.batch_index(at),
                            partition=-1,
                        ),
                        value=value[:_VALUE_BYTES_MAX],
                        value_bytes=len(value),
                    )
    return found
