"""Tests the inline engine: stages, shuffles, cancellation, and jobs in a separate process."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Iterable, Iterator
from operator import index
from pathlib import Path

import pytest

from ledgerfold.compactor.job.inline import InlineEngine, Interrupted
from ledgerfold.compactor.job.inline_process import ProcessEnded, TaskFailed
from ledgerfold.compactor.job.progress import Parts
from ledgerfold.compactor.job.run import CompactionRun
from ledgerfold.compactor.kafka.throttle import TaskThrottle
from ledgerfold.compactor.user_strategies.own import STRATEGIC, Own
from ledgerfold.storage.errors import CompactionCancelled, CompactionFailed, StrategyFailed
from ledgerfold.storage.files import REAL
from ledgerfold.strategies.loading import load
from ledgerfold.strategies.strategic import READS
from tests.model.strategy_model import Message
from tests.support.compaction import LogBuilder, read_messages
from tests.support.processes import MARK, end, marked, new_mark
from tests.support.waiting import wait_until

CLASSES = "tests.support.strategic_classes"


def _pairs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    return ((number % 3, number) for number in numbers)


def _own(name: str) -> Own:
    loaded = load(f"{CLASSES}:{name}", {})
    reads = tuple(getattr(loaded.strategy, "reads", READS))
    return Own(f"{CLASSES}:{name}", (), loaded.version, loaded.source, STRATEGIC, reads)


def _log(folder: Path, *values: bytes) -> LogBuilder:
    log = LogBuilder(folder)
    log.add_segment(1, [[Message(b"k", value, 1)] for value in values])
    return log


def test_a_shuffle_sends_rows_to_their_partition_in_order() -> None:
    """Rows of earlier tasks come first."""
    rows = InlineEngine().context.parallelize(range(9), 2).mapPartitions(_pairs)
    sums = rows.partitionBy(3, index).mapPartitionsWithIndex(
        lambda number, mine: iter([(number, [value for _, value in mine])])
    )
    assert sums.collect() == [(0, [0, 3, 6]), (1, [1, 4, 7]), (2, [2, 5, 8])]


def test_stages_are_chained_and_cached_rows_are_computed_once() -> None:
    """A row passes all stages before the next is made; kept rows may be read twice."""
    steps: list[str] = []

    def noted(name: str, rows: Iterable[int]) -> Iterator[int]:
        for row in rows:
            steps.append(f"{name}{row}")
            yield row

    engine = InlineEngine()
    first = engine.context.parallelize([1, 2], 1).mapPartitions(lambda rows: noted("a", rows))
    kept = engine.keep(first.mapPartitions(lambda rows: noted("b", rows)))
    assert steps == ["a1", "b1", "a2", "b2"]
    assert kept.collect() == engine.context.runJob(kept, list, [0]) == [1, 2]
    assert len(steps) == 4


def test_a_task_that_has_read_its_rows_holds_none() -> None:
    """As in Spark: a task may need the memory for its results."""
    made = list[weakref.ref[_Row]]()

    def scan(numbers: Iterable[int]) -> Iterator[tuple[int, _Row]]:
        for _ in numbers:
            row = _Row()
            made.append(weakref.ref(row))
            yield 0, row
            del row

    def count(rows: Iterable[tuple[int, _Row]]) -> Iterator[int]:
        yield sum(1 for _ in rows)
        gc.collect()
        yield sum(row() is not None for row in made)

    rows = InlineEngine().context.parallelize([1, 2, 3], 2).mapPartitions(scan)
    assert rows.partitionBy(1, index).mapPartitions(count).collect() == [3, 0]


def test_a_job_of_some_partitions_leaves_the_others() -> None:
    engine = InlineEngine()
    pairs = engine.context.parallelize([(n % 3, n) for n in range(9)], 2)
    kept = engine.keep(pairs.partitionBy(3, index))
    assert engine.context.runJob(kept, list, [2]) == [(2, 2), (2, 5), (2, 8)]
    doubled = kept.mapPartitionsWithIndex(
        lambda number, mine: ((number, 2 * value) for _, value in mine)
    )
    assert engine.context.runJob(doubled, list, range(2)) == [
        (number, 2 * value) for number in range(2) for value in range(number, 9, 3)
    ]


def test_a_cancelled_job_ends_at_its_next_row() -> None:
    """Another group's cancellation does not end it; a group that begins later runs."""
    engine = InlineEngine()

    def cancelling(rows: Iterable[int]) -> Iterator[int]:
        yield 1
        engine.cancel("other")
        yield 2
        engine.cancel("group")
        yield 3
        raise AssertionError("it went on")

    rows = engine.context.parallelize([0], 1).mapPartitions(cancelling)
    with engine.job_group("group", "t"), pytest.raises(Interrupted):
        rows.collect()
    with engine.job_group("next", "t"):
        assert engine.context.parallelize([1], 1).collect() == [1]


class _Row:
    """A row that a weak reference can refer to."""


def test_a_failed_run_holds_no_rows() -> None:
    """Neither the shuffled nor the kept ones, also while its error is still known."""
    engine, made = InlineEngine(), list[weakref.ref[_Row]]()

    def rows(numbers: Iterable[int]) -> Iterator[tuple[int, _Row]]:
        for number in numbers:
            row = _Row()
            made.append(weakref.ref(row))
            yield number, row

    def failing(given: Iterable[tuple[int, _Row]]) -> Iterator[_Row]:
        for _, row in given:
            yield row
            raise ZeroDivisionError("a bug")

    gc.disable()
    try:
        kept = engine.keep(engine.context.parallelize([1, 2], 1).mapPartitions(rows))
        shuffled = engine.context.parallelize(range(4), 2).mapPartitions(rows).partitionBy(2, index)
        with pytest.raises(ZeroDivisionError) as caught:
            shuffled.mapPartitions(failing).collect()
        kept.unpersist()
        assert len(made) == 6
        assert [each for each in made if each() is not None] == []
        assert "a bug" in str(caught.value)
    finally:
        gc.enable()


def test_a_cancelled_task_stops_waiting() -> None:
    """A throttled cleaning yields no row while it waits."""
    engine = InlineEngine()

    def waiting(rows: Iterable[int]) -> Iterator[int]:
        engine.cancel("group")
        TaskThrottle(0).spend(1)
        yield 1

    rows = engine.context.parallelize([0], 1).mapPartitions(waiting)
    with engine.job_group("group", "t"), pytest.raises(Interrupted):
        rows.collect()


def test_a_cancelled_run_leaves_nothing(tmp_path: Path) -> None:
    """It is cancelled as it begins to copy."""
    log, engine = _log(tmp_path, b"one"), InlineEngine()

    def clock() -> float:
        run.cancel()
        return 0.0

    run = CompactionRun(log.plan(100), engine, REAL, clock)
    with pytest.raises(CompactionCancelled):
        run.execute()
    assert not (log.ledgers_dir / "100").exists()
    assert CompactionRun(log.plan(100), engine, REAL, time.time).execute().engine == "inline"


def test_a_bug_in_a_task_fails_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Spark, with the error's text; nothing remains."""
    log = _log(tmp_path, b"one")

    def broken(*_: object) -> Iterator[object]:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("ledgerfold.compactor.job.tasks.copy_survivors", broken)
    with pytest.raises(CompactionFailed, match="a bug"):
        CompactionRun(log.plan(100), InlineEngine(), REAL, time.time).execute()
    assert not (log.ledgers_dir / "100").exists()


@pytest.mark.process
def test_a_user_defined_strategy_runs_in_a_process_of_its_own(tmp_path: Path) -> None:
    """The worker sees its progress; two runs in a row."""
    log, engine, own = _log(tmp_path, b"b", b"c", b"a"), InlineEngine(), _own("Everything")
    for ledger_id in (100, 101):
        run = CompactionRun(log.plan(ledger_id, strategy=own.name), engine, REAL, time.time, own)
        manifest = run.execute()
        left = [each.value for each in read_messages(log.ledgers_dir, manifest.segments)]
        assert (left, manifest.strategy_version) == ([b"c"], "7")
        assert run.progress.tasks_done == run.progress.tasks_total == 1


@pytest.mark.process
def test_a_user_defined_strategy_that_raises_fails_the_run(tmp_path: Path) -> None:
    """Its error names it, and the message."""
    log, own = _log(tmp_path, b"one", b"two"), _own("Raises")
    plan = log.plan(100, strategy=own.name)
    with pytest.raises(StrategyFailed, match="LookupError: no such price"):
        CompactionRun(plan, InlineEngine(), REAL, time.time, own).execute()
    assert not (log.ledgers_dir / "100").exists()


def _ends(rows: Iterable[int]) -> Iterator[int]:
    import os

    os._exit(3)
    yield 1


def _raises(rows: Iterable[int]) -> Iterator[int]:
    yield 1
    raise ValueError("what\nmore")


@pytest.mark.process
def test_exit_and_errors_of_a_strategys_process_are_reported(tmp_path: Path) -> None:
    """They differ from a task's error; the engine keeps working."""
    engine, own = InlineEngine(), _own("Everything")
    with engine.code_of(own):
        given = engine.context.parallelize([1], 1)
        with pytest.raises(ProcessEnded) as ended:
            given.mapPartitions(_ends).collect()
        with pytest.raises(TaskFailed, match=r"^ValueError: what$"):
            given.mapPartitions(_raises).collect()
        assert given.collect() == [1]
    assert engine.is_end_of_process(ended.value)
    assert engine.progress.value == Parts()


@pytest.mark.process
def test_the_inline_engine_does_not_import_pyspark() -> None:
    """The worker's modules, with the jobs of every kind."""
    code = (
        "import sys, ledgerfold.compactor.worker, ledgerfold.compactor.starting\n"
        "print(sorted({name.partition('.')[0] for name in sys.modules}"
        " & {'pyspark', 'py4j', 'pandas'}))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@pytest.mark.process
def test_a_worker_starts_with_what_a_first_compaction_needs() -> None:
    """Compares the modules before and after the warm-up. A test of what a start loads had been
    missing.
    """
    code = (
        "import sys, ledgerfold.compactor.worker\n"
        "from ledgerfold.compactor.starting import InlineStart\n"
        "late = ('ledgerfold.compactor.kafka.run', 'ledgerfold.compactor.what_if.run',\n"
        "        'ledgerfold.compactor.what_if.kafka.replays')\n"
        "for _ in range(2):\n"
        "    print([name in sys.modules for name in (*late, 'importlib.metadata')])\n"
        "    start = InlineStart()\n"
        "    start.warm_up(start.start())\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, after = ran.stdout.splitlines()
    assert before == "[False, False, False, False]"
    assert after.startswith("[True, True, True, ")


def _forks(rows: Iterable[int]) -> Iterator[int]:
    for leaves in (False, True):
        if os.fork() == 0:
            if leaves:
                os.setsid()
            while True:
                signal.pause()
    yield from (1, 2)


def _forks_and_ends(rows: Iterable[int]) -> Iterator[int]:
    yield from _forks(rows)
    os._exit(3)


@pytest.mark.process
@pytest.mark.parametrize("way", ["ends", "answers"])
def test_child_processes_of_a_strategy_end_with_it(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forks hold its standard output, in whatever session they are: the job ends all the same."""
    engine = InlineEngine()
    mark = new_mark()
    monkeypatch.setenv(MARK, mark)
    with engine.code_of(_own("Everything")):
        given = engine.context.parallelize([1], 1)
        if way == "ends":
            with pytest.raises(ProcessEnded):
                given.mapPartitions(_forks_and_ends).collect()
        else:
            assert given.mapPartitions(_forks).collect() == [1, 2]
    assert marked(mark) == []


def _hangs(rows: Iterable[int]) -> Iterator[int]:
    signal.pause()
    yield from rows


def run_a_job_that_hangs() -> None:
    """Runs in a process of its own, which the test kills."""
    engine = InlineEngine()
    with engine.code_of(_own("Everything")):
        engine.context.parallelize([1], 1).mapPartitions(_hangs).collect()


@pytest.mark.process
def test_the_process_of_the_tasks_ends_if_the_worker_is_killed() -> None:
    mark, code = new_mark(), f"from {__name__} import run_a_job_that_hangs as run; run()"
    environment = {**os.environ, MARK: mark, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as worker:
        wait_until(lambda: len(marked(mark)) == 2, "the process of the tasks")
        worker.kill()
    try:
        wait_until(lambda: not marked(mark), "its end")
    finally:
        end(mark)
