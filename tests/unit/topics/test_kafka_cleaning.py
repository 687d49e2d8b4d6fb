"""Rounds of the cleaner on a whole broker, with concurrent changes of the log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from ledgerfold.broker.kafka.config.config import NO_DEFECTS, Defects
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.broker.topics.kafka_settings import defects_of
from ledgerfold.broker.topics.policy_store import PolicyStore
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.v1.records_pb2 import Emulation, Policies
from tests.model.broker_lab import TOPIC
from tests.support.kafka_lab import KafkaLab

A, B, C, D = ((key, b"1") for key in (b"a", b"b", b"c", b"d"))


@pytest.fixture
def lab() -> Iterator[KafkaLab]:
    lab = KafkaLab({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    yield lab
    lab.close()


def configure(lab: KafkaLab, **settings: str) -> None:
    changes = {name.replace("_", "."): value for name, value in settings.items()}
    lab.run(lab.kafka.partition.change_config(changes))


def roll(lab: KafkaLab) -> None:
    lab.run(lab.kafka.roll())


def bases(lab: KafkaLab) -> list[int]:
    return [each.base_offset for each in lab.kafka.log.segments]


def offsets(lab: KafkaLab, start: int | None = None) -> list[int]:
    return [offset for offset, *_ in lab.records(start)]


def ledgers_on_disk(lab: KafkaLab) -> set[int]:
    return {each.ledger_id for each in lab.metadata.ledgers()}


def named(lab: KafkaLab) -> set[int]:
    return {each for segment in lab.kafka.log.segments for each in segment.ledger_ids}


def test_a_cleaning_replaces_the_segments_that_it_read(lab: KafkaLab) -> None:
    for pair in (A, B, A, C):
        lab.add([pair])
    roll(lab)
    turn = lab.clean()
    assert turn.outcome is not None
    assert turn.outcome.checkpoint == 4
    assert offsets(lab) == [1, 2, 3]
    assert ledgers_on_disk(lab) == named(lab)
    lab.crash()
    assert offsets(lab) == [1, 2, 3]
    assert lab.add([D]) == [(4, 4)]


def fragments(lab: KafkaLab) -> None:
    """Returns three cleaned segments, of which the middle one has lost its end, and a dirty one."""
    configure(lab, internal_segment_bytes="160")
    for pair in (A, B, C, A, A, D):
        lab.add([pair])
        if lab.kafka.log.end_offset % 2 == 0:
            roll(lab)
    lab.clean()
    assert bases(lab) == [0, 2, 4, 6]
    assert offsets(lab) == [1, 2, 4, 5]
    lab.add([(b"e", b"1")])
    roll(lab)


def test_a_read_during_a_cleaning_skips_nothing(lab: KafkaLab) -> None:
    """It finds nothing at the end of a segment that is merged with those behind it meanwhile."""
    fragments(lab)
    configure(lab, internal_segment_bytes="10000")
    reads = lab.kafka.log.reads
    read_part = reads._read_part
    turns = 0

    async def read_slowly(*args: Any) -> Any:
        nonlocal turns
        found = await read_part(*args)
        if not turns:
            turns += 1
            await lab.broker.cleaner.run_pass(TOPIC)
        return found

    reads._read_part = read_slowly  # type: ignore[method-assign, assignment]
    assert offsets(lab, 3) == [4, 5, 6]
    assert bases(lab) == [0, 7]


def test_files_that_cannot_be_removed_do_not_fail_a_cleaning(
    lab: KafkaLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pair in (A, A):
        lab.add([pair])
    roll(lab)

    def fail(ledger_id: int) -> None:
        raise DiskFailure(str(ledger_id), "remove", OSError(5, "no"))

    monkeypatch.setattr(lab.store, "delete_files", fail)
    turn = lab.clean()
    assert turn.failure is None
    assert turn.outcome is not None
    assert lab.kafka.partition.checkpoint == 2
    assert not lab.broker.cleaner.states.is_uncleanable(TOPIC)
    monkeypatch.undo()
    lab.restart()
    assert offsets(lab) == [1]
    assert ledgers_on_disk(lab) == named(lab)


def test_a_reader_of_committed_records_sees_no_aborted_ones_during_a_cleaning(
    lab: KafkaLab,
) -> None:
    """The second round forgets the transaction whose records the reader has just got."""
    lab.add([A], producer_id=1, producer_epoch=0, base_sequence=0, is_transactional=True)
    lab.run(lab.kafka.end_transaction(1, 0, commit=False, timestamp_ms=5))
    lab.add([B], producer_id=1, producer_epoch=0, base_sequence=1)
    roll(lab)
    topic = lab.kafka
    reads = topic.log.reads
    read = reads.read
    turns = 0

    async def read_slowly(*args: Any, **options: Any) -> Any:
        nonlocal turns
        found = await read(*args, **options)
        while turns < 2:
            turns += 1
            await lab.broker.cleaner.run_pass(TOPIC)
            await topic.append_batches(lab.batch([B]), Origin.CLIENT)
            await topic.roll()
        return found

    reads.read = read_slowly  # type: ignore[method-assign]
    found = lab.records(committed=True)
    assert all(key == b"b" for _, key, _ in found)
    assert turns == 2


def beside(lab: KafkaLab, other: Callable[[], Awaitable[object]]) -> None:
    """Runs while the worker works."""

    async def both() -> None:
        compactor = lab.compactor
        compactor.has_begun.clear()
        compactor.may_go.clear()
        turn = asyncio.ensure_future(lab.broker.cleaner.run_pass(TOPIC))
        await compactor.has_begun.wait()
        await other()
        compactor.may_go.set()
        await turn

    lab.run(both())


def test_a_cleaning_during_rolls_and_appends(lab: KafkaLab) -> None:
    for pair in (A, B, A):
        lab.add([pair])
    roll(lab)

    topic = lab.kafka

    async def other() -> None:
        for _ in range(3):
            await topic.append_batches(lab.batch([A]), Origin.CLIENT)
            topic.log.roll()

    beside(lab, other)
    assert offsets(lab) == [1, 2, 3, 4, 5]
    lab.crash()
    assert offsets(lab) == [1, 2, 3, 4, 5]


def test_a_cleaning_during_an_unload_changes_nothing(lab: KafkaLab) -> None:
    for pair in (A, B, A):
        lab.add([pair])
    roll(lab)
    beside(lab, lambda: lab.broker.unload_topic(TOPIC))
    assert offsets(lab) == [0, 1, 2]
    assert lab.kafka.partition.checkpoint is None
    assert not lab.broker.cleaner.states.is_uncleanable(TOPIC)
    assert lab.clean().outcome is not None
    assert offsets(lab) == [1, 2]


def test_files_of_an_uncommitted_cleaning_are_removed(
    lab: KafkaLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pair in (A, B, A):
        lab.add([pair])
    roll(lab)

    async def fail(*_: object) -> None:
        raise DiskFailure("metadata", "write", OSError(28, "full"), may_be_durable=False)

    monkeypatch.setattr(lab.kafka.log, "replace", fail)
    with pytest.raises(DiskFailure):
        lab.clean()
    folders = {int(each) for each in lab.files.listdir(lab.store.ledgers_dir)}
    assert folders <= named(lab)


def test_retention_deletes_only_closed_segments(lab: KafkaLab) -> None:
    """A segment that ends while others are deleted waits for the next time."""
    configure(lab, cleanup_policy="delete", retention_bytes="1")
    for _ in range(2):
        lab.add([A])
        roll(lab)
    topic = lab.kafka
    log = topic.log
    settle = log.settle

    async def settle_slowly() -> None:
        await settle()
        await topic.append_batches(lab.batch([A]), Origin.CLIENT)
        log.roll()

    log.settle = settle_slowly  # type: ignore[method-assign]
    lab.run(lab.broker.cleaner.retain())
    log.settle = settle  # type: ignore[method-assign]
    lab.add([B])
    lab.crash()
    assert offsets(lab)[-1:] == [3]
    assert ledgers_on_disk(lab) == named(lab)


def test_an_unloaded_topic_ends_no_cleaner_thread(
    lab: KafkaLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pair in (A, A):
        lab.add([pair])
    roll(lab)
    cleaner = lab.broker.cleaner

    async def unload(now_ms: int) -> None:
        async with lab.broker.locks.one(TOPIC):
            await lab.broker._unload(TOPIC)

    monkeypatch.setattr(cleaner, "_repair_checkpoints", unload)
    assert lab.clean().topic is None


def test_a_cleaner_thread_ends_during_a_cleaning(lab: KafkaLab) -> None:
    """Also when the round has ended first."""
    for pair in (A, A):
        lab.add([pair])
    roll(lab)
    cleaner = lab.broker.cleaner

    async def stop() -> None:
        lab.compactor.may_go.clear()
        thread = asyncio.ensure_future(cleaner._run_passes(0))
        cleaner._threads.append(thread)
        await lab.compactor.has_begun.wait()
        cleaner._cleanings[TOPIC].cancel()
        await asyncio.sleep(0)
        await cleaner.stop()
        assert thread.cancelled()

    lab.run(stop())
    lab.compactor.may_go.set()
    assert offsets(lab) == [0, 1]


@pytest.mark.parametrize("profile", ["documented", "kafka-4.1"])
def test_a_cleaning_that_fills_an_index_ends_early_as_kafkas_does(
    lab: KafkaLab, profile: str
) -> None:
    lab.broker.policy_levels.broker.emulation.profile = profile
    for pairs in ([A], [A, B, C]):
        for pair in pairs:
            lab.add([pair])
        roll(lab)
    configure(lab, index_interval_bytes="0", segment_index_bytes="16")
    turn = lab.clean()
    segments = list(lab.kafka.log.segments)
    if profile == "documented":
        assert turn.failure is None
        assert [each.is_cleaned for each in segments] == [True, True, False]
        assert lab.kafka.partition.checkpoint == 4
    else:
        assert "IllegalArgumentException" in str(turn.failure)
        assert [each.is_cleaned for each in segments] == [True, False, False]
        assert lab.broker.cleaner.states.uncleanable[TOPIC].kind == "SEGMENT_INDEX_FULL"
        assert lab.kafka.partition.checkpoint == 0
    assert ledgers_on_disk(lab) == named(lab)
    lab.crash()
    assert offsets(lab) == [1, 2, 3]


def test_a_namespace_selects_the_emulated_defects(lab: KafkaLab) -> None:
    assert defects_of(lab.broker, TOPIC) == NO_DEFECTS
    policies = Policies(emulation=Emulation(profile="kafka-4.1", full_index_fails_round=False))
    store = PolicyStore(lab.broker)
    lab.run(store.update_namespace("public/default", policies, ()))
    assert defects_of(lab.broker, TOPIC) == Defects(
        map_reopens_aborted=True, gauges_with_defects=True, resends_by_record_time=True
    )
    assert defects_of(lab.broker) == NO_DEFECTS
