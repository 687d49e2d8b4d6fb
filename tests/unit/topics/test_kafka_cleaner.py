"""Turns of the cleaner: its choice, obstacles of a round, remains of a failure."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import cast

import pytest

from ledgerfold.broker.common.clock import WallClock
from ledgerfold.broker.kafka.cleaner import cleaner as cleaner_module
from ledgerfold.broker.kafka.cleaner.pass_result import PassResult
from ledgerfold.broker.kafka.cleaner.states import MARKED, Paused
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.topics.kafka_settings import change_broker_config, change_topic_config
from ledgerfold.broker.topics.kafka_topic import KafkaTopic
from ledgerfold.broker.worker.compactor import Compactor
from ledgerfold.storage.error_codec import decode_error, encode_error
from ledgerfold.storage.errors import (
    CompactionFailed,
    CompactorUnavailable,
    DiskFailure,
    KafkaError,
    LedgerfoldError,
    Moved,
)
from ledgerfold.v1.compactor_pb2 import CleanManifest, CleanPlan
from tests.model.broker_lab import DATA, TOPIC
from tests.support.kafka_lab import KafkaLab

OTHER = f"{TOPIC}-2"
RATE = "log.cleaner.io.max.bytes.per.second"
A, B = (b"a", b"1"), (b"b", b"2")


class HeldWorker:
    """Carries out nothing: a round waits in it until the test says how it ends."""

    def __init__(self) -> None:
        self.plans: list[CleanPlan] = []
        self.error: LedgerfoldError | None = None
        self.began, self.go_on = asyncio.Event(), asyncio.Event()

    async def clean(self, plan: CleanPlan) -> CleanManifest:
        self.plans.append(plan)
        self.began.set()
        if self.error is not None:
            raise self.error
        await self.go_on.wait()
        if self.error is not None:
            raise self.error
        return CleanManifest(run_id=plan.run_id, end_offset=plan.first_dirty_offset)


@pytest.fixture
def lab() -> Iterator[KafkaLab]:
    lab = KafkaLab({"cleanup.policy": "compact"})
    yield lab
    lab.close()


@pytest.fixture
def worker(lab: KafkaLab) -> HeldWorker:
    worker = HeldWorker()
    lab.broker.cleaner._compactor = cast(Compactor, worker)
    return worker


def fill(lab: KafkaLab, topic: KafkaTopic | None = None) -> None:
    topic = topic or lab.kafka
    lab.run(topic.append_batches(lab.batch([A]) + lab.batch([B]), Origin.CLIENT))
    lab.run(topic.roll())
    lab.run(topic.append_batches(lab.batch([A]), Origin.CLIENT))


def turn_with(lab: KafkaLab, worker: HeldWorker, meanwhile: Callable[[], object]) -> PassResult:
    """Runs a turn, and `meanwhile` while the worker has it."""

    async def both() -> PassResult:
        turn = asyncio.create_task(lab.broker.cleaner.run_pass())
        await worker.began.wait()
        done = meanwhile()
        if asyncio.iscoroutine(done):
            await done
        worker.go_on.set()
        return await turn

    return lab.run(both())


def test_a_plan_lists_everything_up_to_the_active_segment(
    lab: KafkaLab, worker: HeldWorker
) -> None:
    fill(lab)
    turn = turn_with(lab, worker, lambda: None)
    (plan,) = worker.plans
    assert [(each.base_offset, each.next_base_offset) for each in plan.segments] == [(0, 2)]
    assert (plan.first_dirty_offset, plan.upper_bound, plan.keys_max) == (0, 2, 5_033_164)
    assert turn.topic == TOPIC
    assert turn.failure is None


def test_the_worker_keeps_a_cleaning_within_the_rate(
    lab: KafkaLab, worker: HeldWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rate at the round's begin applies; on emulated time, none."""
    fill(lab)
    worker.go_on.set()
    lab.run(change_broker_config(lab.broker, {RATE: "1000"}))
    lab.run(lab.broker.cleaner.run_pass())
    monkeypatch.setattr(lab.broker, "clock", WallClock())
    lab.run(lab.broker.cleaner.run_pass())
    lab.run(change_broker_config(lab.broker, {RATE: "2000"}))
    lab.run(lab.broker.cleaner.run_pass())
    rates = [
        plan.io_bytes_per_second if plan.HasField("io_bytes_per_second") else None
        for plan in worker.plans
    ]
    assert rates == [None, 1000, 2000]


def test_a_worker_that_fails_leaves_no_files(lab: KafkaLab, worker: HeldWorker) -> None:
    """Nor do those that it had begun. Workers had failed before they wrote anything."""

    async def fail(plan: CleanPlan) -> CleanManifest:
        for ledger_id in plan.ledger_ids:
            folder = DATA / "ledgers" / str(ledger_id)
            lab.files.make_dir(folder)
            lab.files.create(folder / "begun").close()
        raise CompactionFailed("phase two", "the disk was full")

    fill(lab)
    before = lab.files.listdir(DATA / "ledgers")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(worker, "clean", fail)
        assert lab.clean().failure is not None
    assert lab.files.listdir(DATA / "ledgers") == before


def test_a_stop_waits_for_a_requested_cleaning(
    lab: KafkaLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A request started it while the logs were loaded. Every cleaner had been started."""
    fill(lab)
    has_begun, has_ended = asyncio.Event(), asyncio.Event()

    class SlowWorker(HeldWorker):
        async def clean(self, plan: CleanPlan) -> CleanManifest:
            has_begun.set()
            try:
                return await super().clean(plan)
            finally:
                for _ in range(10):
                    await asyncio.sleep(0)
                has_ended.set()

    cleaner = lab.broker.cleaner
    monkeypatch.setattr(cleaner, "_compactor", SlowWorker())

    async def stop() -> None:
        await cleaner.stop()
        turn = asyncio.ensure_future(cleaner.run_pass(TOPIC))
        await has_begun.wait()
        await cleaner.stop()
        assert has_ended.is_set()
        assert (await turn).was_aborted

    lab.run(stop())


def test_with_a_test_clock_a_thread_waits_after_its_cleaning(
    lab: KafkaLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lab)
    lab.run(change_broker_config(lab.broker, {RATE: "0.5"}))
    waits = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        raise asyncio.CancelledError

    monkeypatch.setattr(lab.clock, "sleep", sleep)
    with suppress(asyncio.CancelledError):
        lab.run(lab.broker.cleaner._run_passes(0))
    (turn,) = lab.broker.cleaner.last_passes
    assert turn.outcome is not None
    stats = turn.outcome.manifest.stats
    size_bytes = stats.bytes_read + stats.bytes_written
    assert waits == [pytest.approx(size_bytes / 0.5 - turn.elapsed_ms / 1000)]


def test_a_sufficiently_clean_log_is_skipped(lab: KafkaLab, worker: HeldWorker) -> None:
    lab.add([A])
    turn = lab.run(lab.broker.cleaner.run_pass())
    assert turn.topic is None
    assert worker.plans == []


def test_a_failed_cleaning_marks_its_log_uncleanable(lab: KafkaLab, worker: HeldWorker) -> None:
    fill(lab)
    worker.error = CompactionFailed("map", "it is no map")
    turn = lab.run(lab.broker.cleaner.run_pass())
    assert turn.failure is worker.error
    assert lab.broker.cleaner.states.is_uncleanable(TOPIC)
    assert lab.kafka.partition.checkpoint == 0
    assert lab.run(lab.broker.cleaner.run_pass()).topic is None
    gauges = lab.broker.cleaner.gauge_values()
    assert gauges["kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count"] == 1
    assert gauges["kafka.log:type=LogCleanerManager,name=uncleanable-bytes"] > 0
    lab.restart()
    assert not lab.broker.cleaner.states.is_uncleanable(TOPIC)


def test_a_worker_that_dies_does_not_mark_the_log_at_once(
    lab: KafkaLab, worker: HeldWorker
) -> None:
    """Another one may do it. A log that none survives is left alone, for the others' sake."""
    fill(lab)
    worker.error = died = CompactionFailed("map", "the worker died", worker_died=True)
    for _ in range(2):
        assert lab.run(lab.broker.cleaner.run_pass()).failure is died
        assert not lab.broker.cleaner.states.is_uncleanable(TOPIC)
    worker.error = None
    worker.go_on.set()
    assert lab.run(lab.broker.cleaner.run_pass()).failure is None
    worker.error = died
    for times in range(3):
        assert not lab.broker.cleaner.states.is_uncleanable(TOPIC), times
        lab.run(lab.broker.cleaner.run_pass())
    assert lab.broker.cleaner.states.is_uncleanable(TOPIC)


@pytest.mark.parametrize("worker_died", [True, False])
def test_a_reported_failure_of_the_worker_ends_no_thread(
    lab: KafkaLab, worker: HeldWorker, worker_died: bool
) -> None:
    """A system short of memory may kill Spark's JVM, and the worker reports it."""
    fill(lab)
    told = encode_error(CompactionFailed("map", "it ended", worker_died=worker_died))
    worker.error = decode_error(*told)
    assert lab.run(lab.broker.cleaner.run_pass()).failure is worker.error
    assert lab.broker.cleaner.states.is_uncleanable(TOPIC) is not worker_died


def test_a_recreated_topic_is_neither_marked_nor_paused(lab: KafkaLab) -> None:
    """As by an import that failed, and is begun again."""
    cleaner = lab.broker.cleaner
    for _ in range(2):
        lab.run(cleaner.abort_and_pause(TOPIC))
    cleaner.mark_uncleanable(TOPIC, "it is damaged")
    lab.run(lab.broker.delete_topic(TOPIC, force=True))
    lab.run(lab.broker.create_topic(TOPIC, {"cleanup.policy": "compact"}))
    assert cleaner.states.is_free(TOPIC)
    assert not cleaner.states.is_uncleanable(TOPIC)


def test_an_unload_keeps_marks_and_pauses(lab: KafkaLab, worker: HeldWorker) -> None:
    """A turn is taken meanwhile."""
    cleaner = lab.broker.cleaner
    fill(lab)
    cleaner.mark_uncleanable(TOPIC, "it is damaged")

    async def unloaded() -> None:
        await cleaner.abort_and_pause(TOPIC)
        await lab.broker.unload_topic(TOPIC)
        cleaner.start()
        await asyncio.sleep(0)
        await lab.clock.move_to(lab.clock.now_ms() + 60_000)
        await cleaner.stop()

    lab.run(unloaded())
    assert cleaner.states.of(TOPIC) == Paused(1)
    assert cleaner.states.uncleanable == {TOPIC: (MARKED, "it is damaged")}
    cleaner.resume(TOPIC)
    assert lab.kafka.name == TOPIC
    assert lab.run(cleaner.run_pass()).topic is None


def test_without_a_compactor_no_log_is_marked(lab: KafkaLab, worker: HeldWorker) -> None:
    fill(lab)
    worker.error = CompactorUnavailable("It is off.")
    with pytest.raises(CompactorUnavailable):
        lab.run(lab.broker.cleaner.run_pass())
    assert not lab.broker.cleaner.states.is_uncleanable(TOPIC)
    assert lab.broker.cleaner.states.is_free(TOPIC)


@pytest.mark.parametrize(
    "obstacle",
    [
        CompactorUnavailable("It is off."),
        DiskFailure("ledgers/9/0", "Writing", OSError(errno.ENOSPC, "No space left on device")),
    ],
    ids=["no worker", "full disk"],
)
def test_an_obstacle_outside_the_log_leaves_it_cleanable(
    lab: KafkaLab, worker: HeldWorker, obstacle: LedgerfoldError
) -> None:
    """As the worker reports it. Full disks had failed compactions of other topics only."""
    fill(lab)
    worker.error = decode_error(*encode_error(obstacle))
    with pytest.raises(type(obstacle)):
        lab.run(lab.broker.cleaner.run_pass())
    worker.error = None
    worker.go_on.set()
    assert lab.run(lab.broker.cleaner.run_pass()).topic == TOPIC


def test_a_log_without_room_on_the_disk_keeps_no_other_from_being_cleaned(
    lab: KafkaLab, worker: HeldWorker
) -> None:
    """Full disks had been tested with one log: of two, the dirtiest one was tried for ever."""
    fill(lab)
    cleaner = lab.broker.cleaner
    lab.run(lab.broker.create_topic(OTHER, {"cleanup.policy": "compact"}))
    other = lab.run(lab.broker.kafka_topic(OTHER))
    # Both are dirty from the start, and ties are broken by name.
    fill(lab, other)
    full = DiskFailure("ledgers/9/0", "Writing", OSError(errno.ENOSPC, "No space left on device"))
    worker.error, tried = full, list[str]()
    for _ in range(4):
        with pytest.raises(DiskFailure):
            lab.run(cleaner.run_pass())
        tried.append(worker.plans[-1].topic)
    assert {*tried[:2]} == {*tried[2:]} == {"t-0", "t-2-0"}


def test_old_segments_are_deleted_although_no_log_can_be_cleaned(
    lab: KafkaLab, worker: HeldWorker
) -> None:
    """Retention had been tested with a worker only."""
    config = {"cleanup.policy": "compact,delete", "retention.ms": "1000"}
    lab.run(change_topic_config(lab.broker, lab.kafka, config))
    fill(lab)
    lab.advance(1_000_000)
    worker.error = CompactorUnavailable("It is off.")
    with pytest.raises(CompactorUnavailable):
        lab.run(lab.broker.cleaner.run_pass())
    assert lab.kafka.partition.log_start_offset == 3
    assert [each.deleted_segments for each in lab.broker.cleaner.last_passes] == [2]


def test_a_topic_that_is_created_again_is_not_cleaned_by_the_plan_of_its_predecessor(
    lab: KafkaLab, worker: HeldWorker
) -> None:
    """While another log's checkpoint is repaired, on a slow disk, which no test had held up."""
    fill(lab)

    async def turn() -> PassResult:
        broker = lab.broker
        await broker.create_topic(OTHER, {"cleanup.policy": "compact"})
        other = (await broker.kafka_topic(OTHER)).partition
        await other.set_checkpoint(1_000)
        write = other.set_checkpoint

        async def slowly(offset: int | None) -> None:
            await broker.delete_topic(TOPIC, force=True)
            await broker.create_topic(TOPIC, {"cleanup.policy": "compact"})
            await write(offset)

        other.set_checkpoint = slowly  # type: ignore[method-assign]
        return await broker.cleaner.run_pass()

    assert lab.run(turn()).topic is None
    assert worker.plans == []
    assert not lab.broker.cleaner.states.is_uncleanable(TOPIC)


def test_a_failure_does_not_mark_the_successor_of_the_topic(
    lab: KafkaLab, worker: HeldWorker
) -> None:
    """Failures had met only the log that they were about."""
    fill(lab)
    topics, cleaner = lab.broker.kafka_topics, lab.broker.cleaner
    lab.run(lab.broker.create_topic(OTHER, {"cleanup.policy": "compact"}))
    before, successor = lab.kafka, lab.run(lab.broker.kafka_topic(OTHER))

    def replace() -> None:
        topics[TOPIC] = successor
        worker.error = CompactionFailed("copy", "its files are gone")

    assert turn_with(lab, worker, replace).was_aborted
    topics[TOPIC] = before
    assert not cleaner.states.is_uncleanable(TOPIC)
    assert successor.partition.checkpoint is None


@pytest.mark.parametrize("where", ["plan", "cleaning"])
def test_a_defect_marks_the_log_that_meets_it(
    lab: KafkaLab, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Tests had only raised errors of our own, and a thread ended at any other one."""
    fill(lab)
    cleaner = lab.broker.cleaner

    def break_down(*_: object) -> None:
        raise ZeroDivisionError("a defect")

    if where == "plan":
        monkeypatch.setattr(cleaner_module, "plan_of", break_down)
    else:
        monkeypatch.setattr(cleaner, "_cleaning", break_down)
    lab.run(cleaner.run_pass())
    kind, why = cleaner.states.uncleanable[TOPIC]
    assert (kind, "a defect" in why) == ("COMPACTION_FAILED", True)
    name = "kafka.log:type=LogCleanerManager,name=uncleanable-partitions-count"
    assert cleaner.gauge_values()[name] == 1


@pytest.mark.parametrize("how", ["pause", "policy", "unload", "delete"])
def test_changes_of_the_log_abort_its_cleaning(lab: KafkaLab, worker: HeldWorker, how: str) -> None:
    fill(lab)
    cleaner, topic = lab.broker.cleaner, lab.kafka

    async def change() -> None:
        match how:
            case "pause":
                await cleaner.abort_and_pause(TOPIC)
            case "policy":
                await change_topic_config(lab.broker, topic, {"cleanup.policy": "delete"})
            case "unload":
                await lab.broker.unload_topic(TOPIC)
            case "delete":
                await lab.broker.delete_topic(TOPIC, force=True)

    turn = turn_with(lab, worker, change)
    assert turn.was_aborted
    assert turn.outcome is None
    assert not cleaner.states.is_uncleanable(TOPIC)
    if how == "pause":
        assert lab.run(cleaner.run_pass()).topic is None
        cleaner.resume(TOPIC)
    if how != "delete":
        assert cleaner.states.is_free(TOPIC)
        assert lab.kafka.partition.checkpoint is None
        assert [offset for offset, *_ in lab.records()] == [0, 1, 2]


def test_a_manifest_that_differs_from_the_plan_changes_nothing(
    lab: KafkaLab, worker: HeldWorker
) -> None:
    fill(lab)

    async def clean(plan: CleanPlan) -> CleanManifest:
        return CleanManifest(end_offset=plan.upper_bound + 1)

    worker.clean = clean  # type: ignore[method-assign]
    turn = lab.run(lab.broker.cleaner.run_pass())
    assert isinstance(turn.failure, CompactionFailed)
    assert [offset for offset, *_ in lab.records()] == [0, 1, 2]


def test_records_below_the_log_start_are_removed_with_their_segments(
    lab: KafkaLab, worker: HeldWorker
) -> None:
    fill(lab)
    lab.run(lab.kafka.partition.set_log_start(2))
    worker.go_on.set()
    turn = lab.run(lab.broker.cleaner.run_pass())
    assert turn.deleted_segments == 1
    assert [each.base_offset for each in lab.kafka.log.segments] == [2]
    lab.crash()
    assert [each.base_offset for each in lab.kafka.log.segments] == [2]
    assert [offset for offset, *_ in lab.records()] == [2]


def test_retention_deletes_old_segments(lab: KafkaLab) -> None:
    lab.run(
        change_topic_config(
            lab.broker, lab.kafka, {"cleanup.policy": "delete", "retention.ms": "1000"}
        )
    )
    fill(lab)
    lab.run(lab.clock.move_to(lab.clock.now_ms() + 5_000))
    assert lab.run(lab.broker.cleaner.retain()) == 2
    assert lab.kafka.partition.log_start_offset == 3
    lab.crash()
    assert lab.add([B]) == [(3, 3)]
    assert [offset for offset, *_ in lab.records()] == [3]


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_an_unloading_topic_does_not_delay_retention_of_others(
    lab: KafkaLab, worker: HeldWorker, monkeypatch: pytest.MonkeyPatch, policy: str
) -> None:
    """Its log changes hands while its old segments are looked for."""
    old = {"cleanup.policy": policy, "retention.ms": "1000", "min.cleanable.dirty.ratio": "1.0"}
    lab.run(change_topic_config(lab.broker, lab.kafka, old))
    fill(lab)
    lab.run(lab.broker.create_topic(OTHER, old))
    other = lab.run(lab.broker.kafka_topic(OTHER, to_write=True))
    for _ in range(2):
        lab.run(other.append_batches(lab.batch([A]), Origin.CLIENT))
        lab.run(other.roll())
    lab.run(lab.clock.move_to(lab.clock.now_ms() + 5_000))

    async def refuse(*_: object) -> int:
        raise Moved("It is another broker's now.")

    monkeypatch.setattr(lab.kafka.log, "drop_first", refuse)
    cleaner = lab.broker.cleaner
    assert list(lab.broker.kafka_topics) == [TOPIC, OTHER]
    if policy == "delete":
        assert lab.run(cleaner.retain()) == 2
    else:
        assert lab.run(cleaner.run_pass()).deleted_segments == 2
    assert other.partition.log_start_offset == 2
    assert cleaner.states.is_free(TOPIC)


def test_two_threads_take_two_logs(lab: KafkaLab, worker: HeldWorker) -> None:
    """Also while one of them rewrites a checkpoint: the other waits, and chooses after it."""
    fill(lab)
    lab.run(lab.broker.create_topic(OTHER, {"cleanup.policy": "compact"}))
    other = lab.run(lab.broker.kafka_topic(OTHER, to_write=True))
    for _ in range(2):
        lab.run(other.append_batches(lab.batch([A]), Origin.CLIENT))
        lab.run(other.roll())
    lab.run(lab.kafka.partition.set_checkpoint(1000))
    worker.go_on.set()
    cleaner = lab.broker.cleaner

    async def both() -> list[PassResult]:
        return list(await asyncio.gather(cleaner.run_pass(), cleaner.run_pass()))

    assert {turn.topic for turn in lab.run(both())} == {TOPIC, OTHER}


GAUGE = "kafka.log:type=LogCleaner,name={}"


def test_t102_gauges_survive_a_cleaner_restart_and_end_with_the_broker(lab: KafkaLab) -> None:
    cleaner = lab.broker.cleaner
    idle = cleaner.gauge_values()

    async def restarted() -> dict[str, int]:
        cleaner.start()
        await cleaner.restart()
        values = cleaner.gauge_values()
        await cleaner.stop()
        return values

    assert lab.run(restarted()).keys() == idle.keys()
    assert set(idle.values()) == {0}
    assert cleaner.gauge_values() == {}


def test_t102_dead_threads_are_counted(lab: KafkaLab, monkeypatch: pytest.MonkeyPatch) -> None:
    cleaner = lab.broker.cleaner

    def break_down() -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(cleaner, "_plans", break_down)
    lab.run(cleaner._run_passes(0))
    assert cleaner.gauge_values()[GAUGE.format("DeadThreadCount")] == 1


def test_t95_refused_keyless_records_are_counted(lab: KafkaLab) -> None:
    """Each of them, and no batch that is not refused."""
    name = "kafka.server:type=BrokerTopicMetrics,name=NoKeyCompactedTopicRecordsPerSec"
    for pairs in ([A, (None, b"1"), (None, b"2")], [(None, b"3")]):
        with pytest.raises(KafkaError, match="without key"):
            lab.add(pairs)
    lab.add([A])
    assert lab.broker.cleaner.gauge_values()[name] == 3
