"""Strategies that decide message by message: scan, merge and copy, in this process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.compactor.job import merge_messages as merge_module
from ledgerfold.compactor.job import plan as plan_module
from ledgerfold.compactor.job import scan_messages as scan_module
from ledgerfold.compactor.job.plan import TaskPlan, cut
from ledgerfold.compactor.job.rows import Counts
from ledgerfold.compactor.strategies.registry import MAKERS, Maker
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.storage.entry import Compression
from ledgerfold.storage.errors import Corruption, InvalidRequest, StrategyFailed
from ledgerfold.strategies.ready_made import HeaderVersion, KeepFirst, Newest, Numeric
from ledgerfold.v1.compactor_pb2 import Manifest
from ledgerfold.v1.records_pb2 import SegmentRecord
from tests.model.strategic_model import Said, renumbered, strategic
from tests.model.strategy_model import Message
from tests.support import strategic_classes as classes
from tests.support.compaction import (
    COMPRESSIONS,
    LogBuilder,
    damage,
    read_messages,
    read_stored,
)
from tests.support.local_run import run_tasks
from tests.support.property_tests import examples
from tests.support.strategic_log import StrategicLog

KEYS = st.sampled_from([None, b"", b"a", b"b", b"c", b"key-\xff\x00"])
VALUES = st.sampled_from([b"", b"1", b"2", b"-3", b"2.0", b"two", b"x" * 300])
MESSAGES = st.tuples(KEYS, VALUES).map(lambda drawn: Message(*drawn))
BATCHES = st.lists(MESSAGES, min_size=1, max_size=5)
LOGS = st.lists(st.lists(BATCHES, min_size=1, max_size=4), min_size=1, max_size=3)
OWN: dict[str, type[Any]] = {"everything": classes.Everything, "stubborn": classes.Stubborn}
MADE: dict[str, Any] = {
    "newest": Newest(),
    "numeric": Numeric(),
    "keep-first": KeepFirst(),
    "header-version": HeaderVersion("n"),
    "everything": classes.Everything(),
    "stubborn": classes.Stubborn(),
}


def _maker(name: str, made_of: type[Any]) -> Maker:
    return Maker(1, lambda settings, time_ms: MessageStrategy(name, 1, made_of, settings))


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, made_of in OWN.items():
            patch.setitem(MAKERS, name, _maker(name, made_of))
        yield


class Log(StrategicLog):
    def add(self, shape: Sequence[Sequence[Sequence[Message]]], compression: int = 0) -> None:
        """Ledgers behind those that are there."""
        first = len(self.segments) + 1
        for ledger_id, batches in enumerate(shape, first):
            self.add_segment(ledger_id, batches, compression)

    def read(self, records: Sequence[SegmentRecord]) -> list[tuple[Any, ...]]:
        """Key, value, properties, event time; ids are asked for apart."""
        return [
            (message.key, message.value, message.properties, message.event_time_ms)
            for message in read_stored(self.ledgers_dir, records)
        ]


def _parts(said: Sequence[Said]) -> list[tuple[Any, ...]]:
    return [
        (
            (each.key or "").encode(errors="surrogateescape"),
            each.value,
            each.properties,
            each.event_time_ms,
        )
        for each in said
    ]


def _spread(tasks: TaskPlan, buckets: int) -> TaskPlan:
    single = tuple((segment,) for run in tasks.scans for segment in run)
    return replace(tasks, scans=single, buckets=buckets, copies=single)


def _ids(log: LogBuilder, records: Sequence[SegmentRecord]) -> list[tuple[int, int, int]]:
    return [each[:3] for each in read_messages(log.ledgers_dir, records)]


@settings(max_examples=examples(50))
@given(
    name=st.sampled_from(sorted(MADE)),
    shape=LOGS,
    compression=COMPRESSIONS,
    buckets=st.integers(1, 3),
    chunk_rows=st.integers(1, 12),
    renumber=st.booleans(),
    retain=st.booleans(),
)
def test_a_run_equals_the_model(
    name: str,
    shape: list[list[list[Message]]],
    compression: Compression,
    buckets: int,
    chunk_rows: int,
    renumber: bool,
    retain: bool,
) -> None:
    """Any log, any number of buckets and tasks, any chunk: survivors, ids, counts, skipped ones."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_module, "CHUNK_ROWS_MAX", chunk_rows)
        patch.setattr(merge_module, "SPOOL_BYTES", 2000)
        log = Log(Path(folder))
        log.add(shape, compression)
        plan = log.strategic_plan(100, name, renumber, retain_null_key=retain)
        classes.Stubborn.skipped.clear()
        records, counts = run_tasks(_spread(cut(plan, 2), buckets))
        told, classes.Stubborn.skipped[:] = sorted(classes.Stubborn.skipped), []
        outcome = strategic(log.said(), MADE[name])
        assert log.read(records) == _parts(outcome.left)
        ids = [each.message_id for each in outcome.left]
        assert _ids(log, records) == (renumbered(ids) if renumber else ids)
        assert told == sorted(classes.Stubborn.skipped)
        assert counts == Counts(
            messages_in=len(log.messages),
            entries_in=sum(record.entries for record in log.segments),
            bytes_in=sum(record.size_bytes for record in log.segments),
            tombstones=outcome.tombstones,
            null_keys=outcome.null_keys,
            removed_events=outcome.removed_events,
            keys=outcome.keys,
        )


@settings(max_examples=examples(50))
@given(
    name=st.sampled_from(sorted(MADE)),
    first=LOGS,
    second=LOGS,
    renumber=st.booleans(),
    compression=COMPRESSIONS,
)
def test_a_second_run_on_the_first_ones_output_equals_the_model(
    name: str,
    first: list[list[list[Message]]],
    second: list[list[list[Message]]],
    renumber: bool,
    compression: Compression,
) -> None:
    """Old output plus new messages leave what one run over everything would. (Ids may differ.)"""
    with tempfile.TemporaryDirectory() as folder:
        log = Log(Path(folder))
        log.add(first, compression)
        plan = log.strategic_plan(100, name, renumber)
        previous = Manifest(segments=run_tasks(plan)[0], horizon=plan.horizon)
        log.add(second, compression)
        records, _ = run_tasks(log.strategic_plan(101, name, renumber, previous=previous))
        left = strategic(log.said(), MADE[name]).left
        assert log.read(records) == _parts(left)
        if not renumber:
            assert _ids(log, records) == [each.message_id for each in left]
        else:
            entries = [each.message_id[:2] for each in left]
            assert [each[:2] for each in _ids(log, records)] == entries


def _log(folder: Path, *batches: Sequence[Message], compression: int = 0) -> Log:
    log = Log(folder)
    log.add([batches], compression)
    return log


def _three() -> list[Message]:
    return [Message(b"key1", b"m1"), Message(b"key2", b"m2"), Message(b"key2", b"m3")]


@pytest.mark.parametrize("compression", list(Compression))
def test_survivors_of_a_batch_are_renumbered(tmp_path: Path, compression: int) -> None:
    """STR-05: key2=m3 had index 2 and then has index 1; the rest is unchanged."""
    log = _log(tmp_path, _three(), compression=compression)
    plan = log.strategic_plan(100, "newest")
    records, _ = run_tasks(plan)
    assert _ids(log, records) == [(1, 0, 0), (1, 0, 2)]
    plan.ledger_id, plan.renumber_batches = 101, True
    records, _ = run_tasks(plan)
    assert _ids(log, records) == [(1, 0, 0), (1, 0, 1)]
    first, second = read_stored(log.ledgers_dir, records)
    assert (first.batch_size, second.batch_size) == (2, 2)
    # Its number as the producer counted is no place in a batch: it stays.
    assert (first.sequence_id, second.sequence_id) == (-2, 0)


def test_a_single_survivor_becomes_unbatched(tmp_path: Path) -> None:
    """Tests one survivor of a batch, of a batch of one, and of a previous run's output."""
    one = [Message(b"c", b"1")]
    log = _log(tmp_path, [Message(b"a", b"1"), Message(b"a", b"2"), Message(b"b", b"1")], one)
    log.add_segment(2, [[Message(b"b", b"2")]])
    records, _ = run_tasks(log.strategic_plan(100, "newest", renumber=True))
    assert _ids(log, records) == [(1, 0, -1), (1, 1, -1), (2, 0, -1)]


def test_a_complete_entry_is_renumbered_by_the_next_run(tmp_path: Path) -> None:
    """All of an entry survives, and still it must be rewritten."""
    log = _log(tmp_path, _three())
    plan = log.strategic_plan(100, "newest")
    previous = Manifest(segments=run_tasks(plan)[0], horizon=plan.horizon)
    log.add_segment(2, [[Message(b"d", b"1"), Message(b"e", b"1")]])
    records, _ = run_tasks(log.strategic_plan(101, "newest", renumber=True, previous=previous))
    assert _ids(log, records) == [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 0, 1)]


def test_column_strategies_do_not_renumber(tmp_path: Path) -> None:
    """Only strategies of messages are: Pulsar's other compactors keep ids."""
    log = _log(tmp_path, _three())
    plan = log.plan(100)
    plan.renumber_batches = True
    assert _ids(log, run_tasks(plan)[0]) == [(1, 0, 0), (1, 0, 2)]


def test_numeric_keeps_the_largest_number(tmp_path: Path) -> None:
    """STR-03."""
    log = _log(tmp_path, *([Message(b"a", b"%d" % number)] for number in (5, 3, 7, 6)))
    records, counts = run_tasks(log.strategic_plan(100, "numeric"))
    assert (_ids(log, records), counts.removed_events) == ([(1, 2, 0)], 2)


@pytest.mark.parametrize(
    ("made_of", "sentence"),
    [
        (classes.Raises, r"strategy 'bad': LookupError: no such price, at message 1:0:-1:1"),
        (classes.Leaves, "SystemExit: 0, at message 1:0:"),
        (classes.RaisesWhatHasNoText, "_Speechless: it has no text, at message 1:0:"),
        (classes.RaisesWhenSkipping, "LookupError: no such price, at message 1:0:-1:1"),
        (classes.Vague, "should_keep_left returned 1, which is not a bool, at message 1:0:-1:1"),
        (classes.ReadsWhatItDoesNotSay, "AttributeError: .*'properties' .* at message 1:0:-1:0"),
        (classes.CannotBeMade, "OSError: no prices today, when it was created"),
    ],
)
@pytest.mark.parametrize("buckets", [1, 2])
def test_an_exception_of_a_strategy_fails_the_run(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    made_of: type[Any],
    sentence: str,
    buckets: int,
) -> None:
    """The error names the class, its exception, and the message."""
    monkeypatch.setitem(MAKERS, "bad", _maker("bad", made_of))
    log = _log(tmp_path, [Message(b"a", b"1"), Message(b"a", b"two"), Message(b"b", b"")])
    with pytest.raises(StrategyFailed, match=sentence):
        run_tasks(_spread(cut(log.strategic_plan(100, "bad"), 2), buckets))


def test_a_strategy_that_reads_undeclared_fields_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="strategy 'bad' lists colour; a message has"):
        MessageStrategy("bad", 1, classes.ReadsWhatThereIsNot)


def test_damage_in_a_value_section_is_found(tmp_path: Path) -> None:
    """By a strategy that reads values at once; by others at the latest when it is copied."""
    log = _log(tmp_path, [Message(b"a", b"v" * 100)])
    path = log.ledgers_dir / log.segments[0].path
    damage(path, path.stat().st_size - 20)
    for name in ("numeric", "keep-first"):
        with pytest.raises(Corruption, match="value section CRC32C"):
            run_tasks(log.strategic_plan(100, name))


def test_a_bucket_is_bounded_by_bytes_and_messages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also counts values, if they are read; and a single segment may be many tasks."""
    monkeypatch.setattr(plan_module, "BUCKET_BYTES", 2_000)
    monkeypatch.setattr(plan_module, "BUCKET_MESSAGES", 4)
    monkeypatch.setattr(plan_module, "SOLO_BYTES", 0)
    log = _log(tmp_path, *([Message(b"a", b"x" * 500)] for _ in range(20)))
    assert cut(log.strategic_plan(100, "numeric"), 1).buckets == 7
    assert cut(log.strategic_plan(100, "keep-first"), 1).buckets == 5
    tasks = cut(log.plan(100), 1)
    assert len(tasks.scans) == tasks.buckets == len(tasks.copies) == 1
