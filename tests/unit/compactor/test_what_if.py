"""Compares analyses with real runs on the same data."""

from __future__ import annotations

import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.compactor.job import scan as run_scan_module
from ledgerfold.compactor.job import scan_messages as scan_messages_module
from ledgerfold.compactor.job.plan import TaskPlan, cut, input_segments
from ledgerfold.compactor.job.plan_check import check_input
from ledgerfold.compactor.positions import sums_of
from ledgerfold.compactor.strategies.event_time import EVENT_TIME
from ledgerfold.compactor.strategies.publishing_order import PUBLISHING_ORDER
from ledgerfold.compactor.strategies.registry import AnyStrategy
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.compactor.strategies.strategy import Codes, Facts, Folded, FragmentColumns, Strategy
from ledgerfold.compactor.what_if import chunks as chunks_module
from ledgerfold.compactor.what_if.chunks import Section
from ledgerfold.compactor.what_if.forecasts import differences
from ledgerfold.compactor.what_if.job import Figures
from ledgerfold.compactor.what_if.rows import StrategyCounts
from ledgerfold.storage.entry import Compression
from ledgerfold.storage.errors import Corruption, MissingFile, StrategyFailed
from ledgerfold.strategies.ready_made import HeaderVersion, KeepFirst, Numeric
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from tests.model.strategy_model import Message
from tests.support import strategic_classes as classes
from tests.support.compaction import COMPRESSIONS, LOGS, LogBuilder, Stored, damage, read_messages
from tests.support.local_analysis import analyze
from tests.support.local_run import run_tasks
from tests.support.property_tests import examples
from tests.support.strategies import FIRST


def _begin_values(codes: Codes, facts: Facts, key_count: int) -> Folded:
    return Folded((facts.positions[facts.is_value],), 0, codes[facts.is_value].astype(np.int64))


def _join_values(codes: Codes, columns: FragmentColumns, key_count: int) -> Folded:
    assert len(np.unique(codes)) == key_count
    return Folded(columns, 0, codes.astype(np.int64))


# Several fragments of a key, and none of a key that has no value.
VALUES = Strategy("values", 1, _begin_values, _join_values, lambda columns: columns[0])
STRATEGIES: tuple[AnyStrategy, ...] = (
    PUBLISHING_ORDER,
    MessageStrategy("numeric", 1, Numeric),
    FIRST,
    VALUES,
    MessageStrategy("header-version", 1, HeaderVersion, {"property": "n"}),
    EVENT_TIME,
    MessageStrategy("keep-first", 1, KeepFirst),
)
LogShape = list[list[list[Message]]]


def _log(
    folder: Path, shape: LogShape, compression: int = Compression.NONE, *, is_mixed: bool = False
) -> LogBuilder:
    """Returns a log whose event times fall as often as they rise."""
    log = LogBuilder(folder, is_mixed=is_mixed)
    for ledger_id, batches in enumerate(shape, 1):
        timed = [
            [message._replace(event_time_ms=len(message.value) * 7 % 5) for message in batch]
            for batch in batches
        ]
        log.add_segment(ledger_id, timed, compression)
    return log


def _check(
    plan: CompactionPlan, buckets: int, is_spread: bool, chunk_rows: int = 2_000_000
) -> None:
    """Compares runs under each strategy with the forecast.

    Both are cut alike: the count of `event-time` depends on the cuts.
    """
    with pytest.MonkeyPatch.context() as patch:
        for module in (chunks_module, run_scan_module, scan_messages_module):
            patch.setattr(module, "CHUNK_ROWS_MAX", chunk_rows)
        figures = analyze(plan, STRATEGIES, buckets=buckets, is_spread=is_spread)
        _check_runs(plan, buckets, is_spread, figures)


def _check_runs(plan: CompactionPlan, buckets: int, is_spread: bool, figures: Figures) -> None:
    segments = input_segments(plan)
    runs = tuple((each,) for each in segments) if is_spread else (segments,)
    for number, strategy in enumerate(STRATEGIES):
        tasks: TaskPlan = replace(cut(plan, 2), strategy=strategy)
        tasks = replace(tasks, scans=runs, buckets=buckets, copies=runs)
        tasks = replace(tasks, output=replace(tasks.output, ledger_id=200 + number))
        records, counts = run_tasks(tasks)
        sized, strategy_counts = figures.sized[number], figures.strategy_counts[number]
        assert sized.messages == sum(record.messages for record in records)
        assert sized.entries == sum(record.entries for record in records)
        assert strategy_counts.keys == counts.keys
        # Counted exactly within a chunk only, and chunks differ (event_time.py).
        if strategy is not EVENT_TIME:
            assert strategy_counts.removed_events == counts.removed_events
        assert figures.counts == counts._replace(keys=0, removed_events=0)
        size_bytes = sum(record.size_bytes for record in records)
        # Whole entries are exact; the error is at most the size of the others.
        partial = sum(record.size_bytes for record in plan.segments)
        whole = sized.bytes - sized.bytes_estimated
        assert whole <= size_bytes
        if not sized.bytes_estimated:
            assert sized.bytes == size_bytes
        assert abs(sized.bytes - size_bytes) <= partial + 4 * counts.messages_in


@given(
    LOGS,
    COMPRESSIONS,
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 12),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=examples(30))
def test_runs_agree_with_their_forecast(
    shape: LogShape,
    compression: Compression,
    retain: bool,
    buckets: int,
    chunk_rows: int,
    is_spread: bool,
    is_mixed: bool,
) -> None:
    """Survivors, entries, keys, tombstones, null keys and events exactly; bytes as stated."""
    with tempfile.TemporaryDirectory() as folder:
        plan = _log(Path(folder), shape, compression, is_mixed=is_mixed).plan(100, retain)
        _check(plan, buckets, is_spread, chunk_rows)


@given(LOGS, LOGS, st.booleans())
@settings(max_examples=examples(20))
def test_a_run_on_a_compacted_ledger_agrees_with_its_forecast(
    first: LogShape, second: LogShape, retain: bool
) -> None:
    """The input of the next run is the last result and new entries."""
    with tempfile.TemporaryDirectory() as folder:
        log = _log(Path(folder), first)
        plan = log.plan(100, retain)
        records, _ = run_tasks(plan)
        manifest = Manifest(ledger_id=100, horizon=plan.horizon, segments=records)
        for ledger_id, batches in enumerate(second, len(first) + 1):
            log.add_segment(ledger_id, batches)
        plan = log.plan(101, retain, manifest)
        _check(plan, buckets=2, is_spread=True)


@given(LOGS, st.integers(1, 3), st.integers(1, 12), st.integers(1, 4))
@settings(max_examples=examples(20))
def test_differing_keys_are_listed(
    shape: LogShape, buckets: int, chunk_rows: int, differences_max: int
) -> None:
    """All are counted, the first are listed, with their messages under each strategy."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks_module, "CHUNK_ROWS_MAX", chunk_rows)
        log = _log(Path(folder), shape)
        plan = log.plan(100)
        figures = analyze(
            plan, STRATEGIES, buckets=buckets, is_spread=True, differences_max=differences_max
        )
        left = [_left(log, plan, strategy) for strategy in STRATEGIES]
        keys = {message.key for message in log.messages if message.key is not None}
        differing = sorted(
            key for key in keys if len({tuple(each.get(key, ())) for each in left}) > 1
        )
        found = differences(figures.differing, input_segments(plan, check_input), lambda: None)
        assert found.keys == len(differing)
        assert [each.key for each in found.listed] == differing[:differences_max]
        for each in found.listed:
            for kept, stays in zip(each.kept, [of.get(each.key, []) for of in left], strict=True):
                assert kept.count == len(stays)
                if stays:
                    last = kept.last
                    shown = (last.ledger_id, last.entry_id, last.batch_index)
                    assert (shown, kept.value) == (stays[-1][:3], stays[-1].value[:100])


@given(LOGS, st.booleans(), st.integers(1, 3), st.booleans())
@settings(max_examples=examples(20))
def test_strategies_run_by_other_jobs_are_compared_too(
    shape: LogShape, retain: bool, buckets: int, is_spread: bool
) -> None:
    """A user-defined strategy is run alone, and its keys differ where its results do."""
    with tempfile.TemporaryDirectory() as folder:
        plan = _log(Path(folder), shape).plan(100, retain)
        alike: dict[str, Any] = {"buckets": buckets, "is_spread": is_spread}
        compared = (PUBLISHING_ORDER, VALUES, STRATEGIES[1])
        together = analyze(plan, compared, differences_max=5, **alike)
        alone = [
            analyze(plan, [each], returns_survivors=True, **alike).survivors for each in compared
        ]
        for number in range(len(compared) + 1):
            figures = analyze(
                plan, compared[:number], differences_max=5, given=alone[number:], **alike
            )
            assert figures.differing == together.differing


def _left(
    log: LogBuilder, plan: CompactionPlan, strategy: AnyStrategy
) -> dict[bytes, list[Stored]]:
    tasks = replace(cut(plan, 2), strategy=strategy)
    number = 300 + STRATEGIES.index(strategy)
    tasks = replace(tasks, output=replace(tasks.output, ledger_id=number))
    left: dict[bytes, list[Stored]] = {}
    for message in read_messages(log.ledgers_dir, run_tasks(tasks)[0]):
        if message.key is not None:
            left.setdefault(message.key, []).append(message)
    return left


@given(
    st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 900)), min_size=1), min_size=1)
)
def test_shares_of_the_messages_add_up_to_the_entry(batches: list[list[tuple[int, int]]]) -> None:
    """Their sum is the size of each entry's sections, with any content."""
    counts = np.array([len(batch) for batch in batches])
    sizes = np.array([each for batch in batches for each in batch])
    bounds, entries = sums_of(counts), np.repeat(np.arange(len(counts)), counts)
    for totals, column, each in ((counts * 41 + 7, 0, 9), (counts * 13, 1, 1)):
        section = Section(totals, sums_of(sizes[:, column]), each)
        shares = section.shares(np.arange(len(sizes)), bounds, entries)
        assert (shares >= 0).all()
        assert np.add.reduceat(shares, bounds[:-1]).tolist() == totals.tolist()
        some = np.arange(0, len(sizes), 3)
        assert section.shares(some, bounds, entries[some]).tolist() == shares[some].tolist()


def test_the_estimated_bytes_of_rebuilt_batches_are_close(tmp_path: Path) -> None:
    """Incompressible values, half of each batch removed: within 3% of what a run writes."""
    log = LogBuilder(tmp_path)
    generator = random.Random(1)
    for ledger_id in range(1, 5):
        batches = [
            [
                Message(b"key-%d" % generator.randrange(3_000), generator.randbytes(200))
                for _ in range(100)
            ]
            for _ in range(20)
        ]
        log.add_segment(ledger_id, batches, Compression.ZSTD)
    plan = log.plan(100)
    sized = analyze(plan, [PUBLISHING_ORDER]).sized[0]
    written = sum(record.size_bytes for record in run_tasks(plan)[0])
    assert sized.bytes_estimated > sized.bytes // 2
    assert sized.bytes == pytest.approx(written, rel=0.03)


def test_damage_ends_an_analysis(tmp_path: Path) -> None:
    """With the file and the place."""
    log = _log(tmp_path, [[[Message(b"k", b"1")]], [[Message(b"k", b"2")]]])
    damage(log.ledgers_dir / log.segments[1].path, 100)
    with pytest.raises(Corruption, match="is damaged"):
        analyze(log.plan(100), STRATEGIES, buckets=2, is_spread=True)


@pytest.mark.parametrize("is_spread", [False, True])
def test_an_exception_of_a_strategy_ends_an_analysis(tmp_path: Path, is_spread: bool) -> None:
    """With the strategy and the message."""
    log = _log(tmp_path, [[[Message(b"k", b"1")]], [[Message(b"k", b"two")]]])
    strategies = (PUBLISHING_ORDER, MessageStrategy("raises", 1, classes.Raises))
    with pytest.raises(StrategyFailed, match="no such price, at message 2:0:-1:0"):
        analyze(log.plan(100), strategies, buckets=2, is_spread=is_spread)


def test_an_analysis_of_message_strategies_only(tmp_path: Path) -> None:
    """Keyless messages are removed, even if the topic retains them; two strategies that read
    different parts both get theirs.
    """
    log = _log(tmp_path, [[[Message(b"k", b"2"), Message(None, b"x"), Message(b"k", b"1")]]])
    strategies = [
        MessageStrategy("numeric", 1, Numeric),
        MessageStrategy("header-version", 1, HeaderVersion, {"property": "n"}),
    ]
    figures = analyze(log.plan(100, retain_null_key=True), strategies, differences_max=5)
    assert figures.strategy_counts == [StrategyCounts(0, 1, 2), StrategyCounts(1, 1, 3)]
    assert [each.messages for each in figures.sized] == [1, 1]
    assert figures.differing.listed == ((b"k", ((1, 0), (1, 2))),)


def test_an_open_segment_is_read_up_to_its_recorded_length(tmp_path: Path) -> None:
    """The open one of a topic that is published to: neither sealed nor touched."""
    log = _log(tmp_path, [[[Message(b"k", b"1")], [Message(b"l", b"2")]]])
    whole = analyze(log.plan(100), [PUBLISHING_ORDER])
    path = log.ledgers_dir / log.segments[0].path
    path.write_bytes(path.read_bytes() + b"what is being written")
    with pytest.raises(MissingFile):
        analyze(log.plan(100), [PUBLISHING_ORDER])
    log.segments[0].sealed = False
    assert analyze(log.plan(100), [PUBLISHING_ORDER]) == whole
