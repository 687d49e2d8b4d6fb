"""event-time, keep-n, event-time-window: columns and whole runs against the models."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from ledgerfold.compactor.job import scan as scan_module
from ledgerfold.compactor.job.plan import TaskPlan, cut
from ledgerfold.compactor.job.rows import Counts
from ledgerfold.compactor.strategies import event_time as event_time_module
from ledgerfold.compactor.strategies.event_time import EVENT_TIME
from ledgerfold.compactor.strategies.registry import strategy_of
from ledgerfold.compactor.strategies.strategy import Strategy
from ledgerfold.storage.entry import Compression
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from tests.model.strategy_model import Message, Outcome, outcome_of
from tests.support.compaction import (
    COMPRESSIONS,
    TIMED_LOGS,
    LogBuilder,
    Stored,
    read_messages,
)
from tests.support.local_run import run_tasks
from tests.support.property_tests import examples
from tests.support.strategies import fold

LogShape = list[list[list[Message]]]


class Asked(NamedTuple):
    """A strategy with settings, at a time."""

    name: str
    settings: dict[str, str]
    time_ms: int = 0

    def outcome(self, messages: list[Message], retain: bool = False) -> Outcome:
        return outcome_of(self.name, self.settings, messages, retain, self.time_ms)

    def plan(
        self,
        log: LogBuilder,
        ledger_id: int,
        retain: bool = False,
        previous: Manifest | None = None,
    ) -> CompactionPlan:
        return log.plan(
            ledger_id,
            retain,
            previous,
            strategy=self.name,
            settings=self.settings,
            time_ms=self.time_ms,
        )


def _window(lag_ms: int, time_ms: int) -> Asked:
    return Asked("event-time-window", {"lag_ms": str(lag_ms)}, time_ms)


def _keep(n: int) -> Asked:
    return Asked("keep-n", {"n": str(n)})


BY_TIME = Asked("event-time", {})
ASKED = st.one_of(
    st.just(BY_TIME),
    st.builds(_keep, st.integers(1, 4)),
    st.builds(_window, st.integers(0, 7), st.integers(0, 8)),
)
KEYED = st.builds(
    Message,
    st.sampled_from([b"a", b"b", b"c"]),
    st.sampled_from([b"", b"1"]),
    st.one_of(st.integers(0, 5), st.sampled_from([-(2**62), -1, 2**62 - 1])),
    st.booleans(),
    st.integers(1, 5),
)


@given(ASKED, st.lists(KEYED, min_size=1, max_size=40), st.sampled_from([1, 3, 1 << 16]))
def test_one_fold_equals_the_model(asked: Asked, messages: list[Message], slice_rows: int) -> None:
    """Compares survivors and count of one `begin`, also after a join of one piece."""
    strategy = strategy_of(
        CompactionPlan(strategy=asked.name, strategy_settings=asked.settings, time_ms=asked.time_ms)
    )
    assert isinstance(strategy, Strategy)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_time_module, "_SLICE_ROWS", slice_rows)
        outcome = asked.outcome(messages)
        assert fold(strategy, messages) == (outcome.survivors, outcome.removed_events)


@given(
    st.lists(KEYED, min_size=1, max_size=30),
    st.sets(st.integers(0, 30)),
    st.integers(0, 99),
)
def test_event_time_counts_exactly_if_times_rise_between_chunks(
    messages: list[Message], cuts: set[int], seed: int
) -> None:
    """However times go within each."""
    risen = [
        message._replace(event_time_ms=index // 8 * 1000 + max(message.event_time_ms, 0) % 1000)
        for index, message in enumerate(messages)
    ]
    outcome = BY_TIME.outcome(risen)
    cuts = {cut // 8 * 8 for cut in cuts}
    assert fold(EVENT_TIME, risen, cuts, seed) == (outcome.survivors, outcome.removed_events)


def _spread(tasks: TaskPlan, buckets: int) -> TaskPlan:
    single = tuple((segment,) for run in tasks.scans for segment in run)
    return replace(tasks, scans=single, buckets=buckets, copies=single)


def _add(log: LogBuilder, shape: LogShape, first_ledger: int = 1) -> LogBuilder:
    for ledger_id, batches in enumerate(shape, first_ledger):
        log.add_segment(ledger_id, batches, Compression.NONE)
    return log


@settings(max_examples=examples(50))
@given(
    ASKED,
    TIMED_LOGS,
    COMPRESSIONS,
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 12),
    st.booleans(),
)
def test_a_run_equals_the_model(
    asked: Asked,
    shape: LogShape,
    compression: Compression,
    retain: bool,
    buckets: int,
    chunk_rows: int,
    is_mixed: bool,
) -> None:
    """Any log, any number of buckets and tasks, any chunk: the same survivors and counts."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(scan_module, "CHUNK_ROWS_MAX", chunk_rows)
        log = LogBuilder(Path(folder), is_mixed=is_mixed)
        for ledger_id, batches in enumerate(shape, 1):
            log.add_segment(ledger_id, batches, compression)
        outcome = asked.outcome(log.told, retain)
        records, counts = run_tasks(_spread(cut(asked.plan(log, 100, retain), 2), buckets))
        assert read_messages(log.ledgers_dir, records) == log.left(outcome)
        assert sum(record.messages for record in records) == len(outcome.survivors)
        is_exact = asked.name == "keep-n"
        assert counts == Counts(
            messages_in=len(log.messages),
            entries_in=sum(record.entries for record in log.segments),
            bytes_in=sum(record.size_bytes for record in log.segments),
            tombstones=outcome.tombstones,
            null_keys=outcome.null_keys,
            removed_events=outcome.removed_events if is_exact else counts.removed_events,
            keys=outcome.keys,
        )


@given(ASKED, TIMED_LOGS, st.booleans())
def test_a_small_run_counts_as_the_model(asked: Asked, shape: LogShape, retain: bool) -> None:
    """All of it is one chunk, with any times."""
    with tempfile.TemporaryDirectory() as folder:
        log = _add(LogBuilder(Path(folder)), shape)
        _, counts = run_tasks(asked.plan(log, 100, retain))
        assert counts.removed_events == asked.outcome(log.told, retain).removed_events


def _two_runs(
    folder: Path, first: LogShape, second: LogShape, runs: tuple[Asked, Asked], retain: bool
) -> tuple[list[Stored], list[Stored]]:
    """Returns what remains after both runs, and what the second would have kept of everything."""
    log = _add(LogBuilder(folder), first)
    plan = runs[0].plan(log, 100, retain)
    previous = Manifest(segments=run_tasks(plan)[0], horizon=plan.horizon)
    _add(log, second, first_ledger=50)
    records, _ = run_tasks(runs[1].plan(log, 101, retain, previous))
    left = read_messages(log.ledgers_dir, records)
    return left, log.left(runs[1].outcome(log.told, retain))


_DELETED = [[[Message(b"a", b"1", 5, True)], [Message(b"a", b"", 9, True)]]]


@example(BY_TIME, _DELETED, [[[Message(b"a", b"two", 1, True)]]], False)
@settings(max_examples=examples(50))
@given(
    st.one_of(st.just(BY_TIME), st.builds(_keep, st.integers(1, 4))),
    TIMED_LOGS,
    TIMED_LOGS,
    st.booleans(),
)
def test_two_runs_equal_one_run_over_everything(
    asked: Asked, first: LogShape, second: LogShape, retain: bool
) -> None:
    """Tombstones included: no strategy remembers one after applying it."""
    with tempfile.TemporaryDirectory() as folder:
        left, expected = _two_runs(Path(folder), first, second, (asked, asked), retain)
        assert left == expected


WINDOWS = st.tuples(st.integers(0, 7), st.integers(0, 8), st.integers(0, 8)).map(
    lambda drawn: (
        _window(drawn[0], min(drawn[1:])),
        _window(drawn[0], max(drawn[1:])),
    )
)


@settings(max_examples=examples(50))
@given(WINDOWS, TIMED_LOGS, TIMED_LOGS, st.booleans())
def test_two_windows_equal_one_without_tombstones(
    windows: tuple[Asked, Asked], first: LogShape, second: LogShape, retain: bool
) -> None:
    """Messages that are young in the first run and old in the second are judged with the rest."""
    parts = [
        [
            [[each._replace(value=each.value or b"1") for each in batch] for batch in batches]
            for batches in shape
        ]
        for shape in (first, second)
    ]
    with tempfile.TemporaryDirectory() as folder:
        left, expected = _two_runs(Path(folder), parts[0], parts[1], windows, retain)
        assert left == expected


@settings(max_examples=examples(50))
@given(WINDOWS, TIMED_LOGS, TIMED_LOGS)
def test_two_windows_equal_one_if_old_messages_come_first(
    windows: tuple[Asked, Asked], first: LogShape, second: LogShape
) -> None:
    """In the first run's input, all young messages were published after all old ones."""
    limit_ms = windows[0].time_ms - int(windows[0].settings["lag_ms"])
    with tempfile.TemporaryDirectory() as folder:
        met = _add(LogBuilder(Path(folder)), first).told
    is_young = [(each.event_time_ms or each.publish_time_ms) > limit_ms for each in met]
    assume(is_young == sorted(is_young))
    with tempfile.TemporaryDirectory() as folder:
        left, expected = _two_runs(Path(folder), first, second, windows, False)
        assert left == expected


def test_a_tombstone_that_ages_may_make_two_windows_differ_from_one(tmp_path: Path) -> None:
    """docs/STRATEGIES.md tells this history."""
    first, gone, late = (
        Message(b"a", b"1", 50, True),
        Message(b"a", b"", 100, True),
        Message(b"a", b"two", 40, True),
    )
    runs = (_window(20, 100), _window(20, 200))
    log = _add(LogBuilder(tmp_path), [[[first], [gone], [late]]])
    plan = runs[0].plan(log, 100)
    records, counts = run_tasks(plan)
    # The tombstone is young: it stays, and removes nothing yet. `late` is older than `first`.
    assert read_messages(log.ledgers_dir, records) == log.messages[:2]
    assert (counts.tombstones, counts.removed_events) == (1, 0)
    previous = Manifest(segments=records, horizon=plan.horizon)
    log.add_segment(2, [[Message(b"b", b"1", 150, True)]])
    records, _ = run_tasks(runs[1].plan(log, 101, previous=previous))
    assert read_messages(log.ledgers_dir, records) == log.messages[3:]
    assert log.left(runs[1].outcome(log.told)) == log.messages[2:]


A, B, C = b"a", b"b", b"c"


@pytest.mark.parametrize(
    ("batches", "left", "events"),
    [
        # Published alone, the last of equal times wins; in a batch the first.
        ([[Message(A, b"x", 5, True)], [Message(A, b"y", 5, True)]], [1], 1),
        ([[Message(A, b"x", 5), Message(A, b"y", 5)]], [0], 0),
        ([[Message(A, b"x"), Message(A, b"y")]], [0], 0),
        ([[Message(A, b"x", 5, True)], [Message(A, b"y", 3, True)]], [0], 0),
        # A tombstone that is not accepted is nothing; an accepted one forgets the time.
        ([[Message(A, b"x", 5, True)], [Message(A, b"", 3, True)]], [0], 0),
        ([[Message(A, b"x", 5, True)], [Message(A, b"", 5, True)]], [], 1),
        ([[Message(A, b"x", 5), Message(A, b"", 5)]], [0], 0),
        (
            [
                [Message(A, b"x", 5, True)],
                [Message(A, b"", 9, True)],
                [Message(A, b"y", 1, True)],
            ],
            [2],
            1,
        ),
        # Publishing order, not the order of their times.
        (
            [
                [Message(B, b"1", 9, True)],
                [Message(A, b"1", 1, True)],
                [Message(A, b"2", 0, True)],
                [Message(C, b"1", 5, True)],
            ],
            [0, 1, 3],
            0,
        ),
    ],
)
def test_event_times_are_compared_as_in_pulsar(
    tmp_path: Path, batches: list[list[Message]], left: list[int], events: int
) -> None:
    """The worked histories of Pulsar's rules."""
    log = _add(LogBuilder(tmp_path), [batches])
    records, counts = run_tasks(BY_TIME.plan(log, 100))
    assert read_messages(log.ledgers_dir, records) == [log.messages[index] for index in left]
    assert counts.removed_events == events


def test_event_times_are_remembered_by_later_runs(tmp_path: Path) -> None:
    """An older event that is published later does not win, in any run."""
    log = _add(LogBuilder(tmp_path), [[[Message(A, b"x", 5, True)]]])
    plan = BY_TIME.plan(log, 100)
    previous = Manifest(segments=run_tasks(plan)[0], horizon=plan.horizon)
    log.add_segment(2, [[Message(A, b"y", 4, True)]])
    records, _ = run_tasks(BY_TIME.plan(log, 101, previous=previous))
    assert read_messages(log.ledgers_dir, records) == log.messages[:1]
