"""The results of other strategies and of other times to compact, as plots and figures.

The compactor computes them, as for `ledgerfold what-if`. Bounds: REPLAYS_MAX replays, and one
request at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from ledgerfold.broker.common.sizes import format_size
from ledgerfold.broker.http.answers import Refusal, whole_number
from ledgerfold.broker.page.page_request import PageRequest
from ledgerfold.broker.page.rendering import Page, duration
from ledgerfold.broker.rpc.admin_compaction import CompactionHandlers
from ledgerfold.broker.rpc.existing import recorded_name
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.strategies.catalogue import LISTED
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import (
    CleaningReplay,
    CleaningTrial,
    Replay,
    ReplaySetting,
    TopicWhatIf,
    WhatIfRequest,
)

LINES_MAX = REPLAYS_MAX = 8
SIZE_UNITS = {"KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
TIME_UNITS_MS = {"minutes": 60_000, "hours": 3_600_000, "days": 86_400_000}
# Of plots.
_SIDE = 1000
_STEPS = (1, 2, 5)
RATIO_SETTING, LAG_SETTING = "min.cleanable.dirty.ratio", "min.compaction.lag.ms"


class WhatIfPage:
    def __init__(self, broker: Broker, compaction: CompactionHandlers) -> None:
        self._broker, self._compaction = broker, compaction

    async def show(self, requested: PageRequest) -> Page:
        """Answers a question; without one (`ask`), shows its form."""
        name = recorded_name(self._broker, requested.topic)
        topic = await self._broker.any_topic(name, create=False)
        is_kafka = isinstance(topic, KafkaTopic)
        values: dict[str, Any] = {
            "topic": requested.topic,
            "is_kafka": is_kafka,
            "strategies": tuple(LISTED.values()),
            "asked": requested,
            "size_units": SIZE_UNITS,
            "time_units": TIME_UNITS_MS,
            "answers": None,
        }
        if requested.text("ask"):
            request = _cleanings(requested) if is_kafka else _forecasts(requested)
            request.topic = name
            answer = await self._compaction.what_if(request)
            values["answers"] = [_answer(each) for each in answer.topics]
        return Page("what_if.html", f"What if: {requested.topic}", values)


def _forecasts(requested: PageRequest) -> WhatIfRequest:
    """Raises Refusal."""
    request = WhatIfRequest()
    for name in requested.texts("strategy"):
        if name not in LISTED:
            raise Refusal(400, f"{name[:100]!r} is not a strategy of the list.")
        settings = {
            each.name: requested.text(f"{name}.{each.name}") for each in LISTED[name].settings
        }
        request.strategies.append(CompactionStrategy(name=name, settings=settings))
    size = requested.unit("size_unit", SIZE_UNITS)
    time_ms = requested.unit("time_unit", TIME_UNITS_MS)
    request.replays.extend(
        [ReplaySetting(threshold_bytes=each * size) for each in _numbers(requested, "threshold")]
        + [ReplaySetting(interval_ms=each * time_ms) for each in _numbers(requested, "every")]
    )
    _check_count(request.replays)
    return request


def _cleanings(requested: PageRequest) -> WhatIfRequest:
    """Combines the ratios and the lags of a question. Raises Refusal."""
    ratios = requested.text("ratio").replace(",", " ").split()
    time_ms = requested.unit("time_unit", TIME_UNITS_MS)
    lags = [str(each * time_ms) for each in _numbers(requested, "lag")]
    # Bounded before they are combined.
    _check_count(ratios)
    _check_count(lags)
    kinds = [
        [(name, each) for each in values]
        for name, values in ((RATIO_SETTING, ratios), (LAG_SETTING, lags))
        if values
    ]
    chosen = product(*kinds)
    request = WhatIfRequest(trials=[CleaningTrial(config=dict(each)) for each in chosen])
    _check_count(request.trials)
    return request


def _check_count(replays: Sequence[object]) -> None:
    if len(replays) > REPLAYS_MAX:
        raise Refusal(400, f"At most {REPLAYS_MAX} settings are compared at a time.")


def _numbers(requested: PageRequest, name: str) -> list[int]:
    """Returns whole numbers from a text with commas or spaces. Raises Refusal."""
    numbers = [whole_number(name, each) for each in requested.text(name).replace(",", " ").split()]
    if any(not 0 < each < 10**9 for each in numbers):
        raise Refusal(400, f"{name}: use whole numbers from 1 on, separated by commas.")
    return numbers


def _answer(result: TopicWhatIf) -> dict[str, Any]:
    replays: list[Replay | CleaningReplay] = [*result.replays, *result.cleanings]
    series = [
        (_label(each), [(at.publish_time_ms, at.bytes) for at in each.points]) for each in replays
    ]
    return {
        "topic": result.topic,
        "input": result.input,
        "forecasts": [(_strategy_label(each.strategy), each) for each in result.forecasts],
        "largest": max([result.input.bytes, *(each.bytes for each in result.forecasts)]),
        "plot": lines_plot(series),
        "replays": [_replay(each) for each in replays],
    }


def _replay(replay: Replay | CleaningReplay) -> dict[str, Any]:
    row: dict[str, Any] = {
        "label": _label(replay),
        "rewritten": replay.bytes_rewritten,
        "amplification": replay.write_amplification,
        "peak": replay.space_peak_bytes,
        "mean": replay.space_mean_bytes,
    }
    if isinstance(replay, CleaningReplay):
        return row | {"runs": replay.rounds, "why_none": replay.why_no_round}
    rewind = {"rewind": replay.rewind_mean_bytes}
    return row | rewind | {"runs": replay.runs, "why_none": replay.why_no_run}


def _label(replay: Replay | CleaningReplay) -> str:
    if isinstance(replay, CleaningReplay):
        config = sorted(replay.trial.config.items())
        return ", ".join(f"{name}={value}" for name, value in config) or "as it is"
    if replay.setting.WhichOneof("when") == "interval_ms":
        return f"every {duration(replay.setting.interval_ms)}"
    return f"threshold {format_size(replay.setting.threshold_bytes)}"


def _strategy_label(strategy: CompactionStrategy) -> str:
    settings = ",".join(f"{name}={value}" for name, value in sorted(strategy.settings.items()))
    return strategy.name + (f":{settings}" if settings else "")


@dataclass(frozen=True, slots=True)
class Line:
    """`number`: its colour, from 0."""

    name: str
    points: str
    number: int


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark of an axis. `at` in percent from the top, or from the left."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """`begin_ms` and `end_ms`: the times at its sides."""

    lines: Sequence[Line]
    sizes: Sequence[Tick]
    begin_ms: int
    end_ms: int


def lines_plot(series: Sequence[tuple[str, Sequence[tuple[int, int]]]]) -> Plot | None:
    """Draws series of (time in ms, bytes), in a square of 1000 by 1000 that a browser stretches.
    None: there is nothing to draw. Pure.

    >>> plot = lines_plot([("now", [(0, 10), (5, 20)])])
    >>> plot.lines[0].points
    '0,500 1000,500 1000,0'
    >>> [each.text for each in plot.sizes]
    ['20 B', '15 B', '10 B', '5 B', '0 B']

    A size holds until the next point, so lines have steps. Bound: LINES_MAX lines.
    """
    series = [each for each in series if each[1]][:LINES_MAX]
    if not series:
        return None
    times = [time for _, points in series for time, _ in points]
    begin, end = min(times), max(times)
    top = max(1, *(size for _, points in series for _, size in points))
    lines = [
        Line(name, _steps(points, begin, max(1, end - begin), top), number)
        for number, (name, points) in enumerate(series)
    ]
    return Plot(lines, _ticks(top), begin, end)


def _steps(points: Sequence[tuple[int, int]], begin: int, span: int, top: int) -> str:
    corners, before = list[str](), ""
    for time, size in points:
        x, y = round(_SIDE * (time - begin) / span), round(_SIDE * (1 - size / top))
        if before:
            corners.append(f"{x},{before}")
        corners.append(f"{x},{y}")
        before = str(y)
    corners.append(f"{_SIDE},{before}")
    # Equal neighbours draw nothing.
    return " ".join(each for at, each in enumerate(corners) if not at or each != corners[at - 1])


def _ticks(top: int) -> list[Tick]:
    """Returns at most six round sizes, from the top down to 0."""
    unit = 1024 ** max(0, (top.bit_length() - 1) // 10)
    step = next(
        size
        for power in range(4)
        for base in _STEPS
        if (size := base * 10**power * unit) * 5 >= top
    )
    sizes = range(step * (top // step), -1, -step)
    return [Tick(round(100 * (1 - size / top), 2), format_size(size)) for size in sizes]
