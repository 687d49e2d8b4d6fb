"""Replays over columns equal replays over a list of messages, run by run."""

from __future__ import annotations

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.compactor.job import scan_messages as scan_messages_module
from ledgerfold.compactor.job.plan import Cut, input_segments
from ledgerfold.compactor.job.plan_check import check_input
from ledgerfold.compactor.strategies.publishing_order import PUBLISHING_ORDER
from ledgerfold.compactor.strategies.registry import strategy_of
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.compactor.strategies.strategy import Facts
from ledgerfold.compactor.what_if import chunks as chunks_module
from ledgerfold.compactor.what_if import replay as replay_module
from ledgerfold.compactor.what_if.history import HistoryScan, history_of
from ledgerfold.compactor.what_if.lifetimes import Lives, lifetimes_of
from ledgerfold.compactor.what_if.replay import (
    History,
    interval_horizons,
    replay,
    sizes_by_lifetimes,
    sizes_by_publishing_order,
    sizes_run_by_run,
    threshold_horizons,
)
from ledgerfold.storage.errors import Corruption, InvalidRequest, StrategyFailed
from ledgerfold.strategies.catalogue import LISTED
from ledgerfold.strategies.ready_made import Numeric
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from tests.model.replay_model import Published, PublishedEntry, play
from tests.model.strategic_model import Said, strategic
from tests.model.strategy_model import Message
from tests.support.compaction import LOGS, LogBuilder, damage
from tests.support.property_tests import examples
from tests.support.strategic_classes import Raises
from tests.support.strategic_log import SETTINGS, StrategicLog
from tests.support.work import calls_of

STRATEGIC = [each.name for each in LISTED.values() if each.is_strategic]

MESSAGES = st.builds(
    Published, st.sampled_from(["a", "b", "c", "", None]), st.booleans(), st.integers(1, 50)
)
ENTRIES = st.lists(
    st.builds(PublishedEntry, st.integers(0, 100), st.lists(MESSAGES, min_size=1, max_size=4)),
    min_size=1,
    max_size=15,
)


def columns_of(entries: list[PublishedEntry]) -> History:
    messages = [message for entry in entries for message in entry.messages]
    keys = sorted({each.key for each in messages if each.key is not None})
    codes = {key: code for code, key in enumerate(keys)}
    return History(
        np.array([entry.time_ms for entry in entries]),
        np.array([entry.size_bytes for entry in entries]),
        np.array([len(entry.messages) for entry in entries]),
        np.array([-1 if each.key is None else codes[each.key] for each in messages]),
        np.array([each.size_bytes for each in messages]),
        Facts(np.arange(len(messages)), np.array([each.is_value for each in messages])),
        np.arange(len(messages)),
    )


@given(ENTRIES, st.booleans(), st.one_of(st.none(), st.integers(0, 120)), st.integers(1, 60))
@settings(max_examples=examples(75))
def test_a_replay_equals_the_model(
    entries: list[PublishedEntry], retain: bool, threshold: int | None, interval: int
) -> None:
    """Runs, bytes and spaces, by either setting; at once and run by run."""
    history = columns_of(entries)
    if threshold is None:
        horizons = interval_horizons(history.clock_ms, interval)
    else:
        horizons = threshold_horizons(history.entry_bytes, threshold)
    expected = play(entries, retain, threshold_bytes=threshold, interval_ms=interval)
    at_once = sizes_by_publishing_order(history, retain)[np.array(horizons, np.int64)]
    one_by_one = sizes_run_by_run(history, horizons, lambda _: PUBLISHING_ORDER, retain)
    assert at_once.tolist() == one_by_one.tolist()
    found = replay(history, horizons, at_once)
    assert (found.runs, found.bytes_read, found.bytes_rewritten) == expected[:3]
    assert found.space_peak_bytes == expected.space_peak
    assert found.space_mean_bytes == pytest.approx(expected.space_mean)
    assert found.rewind_mean_bytes == pytest.approx(expected.rewind_mean)
    published = int(history.entry_bytes.sum())
    assert found.write_amplification == (expected.bytes_rewritten / published if published else 0)
    assert len(found.points) == len(entries)


def test_the_threshold_must_be_exceeded() -> None:
    """More than it, as in Pulsar."""
    sizes = np.array([10, 10, 10, 1])
    assert threshold_horizons(sizes, 20) == [2]
    assert threshold_horizons(sizes, 19) == [1]
    assert threshold_horizons(sizes, 0) == [0, 1, 2, 3]
    assert threshold_horizons(sizes, 31) == []


def test_replaying_many_messages_makes_few_calls_for_each() -> None:
    """With a run after each thousandth entry, and with one after each."""
    generator = np.random.default_rng(1)
    count = 100_100
    history = History(
        np.arange(count),
        np.full(count, 100),
        np.ones(count, np.int64),
        generator.integers(0, 50_000, count),
        np.full(count, 100),
        Facts(np.arange(count), np.ones(count, np.bool_)),
        np.arange(count),
    )

    def replay_runs() -> None:
        sizes = sizes_by_publishing_order(history, retain_null_key=False)
        for threshold in (0, 100_000):
            horizons = threshold_horizons(history.entry_bytes, threshold)
            found = replay(history, horizons, sizes[np.array(horizons)])
            assert found.runs == (count if threshold == 0 else count // 1001)
            assert len(found.points) == replay_module.POINTS_MAX

    assert calls_of(replay_runs) < 10 * count


def test_too_many_runs_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies that decide each message are limited; the error says what to do."""
    monkeypatch.setattr(replay_module, "STEPS_MAX", 5)
    history = columns_of([PublishedEntry(0, [Published("a", True, 1)])] * 9)
    with pytest.raises(InvalidRequest, match="larger"):
        sizes_run_by_run(history, list(range(9)), lambda _: PUBLISHING_ORDER, False)


def test_a_topic_without_messages() -> None:
    """No figures, and no error."""
    nothing = np.empty(0, np.int64)
    history = history_of([])
    assert interval_horizons(history.clock_ms, 5) == threshold_horizons(nothing, 0) == []
    assert replay(history, [], nothing).runs == 0


def by_horizon(log: StrategicLog, history: History, name: str) -> list[int]:
    """Returns the bytes that a run at each entry keeps of its predecessor's result and that
    entry.
    """
    settings, said = SETTINGS.get(name, {}), log.said()
    strategy = strategy_of(CompactionPlan(strategy=name, strategy_settings=settings))
    assert isinstance(strategy, MessageStrategy)
    left: list[Said] = []
    sizes = []
    for start, end in pairwise([0, *history.ends.tolist()]):
        left = strategic(left + said[start:end], strategy.create()).left
        kept = {message.message_id for message in left}
        left = [message for message in said if message.message_id in kept]
        shares = zip(said, history.shares.tolist(), strict=True)
        sizes.append(sum(share for message, share in shares if message.message_id in kept))
    return sizes


@given(LOGS, st.sampled_from(STRATEGIC), st.integers(1, 3), st.integers(1, 5))
@settings(max_examples=examples(50), deadline=None)
def test_message_strategies_are_called_once_for_all_horizons(
    shape: list[list[list[Message]]], name: str, buckets: int, chunk_rows: int
) -> None:
    """The result equals runs at each entry, one after another."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_messages_module, "CHUNK_ROWS_MAX", chunk_rows)
        log = StrategicLog(Path(folder))
        for ledger_id, batches in enumerate(shape, 1):
            log.add_segment(ledger_id, batches)
        plan = log.strategic_plan(100, name)
        segments = input_segments(plan, check_input)
        strategy = strategy_of(plan)
        assert isinstance(strategy, MessageStrategy)
        history = history_of(list(HistoryScan(reads_event_times=False)([segments])))
        lives = Lives(Cut(tuple((each,) for each in segments), buckets, ()), strategy)
        rows = [row for run in lives.cut.scans for row in lives.scan([run])]
        found = [
            content
            for bucket in range(buckets)
            for content in lives.ask([row for row in reversed(rows) if row[0] == bucket])
        ]
        sizes = sizes_by_lifetimes(history, lifetimes_of(found))
        assert sizes.tolist() == by_horizon(log, history, name)


def test_damage_ends_a_replay_with_its_error(tmp_path: Path) -> None:
    """A task's error arrives at the driver; that of a class, too."""
    log = StrategicLog(tmp_path)
    log.add_segment(1, [[Message(b"a", b"two")]])
    segments = input_segments(log.plan(100), check_input)
    cut = Cut((segments,), 1, ())
    raises = Lives(cut, MessageStrategy("raises", 1, Raises))
    with pytest.raises(StrategyFailed, match="no such price"):
        lifetimes_of(raises.ask(raises.scan([segments])))
    damage(log.ledgers_dir / log.segments[0].path, log.segments[0].size_bytes // 2)
    lives = Lives(cut, MessageStrategy("numeric", 1, Numeric))
    with pytest.raises(Corruption):
        lifetimes_of(lives.ask(lives.scan([segments])))


def test_a_scanned_history_equals_the_published_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From several segments and chunks: keys are the same in all, shares add up to the entries."""
    monkeypatch.setattr(chunks_module, "CHUNK_ROWS_MAX", 3)
    log = LogBuilder(tmp_path)
    batch = [Message(b"a", b"1", 7), Message(None, b"22", 8), Message(b"b", b"")]
    log.add_segment(1, [batch, [Message(b"", b"333"), Message(b"a", b"4")]])
    log.add_segment(2, [[Message(b"b", b"1")], batch])
    segments = input_segments(log.plan(100), check_input)
    scan = HistoryScan(reads_event_times=True)
    history = history_of([*scan([segments[:1]]), *scan([segments[1:]])])
    keys = [message.key for message in log.messages]
    codes = history.codes.tolist()
    assert [code == -1 for code in codes] == [key is None for key in keys]
    assert len(set(zip(keys, codes, strict=True))) == len(set(keys)) == len(set(codes))
    assert history.facts.is_value.tolist() == [bool(each.value) for each in log.messages]
    assert history.facts.event_times is not None
    assert history.facts.event_times.tolist() == [7, 8, 0, 0, 0, 0, 7, 8, 0]
    assert history.facts.positions.tolist() == list(range(len(keys)))
    assert history.entry_bytes.sum() == sum(each.size_bytes for each in log.segments)
    shares = np.add.reduceat(history.shares, history.ends - history.counts)
    assert shares.tolist() == history.entry_bytes.tolist()
    assert set(history.times_ms.tolist()) == {1000}
