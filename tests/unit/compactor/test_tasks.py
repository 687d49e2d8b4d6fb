"""Scan, merge and copy, chained in this process, against the model."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.compactor.job import scan as scan_module
from ledgerfold.compactor.job.copy_survivors import rows_by_segment
from ledgerfold.compactor.job.distinct import HashedKeys
from ledgerfold.compactor.job.plan import TaskPlan, cut
from ledgerfold.compactor.job.rows import Counts, Failure
from ledgerfold.compactor.job.scan import to_copy_tasks
from ledgerfold.compactor.positions import ROW_BITS
from ledgerfold.storage.entry import HEADER_BYTES, Compression
from ledgerfold.storage.errors import CompactionFailed, Corruption, LedgerfoldError, MissingFile
from ledgerfold.v1.compactor_pb2 import Manifest
from tests.model.strategy_model import Message
from tests.support.compaction import (
    COMPRESSIONS,
    LOGS,
    LogBuilder,
    damage,
    read_messages,
)
from tests.support.local_run import run_tasks
from tests.support.property_tests import examples

A1, A2, B1, B2 = (
    Message(b"a", b"1"),
    Message(b"a", b"2"),
    Message(b"b", b"1"),
    Message(b"b", b"2"),
)
NONE = Message(None, b"1")
LogShape = list[list[list[Message]]]


def _spread(tasks: TaskPlan, buckets: int) -> TaskPlan:
    single = tuple((segment,) for run in tasks.scans for segment in run)
    return replace(tasks, scans=single, buckets=buckets, copies=single)


def _log(
    folder: Path,
    shape: LogShape,
    compression: int = Compression.NONE,
    *,
    is_mixed: bool = False,
) -> LogBuilder:
    log = LogBuilder(folder, is_mixed=is_mixed)
    for ledger_id, batches in enumerate(shape, 1):
        log.add_segment(ledger_id, batches, compression)
    return log


@settings(max_examples=examples(50))
@given(
    LOGS,
    COMPRESSIONS,
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 12),
    st.booleans(),
    st.booleans(),
)
def test_a_run_equals_the_model(
    shape: LogShape,
    compression: Compression,
    retain: bool,
    buckets: int,
    chunk_rows: int,
    is_mixed: bool,
    is_distinct: bool,
) -> None:
    """Any log, any number of buckets and tasks, any chunk, whether its keys are grouped or not: the
    model's survivors and counts.
    """
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_module, "CHUNK_ROWS_MAX", chunk_rows)
        patch.setattr(HashedKeys, "are_mostly_distinct", is_distinct)
        log = _log(Path(folder), shape, compression, is_mixed=is_mixed)
        tasks = _spread(cut(log.plan(100, retain), 2), buckets)
        records, counts = run_tasks(tasks)
        assert read_messages(log.ledgers_dir, records) == log.expected(retain)
        outcome = log.outcome(retain)
        assert counts == Counts(
            messages_in=len(log.messages),
            entries_in=sum(record.entries for record in log.segments),
            bytes_in=sum(record.size_bytes for record in log.segments),
            tombstones=outcome.tombstones,
            null_keys=outcome.null_keys,
            removed_events=outcome.removed_events,
            keys=outcome.keys,
        )


@pytest.mark.parametrize("position", [-1, 2, (1 << ROW_BITS) + 1, 2 << ROW_BITS, 256 << ROW_BITS])
def test_a_position_that_no_message_has_fails_the_run(tmp_path: Path, position: int) -> None:
    """A user-defined strategy may return it. No test had asked what a copy task does with it."""
    log = _log(tmp_path, [[[A1, B1]], [[A2]]])
    segments = cut(log.plan(100), 2).segments
    positions = [0, 1, 1 << ROW_BITS]
    rows = list(rows_by_segment([np.array(positions[::-1])], segments))
    assert [each.tolist() for each in rows] == [[0, 1], [0]]
    with pytest.raises(CompactionFailed, match=f"kept position {position}, which no message has"):
        list(rows_by_segment([np.array([*positions, position])], segments))
    (task,) = {number for number, _ in to_copy_tasks(np.array([-1]), [0, 1])}
    assert task == 0


@settings(max_examples=examples(50))
@given(LOGS, LOGS, st.booleans(), COMPRESSIONS, st.booleans())
def test_a_second_run_on_the_first_ones_output_equals_the_model(
    first: LogShape, second: LogShape, retain: bool, compression: Compression, is_mixed: bool
) -> None:
    """A run over compacted and new messages leaves what one run over all would."""
    with tempfile.TemporaryDirectory() as folder:
        log = _log(Path(folder), first, compression, is_mixed=is_mixed)
        plan = log.plan(100, retain)
        previous = Manifest(segments=run_tasks(plan)[0], horizon=plan.horizon)
        for ledger_id, batches in enumerate(second, 50):
            log.add_segment(ledger_id, batches, compression)
        records, _ = run_tasks(log.plan(101, retain, previous))
        assert read_messages(log.ledgers_dir, records) == log.expected(retain)


def test_files_roll_at_the_plans_limit(tmp_path: Path) -> None:
    """No file but one of a single entry is larger than the limit; order and content stay."""
    log = _log(tmp_path, [[[Message(b"%d" % n, b"v" * 100)] for n in range(20)]])
    records, _ = run_tasks(log.plan(100, segment_bytes_max=700))
    assert len(records) > 3
    assert all(record.size_bytes <= 700 for record in records)
    assert read_messages(log.ledgers_dir, records) == log.expected()


def test_a_run_without_survivors_writes_nothing(tmp_path: Path) -> None:
    """A log of tombstones gives no file."""
    log = _log(tmp_path, [[[A1, Message(b"a", b"")]]])
    records, counts = run_tasks(log.plan(100))
    assert (records, counts.removed_events) == ([], 1)
    assert list((log.ledgers_dir / "100").iterdir()) == []


def test_entries_outside_the_range_do_not_count(tmp_path: Path) -> None:
    """Only entries between the horizons of a raw segment count."""
    log = _log(tmp_path, [[[A1], [B1], [A2], [B2]]])
    plan = log.plan(100)
    plan.horizon_previous.ledger_id, plan.horizon_previous.entry_id = 1, 0
    plan.horizon.entry_id = 2
    records, counts = run_tasks(plan)
    assert counts.messages_in == 2
    assert read_messages(log.ledgers_dir, records) == [log.messages[1], log.messages[2]]


def test_a_compacted_entry_above_the_previous_horizon_is_damage(tmp_path: Path) -> None:
    """Entries that the previous run cannot have seen must not be in its ledger."""
    log = _log(tmp_path, [[[A1], [B1]]])
    plan = log.plan(100)
    plan.compacted_segments = 1
    plan.horizon_previous.ledger_id, plan.horizon_previous.entry_id = 1, 0
    with pytest.raises(Corruption, match="up to the horizon 1:0"):
        run_tasks(plan)


def test_messages_removed_by_retention_do_not_count(tmp_path: Path) -> None:
    """Only a compacted segment's entries from the floor on count: the hidden `a` does not replace
    the readable one.
    """
    log = _log(tmp_path, [[[B1], [A1], [A2]], [[B2]]])
    plan = log.plan(100)
    plan.strategy = "keep-first"
    plan.compacted_segments = 1
    plan.horizon_previous.ledger_id, plan.horizon_previous.entry_id = 1, 2
    plan.retention_floor.ledger_id, plan.retention_floor.entry_id = 1, 1
    records, counts = run_tasks(plan)
    assert counts.messages_in == 3
    assert read_messages(log.ledgers_dir, records) == [log.messages[1], log.messages[3]]


@pytest.mark.parametrize("section", ["header", "key", "value"])
def test_damage_is_an_error_with_file_and_place(tmp_path: Path, section: str) -> None:
    """A flipped bit anywhere in a surviving entry fails the run and says where."""
    log = _log(tmp_path, [[[A1, B1], [A2]]])
    path = log.ledgers_dir / log.segments[0].path
    size = log.segments[0].size_bytes
    damage(path, {"header": 20, "key": HEADER_BYTES + 4, "value": size - 4}[section])
    with pytest.raises(Corruption) as raised:
        run_tasks(log.plan(100))
    assert raised.value.path == str(path)


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    """A segment that is named and not there fails the run."""
    log = _log(tmp_path, [[[A1]]])
    (log.ledgers_dir / log.segments[0].path).unlink()
    with pytest.raises(MissingFile):
        run_tasks(log.plan(100))


def test_invalid_offsets_are_damage(tmp_path: Path) -> None:
    """A producer may send any bytes under a right checksum: columns are checked before use."""
    from ledgerfold.compactor.job.key_columns import KeyColumns
    from ledgerfold.compactor.job.segment_map import SegmentMap
    from ledgerfold.v1.entry_pb2 import NativeKeys

    log = _log(tmp_path, [[[A1, B1], [A2, B2]]])
    segment = cut(log.plan(100), 2).scans[0][0]
    good = NativeKeys(
        key_offsets=bytes([0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]),
        keys=b"ab",
        flags=b"\1\1",
        value_sizes=bytes(8),
    )
    bad = NativeKeys.FromString(good.SerializeToString())
    bad.key_offsets = bytes([0, 0, 0, 0, 9, 0, 0, 0, 2, 0, 0, 0])
    for sections, place in (([good, bad], 1), ([bad, good], 0)):
        columns = KeyColumns()
        with SegmentMap(segment) as mapped, pytest.MonkeyPatch.context() as patch:
            entries = list(mapped.entries())
            for entry, keys in zip(entries, sections, strict=True):
                patch.setattr(mapped, "key_section", lambda _, k=keys: k.SerializeToString())
                columns.add(mapped, entry)
            with pytest.raises(Corruption) as raised:
                columns.check()
            placed = entries[place]
            assert raised.value.offset == placed.offset + placed.header.header_bytes


@pytest.mark.parametrize(
    "error", [Corruption("f", 3, "x", "y"), MissingFile("f", "the plan")], ids=lambda e: e.reason
)
def test_an_error_of_a_task_keeps_its_class_in_the_driver(error: LedgerfoldError) -> None:
    """A task's error is raised with class, reason and text."""
    arrived = Failure.of(error).error()
    assert type(arrived) is type(error)
    assert (arrived.reason, arrived.message) == (error.reason, error.message)
