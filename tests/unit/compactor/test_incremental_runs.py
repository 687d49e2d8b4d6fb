"""Runs that keep the unchanged segments of the previous ledger, against the model."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.compactor import key_hash
from ledgerfold.compactor.job import key_index
from ledgerfold.compactor.job import plan as plan_module
from ledgerfold.compactor.job.plan import TaskPlan, cut, to_merge
from ledgerfold.compactor.key_hash import LONG_BYTES, hashes_of
from ledgerfold.compactor.strategies.registry import strategy_of
from ledgerfold.storage.entry import EARLIEST, Compression
from ledgerfold.storage.errors import Corruption, MissingFile
from ledgerfold.storage.files import REAL
from ledgerfold.storage.names import key_index_path
from ledgerfold.storage.segment_check import Bounds, check_segment
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from tests.model.strategy_model import Message
from tests.support.compaction import (
    LOGS,
    TIMED_LOGS,
    LogBuilder,
    read_messages,
    read_stored,
    reader_of,
)
from tests.support.local_analysis import analyze
from tests.support.local_run import run_tasks
from tests.support.property_tests import examples

LogShape = list[list[list[Message]]]
FORETOLD_NAMES = ("publishing-order", "event-time", "numeric")
FORETOLD = [strategy_of(CompactionPlan(strategy=each)) for each in FORETOLD_NAMES]
STRATEGIES = st.sampled_from(["publishing-order", "event-time"])


def _indexed(plan: CompactionPlan) -> TaskPlan:
    """The tasks of a plan, whose output gets key indexes although it is small."""
    tasks = cut(plan, 2)
    return replace(tasks, output=replace(tasks.output, is_indexed=True))


def _plan(log: LogBuilder, ledger_id: int, strategy: str, previous: Manifest | None = None, **more):  # type: ignore[no-untyped-def]
    plan = log.plan(ledger_id, True, previous, **more)
    plan.strategy, plan.keeps_segments = strategy, previous is not None
    return plan


@dataclass(frozen=True)
class Chain:
    """Runs that look up old messages, and runs that read everything, on the same log."""

    shapes: list[LogShape]
    strategy: str
    buckets: int
    segment_bytes: int
    collides: bool
    garbage_max: float

    def run(self, log: LogBuilder, patch: pytest.MonkeyPatch) -> tuple[Manifest, Manifest]:
        """Makes the same steps for both, each on its previous ledger. Returns the last of each."""
        patch.setattr(plan_module, "SCANNED_SHARE_MAX", 1.0)
        patch.setattr(plan_module, "MERGED_COUNT", 3)
        patch.setattr(key_index, "BLOCK_VALUES", 4)
        patch.setattr(key_index, "READ_BLOCKS", 2)
        if self.collides:
            patch.setattr(key_hash, "_mixed", lambda values: values * np.uint64(0))
        pair: tuple[Manifest, Manifest] | None = None
        for number, shape in enumerate(self.shapes):
            for ledger_id, batches in enumerate(shape, 1 + 20 * number):
                log.add_segment(ledger_id, batches, Compression.NONE)
            pair = self._step(log, number, pair)
        assert pair is not None
        return pair

    def _step(
        self, log: LogBuilder, number: int, before: tuple[Manifest, Manifest] | None
    ) -> tuple[Manifest, Manifest]:
        kept, whole = before or (None, None)
        sizes = {"segment_bytes_max": self.segment_bytes, "segment_garbage_max": self.garbage_max}
        plan = _plan(log, 1000 + number, self.strategy, kept, **sizes)
        tasks = _indexed(plan)
        assert bool(tasks.indexed) == bool(kept and kept.segments)
        records, counts = run_tasks(replace(tasks, buckets=self.buckets))
        records.sort(key=lambda each: (each.first.ledger_id, each.first.entry_id))
        assert all(each.dead.bytes <= self.garbage_max * each.size_bytes for each in records)
        reference = _plan(log, 2000 + number, self.strategy, whole, **sizes)
        reference.keeps_segments = False
        expected, counted = run_tasks(reference)
        assert read_stored(log.ledgers_dir, records) == read_stored(log.ledgers_dir, expected)
        if self.strategy == "publishing-order":
            same = [each._replace(bytes_in=0, entries_in=0) for each in (counts, counted)]
            assert same[0] == same[1]
        found = (Manifest(segments=each, horizon=plan.horizon) for each in (records, expected))
        return next(found), next(found)


CHAINS = st.builds(
    Chain,
    st.lists(st.one_of(LOGS, TIMED_LOGS), min_size=2, max_size=5),
    STRATEGIES,
    st.integers(1, 3),
    st.sampled_from([400, 2_000, 1 << 20]),
    st.booleans(),
    st.sampled_from([0, 0.1, 0.5, 0.9]),
)


@given(CHAINS, st.booleans())
@settings(max_examples=examples(50))
def test_a_chain_of_incremental_runs_equals_complete_runs(chain: Chain, is_mixed: bool) -> None:
    """Messages, ids and counts equal those of runs that read everything, also if all hashes collide
    and any part of a segment may be dead.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        chain.run(LogBuilder(Path(folder), is_mixed=is_mixed), patch)


@given(CHAINS, st.booleans())
@settings(max_examples=examples(15))
def test_incremental_and_complete_ledgers_read_the_same(chain: Chain, is_mixed: bool) -> None:
    """Runs of other strategies, forecasts, and questions about the ends of the view."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        log = LogBuilder(Path(folder), is_mixed=is_mixed)
        _compare_readers(log, *chain.run(log, patch))


def _compare_readers(log: LogBuilder, kept: Manifest, whole: Manifest) -> None:
    """Compares runs that read all of two ledgers, and a reader's single lookups."""
    for ledger_id, strategy in enumerate(["keep-first", "numeric"], 3000):
        found = [
            run_tasks(_plan(log, ledger_id + 1000 * at, strategy, each))
            for at, each in enumerate((kept, whole))
        ]
        read = [read_stored(log.ledgers_dir, records) for records, _ in found]
        assert read[0] == read[1]
        same = [counts._replace(bytes_in=0) for _, counts in found]
        assert same[0] == same[1]
    plans = [_plan(log, 5000, "publishing-order", each) for each in (kept, whole)]
    told = [analyze(plan, FORETOLD, is_spread=True, buckets=2) for plan in plans]
    assert told[0].counts._replace(bytes_in=0) == told[1].counts._replace(bytes_in=0)
    assert told[0].strategy_counts == told[1].strategy_counts
    for ours, theirs in zip(*(each.sized for each in told), strict=True):
        assert (ours.messages, ours.entries) == (theirs.messages, theirs.entries)
    readers = [reader_of(log.ledgers_dir, each.segments) for each in (kept, whole)]
    assert readers[0].first == readers[1].first
    assert readers[0].last == readers[1].last
    assert (readers[0].entries, readers[0].messages) == (readers[1].entries, readers[1].messages)
    for time_ms in range(8):
        found_at = [each.position_at_time(time_ms) for each in readers]
        assert found_at[0] == found_at[1]


def _two_runs(folder: Path, patch: pytest.MonkeyPatch) -> tuple[LogBuilder, CompactionPlan]:
    """A compacted ledger of a segment each for keys a to d; then another message with key b."""
    patch.setattr(plan_module, "SCANNED_SHARE_MAX", 1.0)
    log = LogBuilder(folder)
    log.add_segment(1, [[Message(key, b"1" * 100)] for key in (b"a", b"b", b"c", b"d")])
    plan = _plan(log, 100, "publishing-order", segment_bytes_max=200)
    records, _ = run_tasks(_indexed(plan))
    assert len(records) == 4
    log.add_segment(2, [[Message(b"b", b"2")]])
    previous = Manifest(segments=records, horizon=plan.horizon)
    return log, _plan(log, 101, "publishing-order", previous, segment_bytes_max=200)


def _inode(log: LogBuilder, path: str) -> int:
    return (log.ledgers_dir / path).stat().st_ino


def test_unchanged_segments_are_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the segment that loses a message is written again, and the new one."""
    log, plan = _two_runs(tmp_path, monkeypatch)
    records, _ = run_tasks(cut(plan, 2))
    records.sort(key=lambda each: (each.first.ledger_id, each.first.entry_id))
    before = [each for each in plan.segments if each.path.startswith("100/")]
    shared = {_inode(log, each.path) for each in before} & {
        _inode(log, each.path) for each in records
    }
    assert shared == {_inode(log, before[at].path) for at in (0, 2, 3)}
    assert [each.HasField("key_index") for each in records] == [True] * 4
    assert read_messages(log.ledgers_dir, records) == log.expected(True)


@pytest.mark.parametrize("at", range(0, 200, 7))
def test_a_damaged_key_index_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """A flipped bit ends the lookup, or is in a part that it did not read."""
    log, plan = _two_runs(tmp_path, monkeypatch)
    path = log.ledgers_dir / key_index_path(plan.segments[1].path)
    stored = bytearray(path.read_bytes())
    stored[at % len(stored)] ^= 4
    path.write_bytes(stored)
    with pytest.raises(Corruption, match=r"\.keys"):
        run_tasks(cut(plan, 2))


@pytest.mark.parametrize("change", ["delete", "grow", "truncate", "folder"])
@pytest.mark.parametrize("has_news", [False, True])
def test_an_unusable_key_index_is_reported_or_omitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, has_news: bool
) -> None:
    """A lookup raises an error that makes the run read everything; a link omits the index."""
    log, plan = _two_runs(tmp_path, monkeypatch)
    path = log.ledgers_dir / key_index_path(plan.segments[2].path)
    stored = path.read_bytes()
    path.unlink()
    match change:
        case "grow":
            path.write_bytes(stored + b"more")
        case "truncate":
            path.write_bytes(stored[:-1])
        case "folder":
            path.mkdir()
    if has_news:
        with pytest.raises(MissingFile):
            run_tasks(cut(plan, 2))
        return
    del plan.segments[-1]
    records, _ = run_tasks(cut(plan, 2))
    records.sort(key=lambda each: (each.first.ledger_id, each.first.entry_id))
    assert [each.HasField("key_index") for each in records] == [True, True, False, True]


def test_a_missing_segment_to_keep_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one that would be read."""
    log, plan = _two_runs(tmp_path, monkeypatch)
    (log.ledgers_dir / plan.segments[2].path).unlink()
    with pytest.raises(MissingFile, match=plan.segments[2].path):
        run_tasks(cut(plan, 2))


def test_verify_finds_an_indexed_segment_intact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And keeps its index in the record. (No repair test was large enough to have an index.)"""
    log, plan = _two_runs(tmp_path, monkeypatch)
    segment = plan.segments[1]
    found = check_segment(log.ledgers_dir / segment.path, segment, Bounds(EARLIEST), REAL)
    assert not found.damages
    assert [each.record for each in found.extents] == [segment]


def test_a_policy_that_may_drop_more_causes_a_complete_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the broker's word, for other strategies and above the share, nothing is looked up."""
    _, plan = _two_runs(tmp_path, monkeypatch)
    assert cut(plan, 2).indexed
    plan.keeps_segments = False
    assert not cut(plan, 2).indexed
    plan.keeps_segments, plan.strategy = True, "keep-first"
    assert not cut(plan, 2).indexed
    plan.strategy = "publishing-order"
    monkeypatch.setattr(plan_module, "SCANNED_SHARE_MAX", 0.01)
    assert not cut(plan, 2).indexed


def test_a_segment_partly_hidden_by_retention_is_scanned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its hidden messages take no part."""
    _, plan = _two_runs(tmp_path, monkeypatch)
    plan.retention_floor.ledger_id, plan.retention_floor.entry_id = 1, 2
    assert [each.record.first.entry_id for each in cut(plan, 2).indexed] == [2, 3]


@given(st.lists(st.binary(max_size=2 * LONG_BYTES), min_size=1))
def test_equal_keys_have_equal_hashes_at_any_position(keys: list[bytes]) -> None:
    """A hash depends on the key alone, not on its neighbours."""
    alone = [int(hashes_of(pa.array([key], pa.binary()))[0]) for key in keys]
    assert hashes_of(pa.array(keys, pa.binary())).tolist() == alone


def test_hashes_do_not_change() -> None:
    """Stored indexes contain them."""
    keys = pa.array([b"", b"a", b"12345678", b"123456789", b"x" * 300], pa.binary())
    assert hashes_of(keys).tolist() == [
        16294208416658607535,
        6774081908283191102,
        9501447833425779875,
        9003943604911055402,
        1533152188014638354,
    ]


@given(st.lists(st.integers(1, 1000), max_size=60))
def test_merging_is_bounded_and_leaves_few_segments(sizes: list[int]) -> None:
    """Repeated until nothing is merged, no segment is above the limit, and a sum stays."""
    total = sum(sizes)
    for _ in range(200):
        found = to_merge(sizes, 1000)
        if not found:
            break
        merged = [size for at, size in enumerate(sizes) if at in found]
        assert len(found) % plan_module.MERGED_COUNT == 0
        assert max(merged) <= 1000
        sizes = _merge(sizes, found)
    assert sum(sizes) == total
    assert not to_merge(sizes, 1000)


def _merge(sizes: list[int], found: set[int]) -> list[int]:
    left, at = list[int](), 0
    while at < len(sizes):
        step = plan_module.MERGED_COUNT if at in found else 1
        left.append(sum(sizes[at : at + step]))
        at += step
    return left
