"""Conversions between replays and the wire: from settings to figures."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from ledgerfold.compactor.strategies.publishing_order import PUBLISHING_ORDER
from ledgerfold.compactor.what_if.forecasts import column_strategy
from ledgerfold.compactor.what_if.lifetimes import Lifetimes
from ledgerfold.compactor.what_if.replay import (
    History,
    interval_horizons,
    replay,
    sizes_by_lifetimes,
    sizes_by_publishing_order,
    sizes_run_by_run,
    threshold_horizons,
)
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import Replay, ReplaySetting


def replays_of(
    history: History,
    requested: CompactionStrategy,
    settings: Iterable[ReplaySetting],
    retain_null_key: bool,
    check: Callable[[], None],
    lifetimes: Lifetimes | None = None,
) -> list[Replay]:
    """Runs replays. `lifetimes`: under a message strategy. `check` is called repeatedly.

    Raises InvalidRequest, and what `check` raises.
    """
    everywhere = None
    if lifetimes is not None:
        everywhere = sizes_by_lifetimes(history, lifetimes)
    elif requested.name == PUBLISHING_ORDER.name:
        everywhere = sizes_by_publishing_order(history, retain_null_key)

    strategy_at = partial(column_strategy, requested)
    replays = []
    for setting in settings:
        check()
        horizons = _horizons(history, setting)
        if everywhere is not None:
            sizes = everywhere[np.array(horizons, np.int64)]
        else:
            sizes = sizes_run_by_run(history, horizons, strategy_at, retain_null_key, check)
        answer = replay(history, horizons, sizes)
        answer.setting.CopyFrom(setting)
        if not horizons:
            answer.why_no_run = _why_no_run(history, setting)
        replays.append(answer)
    return replays


def _horizons(history: History, setting: ReplaySetting) -> list[int]:
    if setting.WhichOneof("when") == "threshold_bytes":
        if setting.threshold_bytes < 0:
            raise InvalidRequest(
                f"The threshold is {setting.threshold_bytes} bytes: it must be 0 or more."
            )
        return threshold_horizons(history.entry_bytes, setting.threshold_bytes)
    if setting.interval_ms <= 0:
        raise InvalidRequest(f"The interval is {setting.interval_ms} ms: it must be 1 or more.")
    return interval_horizons(history.clock_ms, setting.interval_ms)


def _why_no_run(history: History, setting: ReplaySetting) -> str:
    """Explains why a replay has no run.

    >>> from ledgerfold.compactor.strategies.strategy import Facts
    >>> one = np.array([1], np.int64)
    >>> history = History(one, one * 700, one, one, one, Facts(one, one > 0), one)
    >>> _why_no_run(history, ReplaySetting(threshold_bytes=1000))
    'there are 700 bytes of raw data in all; a run starts when more than 1000 are uncompacted'
    """
    if not len(history.entry_bytes):
        return "there are no raw data: nothing was published, or all of it was trimmed"
    if setting.WhichOneof("when") == "threshold_bytes":
        return (
            f"there are {int(history.entry_bytes.sum())} bytes of raw data in all; a run starts "
            f"when more than {setting.threshold_bytes} are uncompacted"
        )
    lasted_ms = int(history.clock_ms[-1] - history.clock_ms[0])
    return (
        f"all was published within {lasted_ms} ms; a run starts at the end of each "
        f"{setting.interval_ms} ms, if something is published after it"
    )
