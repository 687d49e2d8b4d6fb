"""A plan, checked and cut into tasks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.compactor.job.plan import cut, cut_segments, input_segments
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.names import segment_path
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import Position as PositionRecord
from ledgerfold.v1.records_pb2 import SegmentRecord

MIB = 1024 * 1024


def _record(ledger_id: int, size_bytes: int = MIB) -> SegmentRecord:
    position = PositionRecord(ledger_id=ledger_id, entry_id=0)
    return SegmentRecord(
        path=segment_path(ledger_id, 0),
        sealed=True,
        size_bytes=size_bytes,
        key_bytes=size_bytes // 4,
        entries=1,
        messages=1,
        first=position,
        last=position,
    )


def _plan(*sizes: int) -> CompactionPlan:
    return CompactionPlan(
        run_id="r",
        strategy="publishing-order",
        ledgers_dir="/ledgers",
        segments=[_record(number, size) for number, size in enumerate(sizes, 1)],
        ledger_id=100,
        horizon=PositionRecord(ledger_id=len(sizes), entry_id=0),
        segment_bytes_max=64 * MIB,
    )


@given(st.lists(st.integers(0, 200 * MIB), min_size=1, max_size=30), st.integers(1, 8))
def test_tasks_are_contiguous_runs_of_all_segments(sizes: list[int], cores: int) -> None:
    """No segment is lost, doubled or out of order, in scans and in copies; no task is empty."""
    tasks = cut(_plan(*sizes), cores)
    for runs in (tasks.scans, tasks.copies):
        assert all(runs)
        ordinals = [segment.ordinal for run in runs for segment in run]
        assert ordinals == list(range(len(sizes)))


def test_a_small_plan_is_one_task() -> None:
    """Ten megabytes need no shuffle; a gigabyte is spread over the cores."""
    tasks = cut(_plan(10 * MIB), 2)
    assert len(tasks.scans) == tasks.buckets == len(tasks.copies) == 1
    large = cut(_plan(*[64 * MIB] * 16), 2)
    assert (len(large.scans) % 2, large.buckets % 2, len(large.copies)) == (0, 0, 8)


@pytest.mark.parametrize(
    ("messages", "dead", "copies"),
    [(1, 0, 1), (100_000, 0, 1), (200_000, 0, 12), (100_000, 100_000, 12), (1, 150_000, 1)],
    ids=["one", "too few", "many", "together with dead ones", "one that rewrites one segment"],
)
def test_a_run_that_shares_segments_has_as_many_copy_tasks_as_it_has_work(
    messages: int, dead: int, copies: int
) -> None:
    """A second stage, and each of its tasks, costs more than links to some segments.

    So there is one task, unless new messages may kill more of each segment than may stay dead.
    """
    plan = _incremental_plan(20, messages_each=500_000, new_messages=messages)
    for record in plan.segments[:-1]:
        record.dead.messages = dead
    tasks = cut(plan, 2)
    assert (len(tasks.scans), tasks.buckets, len(tasks.copies)) == (1, 1, copies)


def test_many_shared_segments_are_divided_among_tasks() -> None:
    """Each gets a deletion vector, which takes time, too."""
    plan = _incremental_plan(90, messages_each=500_000, new_messages=100_000)
    assert len(cut(plan, 2).copies) == 4


def _incremental_plan(segments: int, *, messages_each: int, new_messages: int) -> CompactionPlan:
    """A plan with full indexed segments, and one that has the new messages."""
    plan = _plan(*[64 * MIB] * segments, 128 * new_messages)
    for record in plan.segments[:-1]:
        record.messages = messages_each
        record.key_index.keyed_messages = messages_each
    plan.segments[-1].messages = new_messages
    plan.compacted_segments = segments
    plan.horizon_previous.CopyFrom(plan.segments[segments - 1].last)
    plan.keeps_segments, plan.segment_garbage_max = True, 0.3
    return plan


def test_tasks_are_sized_for_the_most_expensive_strategy() -> None:
    """Besides one that reads values, one over keys has the smaller tasks; unused ones do not
    count.
    """
    plan = _plan(*[64 * MIB] * 16)
    segments = input_segments(plan)
    by_key, by_value = cut(plan, 2), cut(_with(plan, "numeric"), 2)
    strategies = (by_key.strategy, by_value.strategy)
    assert cut_segments(segments, 2, strategies)[:2] == (by_value.scans, by_value.buckets)
    assert cut_segments(segments, 2) == cut_segments(segments, 2, strategies[:1])
    assert by_value.buckets > by_key.buckets


def _with(plan: CompactionPlan, strategy: str) -> CompactionPlan:
    changed = CompactionPlan.FromString(plan.SerializeToString())
    changed.strategy = strategy
    return changed


def test_ranges() -> None:
    """Compacted segments count up to the previous horizon, raw ones from there to the horizon."""
    plan = _plan(MIB, MIB)
    plan.compacted_segments = 1
    plan.horizon_previous.ledger_id = 1
    compacted, raw = input_segments(plan)
    assert (compacted.after, compacted.up_to) == (EARLIEST, Position(1, 0))
    assert (raw.after, raw.up_to) == (Position(1, 0), Position(2, 0))


def test_invalid_plans_are_refused() -> None:
    """Unknown strategy, open segment, segments out of order, too many compacted."""
    plans = [_plan(MIB, MIB) for _ in range(4)]
    plans[0].strategy = "oldest"
    plans[1].segments[1].sealed = False
    plans[2].segments[1].first.ledger_id = 1
    plans[3].compacted_segments = 3
    for plan in plans:
        with pytest.raises(InvalidRequest):
            cut(plan, 2)


@pytest.mark.parametrize(
    "folder",
    ["ledgers", "/", "/data", "/data/ledgers/", "/data/../ledgers", "/data/ledgers/..", ""],
)
def test_a_folder_that_is_no_ledgers_folder_is_refused(folder: str) -> None:
    """A run removes its output below it, so no other folder may be named."""
    plan = _plan(MIB)
    plan.ledgers_dir = folder
    with pytest.raises(InvalidRequest, match="ledgers folder"):
        input_segments(plan)


@pytest.mark.parametrize("ledger_id", [0, -1, 2])
def test_an_output_folder_that_is_invalid_or_an_input_is_refused(ledger_id: int) -> None:
    """Ids begin with 1, and each is assigned once."""
    plan = _plan(MIB, MIB)
    plan.ledger_id = ledger_id
    with pytest.raises(InvalidRequest):
        input_segments(plan)


@pytest.mark.parametrize(
    "path",
    [
        "../1/00000000000000000000.log",
        "1/../2/00000000000000000000.log",
        "/etc/passwd",
        "1/0.log",
        "01/00000000000000000000.log",
        "1/00000000000000000000.log.tmp",
        "1/00000000000000000000.log/x",
        "",
    ],
)
def test_a_path_that_is_no_segments_is_refused(path: str) -> None:
    """Only names that a broker gives are allowed."""
    plan = _plan(MIB)
    plan.segments[0].path = path
    with pytest.raises(InvalidRequest, match="not a segment"):
        input_segments(plan)
