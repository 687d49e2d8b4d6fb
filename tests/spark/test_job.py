"""Compares the Spark job, with real shuffles, to the model."""

from __future__ import annotations

import errno
import random
import time
from pathlib import Path

import pytest

from ledgerfold.compactor.job import plan as plan_module
from ledgerfold.compactor.job.run import CompactionRun
from ledgerfold.compactor.job.session import Session
from ledgerfold.compactor.strategies.registry import MAKERS, Maker, fixed
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.storage.entry import Compression
from ledgerfold.storage.errors import Corruption, DiskFailure, InvalidRequest, StrategyFailed
from ledgerfold.storage.files import REAL, Files
from ledgerfold.storage.names import deletion_vector_path, key_index_path
from ledgerfold.storage.segment import file_names
from ledgerfold.strategies.ready_made import HeaderVersion
from ledgerfold.v1.records_pb2 import LedgerRecord
from tests.model.strategic_model import renumbered, strategic
from tests.model.strategy_model import Message, outcome_of
from tests.support.compaction import LogBuilder, damage, read_messages
from tests.support.strategic_classes import Raises
from tests.support.strategic_log import StrategicLog
from tests.support.strategies import FIRST


@pytest.fixture(autouse=True)
def small_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes tasks so small that a short log is spread over several of each kind."""
    monkeypatch.setattr(plan_module, "SOLO_BYTES", 0)
    monkeypatch.setattr(plan_module, "SCAN_TASK_KEY_BYTES", 2_000)
    monkeypatch.setattr(plan_module, "MESSAGE_TASK_BYTES", 16_000)
    monkeypatch.setattr(plan_module, "BUCKET_BYTES", 16_000)
    monkeypatch.setattr(plan_module, "BUCKET_KEY_BYTES", 4_000)
    monkeypatch.setattr(plan_module, "COPY_TASK_BYTES", 16_000)


def _add(log: LogBuilder, seed: int, ledgers: range) -> None:
    """Adds batches of random messages, some of them tombstones, some without a key."""
    generator = random.Random(seed)
    for ledger_id in ledgers:
        batches = [
            [
                Message(
                    generator.choice([None, *(b"key-%d" % n for n in range(60))]),
                    b"v" * generator.choice([0, 1, 50, 400]),
                )
                for _ in range(generator.randint(1, 12))
            ]
            for _ in range(20)
        ]
        log.add_segment(ledger_id, batches, generator.choice(list(Compression)))


@pytest.mark.parametrize(
    ("retain", "is_mixed"), [(False, True), (True, False)], ids=["mixed", "native"]
)
def test_two_runs_equal_the_model(
    session: Session, tmp_path: Path, retain: bool, is_mixed: bool
) -> None:
    """The first run and one on its output and new segments leave the model's messages and
    counts.
    """
    log = LogBuilder(tmp_path, is_mixed=is_mixed)
    _add(log, 1, range(1, 7))
    first = CompactionRun(log.plan(100, retain), session, REAL, time.time)
    manifest = first.execute()
    assert first.progress.tasks_done == first.progress.tasks_total > 1
    assert read_messages(log.ledgers_dir, manifest.segments) == log.expected(retain)
    outcome = log.outcome(retain)
    counts = manifest.counts
    assert (counts.messages_in, counts.messages_out) == (
        len(log.messages),
        len(outcome.survivors),
    )
    assert (counts.removed_events, counts.tombstones, counts.null_keys, counts.keys) == (
        outcome.removed_events,
        outcome.tombstones,
        outcome.null_keys,
        outcome.keys,
    )
    _add(log, 2, range(7, 12))
    second = CompactionRun(log.plan(101, retain, manifest), session, REAL, time.time).execute()
    assert read_messages(log.ledgers_dir, second.segments) == log.expected(retain)
    files = {f"101/{path.name}" for path in (log.ledgers_dir / "101").iterdir()}
    assert files == file_names(LedgerRecord(segments=second.segments))


# Other combinations are the inline engine's (tests/unit/compactor/test_incremental_runs.py).
@pytest.mark.parametrize(
    ("damages", "garbage_max", "is_mixed"),
    [(False, 0.9, True), (False, 0, False), (True, 0.9, False)],
)
def test_runs_that_look_up_old_messages_equal_the_model(
    session: Session,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damages: bool,
    garbage_max: float,
    is_mixed: bool,
) -> None:
    """A second and a third run keep unchanged segments, or most of them. If a key index is damaged,
    the job reads everything, with the same result.
    """
    monkeypatch.setattr(plan_module, "SCANNED_SHARE_MAX", 0.9)
    log = LogBuilder(tmp_path, is_mixed=is_mixed)
    _add(log, 1, range(1, 9))
    plan = log.plan(100, True, segment_bytes_max=3_000)
    manifest = CompactionRun(plan, session, REAL, time.time).execute()
    for number, ledger_id in ((2, 20), (3, 21)):
        if damages:
            damage(log.ledgers_dir / key_index_path(manifest.segments[0].path), 50)
        new = [Message(b"key-%d" % key, b"new") for key in (1, 10 * number, 11 * number)]
        log.add_segment(ledger_id, [new], Compression.NONE)
        plan = log.plan(100 + number, True, manifest, segment_bytes_max=3_000)
        plan.keeps_segments, plan.segment_garbage_max = True, garbage_max
        run = CompactionRun(plan, session, REAL, time.time)
        manifest = run.execute()
        assert bool(manifest.counts.vector_bytes) == (garbage_max > 0 and not damages)
        assert read_messages(log.ledgers_dir, manifest.segments) == log.expected(True)
        assert bool(manifest.counts.bytes_kept) != damages
        counts = manifest.counts
        assert counts.messages_out == len(log.outcome(True).survivors)
        assert counts.keys == counts.messages_out - counts.null_keys


def test_a_damaged_deletion_vector_fails_the_run(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the vector, dead messages would reappear."""
    monkeypatch.setattr(plan_module, "SCANNED_SHARE_MAX", 0.9)
    log = LogBuilder(tmp_path)
    _add(log, 1, range(1, 9))
    previous = None
    for number in range(3):
        plan = log.plan(100 + number, True, previous, segment_bytes_max=3_000)
        plan.keeps_segments, plan.segment_garbage_max = True, 0.9
        run = CompactionRun(plan, session, REAL, time.time)
        if number == 2:
            break
        previous = run.execute()
        new = [Message(b"key-%d" % key, b"new") for key in (1, 2, 3)]
        log.add_segment(20 + number, [new], Compression.NONE)
    vectored = [each for each in plan.segments if each.HasField("dead")]
    assert vectored
    for each in vectored:
        damage(log.ledgers_dir / deletion_vector_path(each.path), 10)
    with pytest.raises(Corruption, match=r"\.dead"):
        run.execute()
    assert not (log.ledgers_dir / "102").exists()


def test_a_user_defined_strategy_runs_on_spark(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The strategy is registered here, in the driver. Spark's workers, which lack the entry point,
    get it with the job.
    """
    monkeypatch.setitem(MAKERS, FIRST.name, fixed(FIRST))
    log = LogBuilder(tmp_path)
    _add(log, 4, range(1, 7))
    run = CompactionRun(log.plan(100, strategy=FIRST.name), session, REAL, time.time)
    left = read_messages(log.ledgers_dir, run.execute().segments)
    assert run.progress.tasks_total > 1
    first = {message.key: message for message in reversed(log.messages) if message.value}
    assert left == sorted(message for key, message in first.items() if key is not None)


@pytest.mark.parametrize("renumber", [False, True])
def test_a_message_strategy_runs_message_by_message(
    session: Session, tmp_path: Path, renumber: bool
) -> None:
    """Two runs by a ready-made class leave what the model leaves, with the expected numbers of
    calls.
    """
    log = StrategicLog(tmp_path)
    _add(log, 5, range(1, 7))
    plan = log.strategic_plan(100, "header-version", renumber)
    run = CompactionRun(plan, session, REAL, time.time)
    previous = run.execute()
    assert run.progress.tasks_done == run.progress.tasks_total > 1
    assert previous.strategy_version == "1"
    _add(log, 6, range(7, 12))
    plan = log.strategic_plan(101, "header-version", renumber, previous=previous)
    left = CompactionRun(plan, session, REAL, time.time).execute()
    expected = strategic(log.said(), HeaderVersion("n")).left
    ids = [message.message_id for message in expected]
    assert [tuple(each[:3]) for each in read_messages(log.ledgers_dir, left.segments)] == (
        renumbered(ids) if renumber else ids
    )


def test_a_class_that_raises_fails_the_run_and_leaves_nothing(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark passes on the full error."""
    bad = Maker(1, lambda settings, time_ms: MessageStrategy("bad", 1, Raises))
    monkeypatch.setitem(MAKERS, "bad", bad)
    log = LogBuilder(tmp_path)
    _add(log, 3, range(1, 7))
    log.add_segment(7, [[Message(b"k", b"two")]])
    run = CompactionRun(log.plan(100, strategy="bad"), session, REAL, time.time)
    with pytest.raises(StrategyFailed, match=r"'bad': LookupError: no such price, .* 7:0:-1:0"):
        run.execute()
    assert not (log.ledgers_dir / "100").exists()


@pytest.mark.parametrize(
    ("name", "settings"),
    [("event-time", {}), ("keep-n", {"n": "3"}), ("event-time-window", {"lag_ms": "20"})],
)
def test_strategies_over_columns_equal_the_models(
    session: Session, tmp_path: Path, name: str, settings: dict[str, str]
) -> None:
    """The first run, then one on its output and new segments; event times are random, some messages
    unbatched.
    """
    log, generator, previous = LogBuilder(tmp_path), random.Random(7), None
    for ledger_id in range(100, 102):
        for number in range(6):
            batches = [
                [
                    Message(
                        generator.choice([None, *(b"key-%d" % n for n in range(60))]),
                        b"v" * generator.choice([0, 1, 50, 50]),
                        generator.randint(0, 100),
                        bool(index % 3),
                    )
                    for _ in range(generator.randint(1, 12))
                ]
                for index in range(20)
            ]
            log.add_segment(ledger_id * 10 + number, batches)
        plan = log.plan(ledger_id, previous=previous, strategy=name, settings=settings, time_ms=100)
        run = CompactionRun(plan, session, REAL, time.time)
        previous = run.execute()
        outcome = outcome_of(name, settings, log.told, time_ms=100)
        assert read_messages(log.ledgers_dir, previous.segments) == log.left(outcome)
        assert run.progress.tasks_total > 5
        assert previous.counts.messages_out == len(outcome.survivors)


def test_damage_fails_the_run_and_leaves_nothing(session: Session, tmp_path: Path) -> None:
    """A flipped bit in one of many segments: the error names file and place."""
    log = LogBuilder(tmp_path)
    _add(log, 3, range(1, 7))
    path = log.ledgers_dir / log.segments[3].path
    damage(path, 100)
    run = CompactionRun(log.plan(100), session, REAL, time.time)
    with pytest.raises(Corruption, match="is damaged at byte 80") as raised:
        run.execute()
    assert str(path) in raised.value.message
    assert not (log.ledgers_dir / "100").exists()


class FullDisk(Files):
    """A file system on which closing the first folder fails."""

    has_failed = False

    def sync_dir(self, path: Path) -> None:
        if not self.has_failed:
            self.has_failed = True
            raise DiskFailure(str(path), "sync", OSError(errno.EIO, "Input/output error"))
        super().sync_dir(path)


def test_a_ledger_that_cannot_be_closed_fails_the_run(session: Session, tmp_path: Path) -> None:
    """STR-08: the run fails and its ledger is deleted; the previous one stays; the next run
    succeeds.
    """
    log, files = LogBuilder(tmp_path), FullDisk()
    log.add_segment(1, [[Message(b"a", b"5"), Message(b"b", b"1")]])
    before = CompactionRun(log.plan(100, strategy="newest"), session, REAL, time.time).execute()
    log.add_segment(2, [[Message(b"a", b"3")]])
    with pytest.raises(DiskFailure):
        CompactionRun(
            log.plan(101, previous=before, strategy="newest"), session, files, time.time
        ).execute()
    assert not (log.ledgers_dir / "101").exists()
    assert len(read_messages(log.ledgers_dir, before.segments)) == 2
    after = CompactionRun(
        log.plan(102, previous=before, strategy="newest"), session, files, time.time
    ).execute()
    assert read_messages(log.ledgers_dir, after.segments) == log.expected()


def test_a_run_without_survivors_writes_nothing(session: Session, tmp_path: Path) -> None:
    """Tombstones for all keys leave a manifest without segments, and no folder."""
    log = LogBuilder(tmp_path)
    log.add_segment(1, [[Message(b"k", b"1")]])
    log.add_segment(2, [[Message(b"k", b"")]])
    manifest = CompactionRun(log.plan(100), session, REAL, time.time).execute()
    assert list(manifest.segments) == []
    assert (manifest.counts.keys, manifest.counts.removed_events) == (1, 1)
    assert not (log.ledgers_dir / "100").exists()


def test_a_plan_without_segments_is_an_empty_manifest(session: Session, tmp_path: Path) -> None:
    """Nothing is in range: no job, no files."""
    log = LogBuilder(tmp_path)
    manifest = CompactionRun(log.plan(100), session, REAL, time.time).execute()
    assert list(manifest.segments) == []
    assert not (log.ledgers_dir / "100").exists()


def test_an_existing_folder_is_refused_and_not_changed(session: Session, tmp_path: Path) -> None:
    """A run creates its folder; an existing one is not its own."""
    log = LogBuilder(tmp_path)
    log.add_segment(1, [[Message(b"k", b"1")]])
    other = log.ledgers_dir / "100" / "00000000000000000000.log"
    other.parent.mkdir()
    other.write_bytes(b"another's")
    with pytest.raises(InvalidRequest, match="already exists"):
        CompactionRun(log.plan(100), session, REAL, time.time).execute()
    assert other.read_bytes() == b"another's"
