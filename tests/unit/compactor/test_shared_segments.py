"""Runs that share raw segments with the new ledger: which ones, and with which result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ledgerfold.compactor.job import plan as plan_module
from ledgerfold.compactor.job.plan import cut
from ledgerfold.compactor.job.rows import Counts
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.files import REAL
from ledgerfold.storage.names import deletion_vector_path, key_index_path
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from ledgerfold.v1.records_pb2 import SegmentRecord
from tests.model.strategy_model import Message
from tests.support.compaction import LogBuilder, read_messages, read_stored
from tests.support.local_run import run_tasks

VALUE = b"v" * 100


def add(log: LogBuilder, ledger_id: int, keys: str, per_entry: int = 2) -> SegmentRecord:
    """A segment with a message of each key; "-" is no key, "x!" a tombstone of x."""
    messages = [
        Message(None if key == "-" else key.strip("!").encode(), b"" if "!" in key else VALUE)
        for key in keys.split()
    ]
    entries = [messages[at : at + per_entry] for at in range(0, len(messages), per_entry)]
    return log.add_segment(ledger_id, entries)


def run(
    log: LogBuilder, plan: CompactionPlan, *, is_indexed: bool = True
) -> tuple[list[SegmentRecord], Counts]:
    tasks = cut(plan, 2)
    output = replace(tasks.output, is_indexed=is_indexed or tasks.output.is_indexed)
    records, counts = run_tasks(replace(tasks, output=output))
    return sorted(records, key=lambda each: (each.first.ledger_id, each.first.entry_id)), counts


def is_shared(log: LogBuilder, record: SegmentRecord, raw: SegmentRecord) -> bool:
    return REAL.is_same(log.ledgers_dir / record.path, log.ledgers_dir / raw.path)


def first_plan(log: LogBuilder, retain: bool = False, **more: Any) -> CompactionPlan:
    sizes: dict[str, Any] = {"segment_bytes_max": 1_000, "segment_garbage_max": 0.3, **more}
    return log.plan(100, retain, **sizes)


def test_an_unchanged_segment_is_a_link_with_a_key_index(tmp_path: Path) -> None:
    log = LogBuilder(tmp_path)
    raw = [add(log, 1, "a b c d"), add(log, 2, "e f g h")]
    records, _ = run(log, first_plan(log))
    assert [is_shared(log, *pair) for pair in zip(records, raw, strict=True)] == [True, True]
    for record in records:
        assert record.key_index.keyed_messages == 4
        assert (log.ledgers_dir / key_index_path(record.path)).exists()
        assert not record.HasField("dead")
    assert read_messages(log.ledgers_dir, records) == log.expected(False)
    # Trimming removes the raw ledgers' names of the files.
    for each in raw:
        (log.ledgers_dir / each.path).unlink()
    assert read_messages(log.ledgers_dir, records) == log.expected(False)


def test_a_few_dead_messages_are_hidden_by_a_deletion_vector(tmp_path: Path) -> None:
    log = LogBuilder(tmp_path)
    raw = [add(log, 1, "a b c d e"), add(log, 2, "f a g h i")]
    records, _ = run(log, first_plan(log))
    assert [is_shared(log, *pair) for pair in zip(records, raw, strict=True)] == [True, True]
    assert [each.dead.messages for each in records] == [1, 0]
    assert (log.ledgers_dir / deletion_vector_path(records[0].path)).exists()
    assert read_messages(log.ledgers_dir, records) == log.expected(False)


def test_a_segment_with_many_dead_messages_is_copied(tmp_path: Path) -> None:
    log = LogBuilder(tmp_path)
    raw = [add(log, 1, "a b c d"), add(log, 2, "a b g h")]
    records, _ = run(log, first_plan(log))
    assert not any(is_shared(log, records[0], each) for each in raw)
    assert read_messages(log.ledgers_dir, records) == log.expected(False)


@pytest.mark.parametrize("retain", [False, True])
def test_a_dead_message_without_a_key_is_not_hidden(tmp_path: Path, retain: bool) -> None:
    """A later run counts the keys of a segment by its index, less its dead messages."""
    log = LogBuilder(tmp_path)
    raw = add(log, 1, "a b c d -")
    records, _ = run(log, first_plan(log, retain))
    assert is_shared(log, records[0], raw) is retain
    assert read_messages(log.ledgers_dir, records) == log.expected(retain)


@pytest.mark.parametrize(
    "change", [{"segment_bytes_max": 10_000}, {"segment_bytes_max": 100}, {"is_indexed": False}]
)
def test_small_segments_are_copied_and_so_are_small_runs(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    log = LogBuilder(tmp_path)
    raw = add(log, 1, "a b c d")
    is_indexed = bool(change.pop("is_indexed", True))
    records, _ = run(log, first_plan(log, **change), is_indexed=is_indexed)
    assert not is_shared(log, records[0], raw)
    assert read_messages(log.ledgers_dir, records) == log.expected(False)


def test_a_segment_with_entries_outside_the_range_is_copied(tmp_path: Path) -> None:
    """Its entries up to the previous horizon are not the new ledger's."""
    log = LogBuilder(tmp_path)
    raw = add(log, 1, "a b c d")
    plan = first_plan(log)
    plan.horizon_previous.ledger_id, plan.horizon_previous.entry_id = Position(1, 0)
    records, _ = run(log, plan)
    assert not is_shared(log, records[0], raw)
    assert [(each.first.entry_id, each.messages) for each in records] == [(1, 2)]


@pytest.mark.parametrize("buckets", [1, 3])
def test_a_later_run_uses_the_index_of_a_shared_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, buckets: int
) -> None:
    """Its old and its new dead messages, tombstones included, and the counts are those of a run
    that reads everything.
    """
    monkeypatch.setattr(plan_module, "SCANNED_SHARE_MAX", 1.0)
    log = LogBuilder(tmp_path)
    raw = [add(log, 1, "a b c d e f g h i j"), add(log, 2, "k a l m n! o p q r s")]
    first = first_plan(log, segment_bytes_max=2_000)
    records, _ = run(log, first)
    assert [is_shared(log, *pair) for pair in zip(records, raw, strict=True)] == [True, True]
    assert [each.dead.messages for each in records] == [1, 1]
    raw.append(add(log, 3, "b k! t u v w x y z aa"))
    plans = []
    for ledger_id, keeps in ((101, True), (102, False)):
        previous = Manifest(segments=records, horizon=first.horizon)
        sizes: dict[str, Any] = {"segment_bytes_max": 2_000, "segment_garbage_max": 0.3}
        plan = log.plan(ledger_id, False, previous, **sizes)
        plan.keeps_segments = keeps
        plans.append(plan)
    tasks = cut(plans[0], 2)
    assert len(tasks.indexed) == 2
    found, counts = run_tasks(replace(tasks, buckets=buckets))
    found.sort(key=lambda each: (each.first.ledger_id, each.first.entry_id))
    assert is_shared(log, found[-1], raw[-1])
    expected, counted = run(log, plans[1], is_indexed=False)
    assert read_stored(log.ledgers_dir, found) == read_stored(log.ledgers_dir, expected)
    assert read_messages(log.ledgers_dir, found) == log.expected(False)
    same = [each._replace(bytes_in=0, entries_in=0) for each in (counts, counted)]
    assert same[0] == same[1]


@pytest.mark.parametrize("is_indexed", [True, False])
def test_a_damaged_value_fails_the_run(tmp_path: Path, is_indexed: bool) -> None:
    """The segment would be shared, or copied: before, no run verified its values."""
    log = LogBuilder(tmp_path)
    raw = [add(log, 1, "a b c d"), add(log, 2, "e f g h")]
    path = log.ledgers_dir / raw[1].path
    content = bytearray(path.read_bytes())
    content[content.index(VALUE)] ^= 1
    path.write_bytes(content)
    with pytest.raises(Corruption, match="value"):
        run(log, first_plan(log), is_indexed=is_indexed)
