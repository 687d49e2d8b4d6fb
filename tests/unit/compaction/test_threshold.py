"""The automatic trigger: the decision by table, and the monitor around it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.compaction.history import CompactionStats, failures_in_a_row, stats_of
from ledgerfold.broker.compaction.threshold import BACKOFF_MAX_MS, Decision, Situation, decide
from ledgerfold.broker.policies.effective import Threshold
from ledgerfold.storage.errors import CompactionFailed
from ledgerfold.v1.admin_pb2 import ThresholdCheck
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_CANCELLED,
    RUN_STATE_ERROR,
    RUN_STATE_SUCCESS,
    RUN_TRIGGER_THRESHOLD,
    NamespaceRecord,
    Policies,
    RunRecord,
)
from tests.support.compaction_lab import Lab

MINUTE_MS = 60_000
TOPIC = "persistent://public/default/t"


@pytest.mark.parametrize(
    ("threshold_bytes", "situation", "why"),
    [
        (0, Situation(10), "no threshold"),  # THR-09
        (1000, Situation(1000), "not above"),  # THR-05
        (999, Situation(1000), "above"),
        (1, Situation(0), "not above"),
        (1, Situation(10, has_run=True), "a run is in progress"),  # THR-07
        (1, Situation(10, is_compactor_off=True), "the compactor is off"),
        (1, Situation(10, failures=1, failed_ms=5 * MINUTE_MS), "waits after 1 failed runs"),
        # One failure at minute 4: two intervals are over at minute 6.
        (1, Situation(10, failures=1, failed_ms=4 * MINUTE_MS), "above"),
        (1, Situation(10, failures=2, failed_ms=4 * MINUTE_MS), "waits after 2 failed runs"),
    ],
)
def test_the_decision(threshold_bytes: int, situation: Situation, why: str) -> None:
    """Six minutes past zero, an interval of one minute."""
    decision = decide(
        Threshold(threshold_bytes, "namespace"),
        situation,
        now_ms=6 * MINUTE_MS,
        interval_ms=MINUTE_MS,
    )
    assert decision == Decision(
        why == "above", why, situation.backlog_bytes, threshold_bytes, "namespace"
    )


def test_the_pause_after_failures_is_bounded() -> None:
    """A topic that failed a thousand times is still tried each ten minutes."""
    situation = Situation(10, failures=1000, failed_ms=0)
    at = [
        decide(Threshold(1, "topic"), situation, now_ms=now, interval_ms=MINUTE_MS).fire
        for now in (BACKOFF_MAX_MS - 1, BACKOFF_MAX_MS)
    ]
    assert at == [False, True]


def runs(text: str) -> list[RunRecord]:
    """One letter a run: s(uccess), e(rror), c(ancelled), f(enced). Run n ended at n * 10 ms."""
    states = {"s": RUN_STATE_SUCCESS, "e": RUN_STATE_ERROR, "c": RUN_STATE_CANCELLED}
    made = []
    for number, letter in enumerate(text, start=1):
        run = RunRecord(number=number, state=states.get(letter, RUN_STATE_ERROR))
        run.started_ms, run.ended_ms = number * 10 - number, number * 10
        run.error_reason = {"s": "", "f": "COMPACTION_FENCED"}.get(letter, "COMPACTION_FAILED")
        run.counts.removed_events = number if letter == "s" else 0
        made.append(run)
    return made


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ("", (0, 0)),
        ("s", (0, 0)),
        ("es", (0, 0)),
        ("see", (2, 30)),
        ("sce", (2, 30)),
        ("sef", (1, 20)),
        ("sf", (0, 0)),
    ],
)
def test_failures_in_a_row(history: str, expected: tuple[int, int]) -> None:
    """A success resets the count; a run ended by an unload does not count."""
    assert failures_in_a_row(runs(history)) == expected


@pytest.mark.parametrize(
    ("history", "expected"),
    [
        ("", CompactionStats()),
        ("s", CompactionStats(1, 10, 0, 1)),
        ("se", CompactionStats(1, 10, 20, 2)),
        ("es", CompactionStats(2, 20, 10, 2)),
    ],
)
def test_stats_of_a_history(history: str, expected: CompactionStats) -> None:
    """A success does not clear the time of the last failure, nor the other way round."""
    assert stats_of(runs(history)) == expected


def test_thr_03_the_monitor_follows_the_levels() -> None:
    """Compares the level set: none, namespace, topic (0), then each removed again."""
    lab = Lab()
    topic = lab.topic("t")
    monitor = lab.scheduler.monitor
    asked = [monitor.decide(topic).fire]
    with lab.metadata.batch() as batch:
        one = Policies(compaction_threshold_bytes=1)
        batch.put(NamespaceRecord(name="public/default", policies=one))
    asked.append(monitor.decide(topic).fire)
    topic.record.policies.compaction_threshold_bytes = 0
    asked.append(monitor.decide(topic).fire)
    topic.record.policies.ClearField("compaction_threshold_bytes")
    asked.append(monitor.decide(topic).fire)
    with lab.metadata.batch() as batch:
        batch.put(NamespaceRecord(name="public/default"))
    asked.append(monitor.decide(topic).fire)
    assert asked == [False, True, False, True, False]


def test_thr_07_and_thr_12_one_run_at_a_time_and_only_new_bytes_count() -> None:
    """While a run is in progress nothing fires; afterwards only entries after the horizon count."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t", backlog_bytes=1000, compaction_threshold_bytes=500)
        monitor = lab.scheduler.monitor
        assert (await monitor.check(topic)).fire
        assert not (await monitor.check(topic)).fire
        await lab.compactor.started()
        lab.compactor.finish()
        await lab.ended(topic)
        topic.log.entries, topic.backlog_bytes = 7, 400
        assert not (await monitor.check(topic)).fire
        topic.log.entries, topic.backlog_bytes = 8, 600
        assert (await monitor.check(topic)).fire
        assert lab.run_of(topic, 2).trigger == RUN_TRIGGER_THRESHOLD
        await lab.scheduler.stop()

    asyncio.run(body())


def test_the_status_shows_the_last_check() -> None:
    """Why nothing happened was only in the log of a broker that logs for debugging."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t", backlog_bytes=100, compaction_threshold_bytes=500)
        monitor = lab.scheduler.monitor

        def shown() -> ThresholdCheck:
            return lab.scheduler.status(topic).threshold_check

        assert not lab.scheduler.status(topic).HasField("threshold_check")
        lab.scheduler.consider(topic)
        lab.now_ms += 1
        assert shown() == ThresholdCheck(
            checked_ms=lab.now_ms - 1,
            why="not above",
            backlog_bytes=100,
            threshold_bytes=500,
            level="topic",
        )
        first_ms = shown().checked_ms
        topic.backlog_bytes = 501
        await monitor.check(topic)
        assert (shown().fired, shown().why) == (True, "above")
        assert shown().checked_ms > first_ms
        await monitor.check(topic)
        assert (shown().fired, shown().why) == (False, "a run is in progress")
        await lab.scheduler.stop()

    asyncio.run(body())


def test_the_status_shows_why_a_run_was_refused() -> None:
    """Above the threshold, without a run."""

    async def body() -> None:
        lab = Lab(settings=replace(SETTINGS, compaction_queue_max=1))
        for name in "abc":
            lab.topic(name, compaction_threshold_bytes=1)
        await lab.scheduler.monitor.check_all()
        topics: list[Any] = list(lab.topics.values())
        found = [lab.scheduler.status(each).threshold_check for each in topics]
        assert [each.fired for each in found] == [True, True, False]
        assert "queue" in found[2].why
        await lab.scheduler.stop()

    asyncio.run(body())


def test_a_failed_automatic_run_is_retried_after_a_pause() -> None:
    """The next interval finds the same bytes and waits."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t", backlog_bytes=10, compaction_threshold_bytes=1)
        await lab.scheduler.monitor.check(topic)
        await lab.compactor.started()
        lab.compactor.fail(CompactionFailed("phase one", "out of memory"))
        await lab.ended(topic)
        lab.now_ms += MINUTE_MS
        assert lab.scheduler.monitor.decide(topic).why == "waits after 1 failed runs"
        lab.now_ms += MINUTE_MS
        assert lab.scheduler.monitor.decide(topic).fire

    asyncio.run(body())


def test_a_refused_topic_does_not_stop_the_checks_of_others() -> None:
    """A full queue is logged; the round continues."""

    async def body() -> None:
        lab = Lab(settings=replace(SETTINGS, compaction_queue_max=1))
        for name in "abcd":
            lab.topic(name, compaction_threshold_bytes=1)
        await lab.scheduler.monitor.check_all()
        # One in the worker, one in the queue, two refused.
        assert len(lab.metadata.runs(None)) == 2
        await lab.scheduler.stop()

    asyncio.run(body())


def test_a_failing_check_of_a_topic_does_not_stop_the_monitor_or_a_roll() -> None:
    """Tests any error."""

    async def body() -> None:
        lab = Lab()
        broken = lab.topic("a", compaction_threshold_bytes=1)
        broken.compaction_backlog_bytes = broken_backlog
        whole = lab.topic("b", compaction_threshold_bytes=1)
        await lab.scheduler.monitor.check_all()
        assert len(lab.metadata.runs(whole.name)) == 1
        lab.scheduler.consider(broken)
        await lab.scheduler.stop()

    def broken_backlog() -> int:
        raise RuntimeError("nobody thought of it")

    asyncio.run(body())


def test_a_clock_set_back_does_not_stop_automatic_compaction() -> None:
    """The time of the failure is unknown: a run starts, and pauses follow the new time."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t", backlog_bytes=10, compaction_threshold_bytes=1)
        for _ in range(2):
            await lab.scheduler.monitor.check(topic)
            await lab.compactor.started()
            lab.compactor.fail(CompactionFailed("phase one", "out of memory"))
            await lab.ended(topic)
            lab.now_ms -= 1_000_000
        lab.now_ms += 1_000_000
        assert lab.scheduler.monitor.decide(topic).why == "waits after 2 failed runs"
        lab.now_ms += 4 * MINUTE_MS
        assert lab.scheduler.monitor.decide(topic).fire

    asyncio.run(body())


def test_a_run_during_which_the_clock_was_set_back_has_duration_zero() -> None:
    run = RunRecord(state=RUN_STATE_SUCCESS, started_ms=5_000, ended_ms=1_000)
    assert stats_of([run]).duration_ms == 0


def test_a_roll_triggers_a_check_at_once() -> None:
    """Called when a segment rolls; it does not block the caller."""

    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t", backlog_bytes=10, compaction_threshold_bytes=1)
        lab.scheduler.consider(topic)
        lab.scheduler.consider(topic)
        await lab.compactor.started()
        assert len(lab.metadata.runs(topic.name)) == 1
        await lab.scheduler.stop()

    asyncio.run(body())


def test_the_monitor_checks_at_its_interval() -> None:
    """The interval is the broker's setting, in seconds to the sleeper."""

    async def body() -> None:
        slept: list[float] = []
        awake = asyncio.Event()

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            await awake.wait()
            awake.clear()

        lab = Lab(settings=replace(SETTINGS, compaction_monitor_interval_ms=1500))
        topic = lab.topic("t", backlog_bytes=10, compaction_threshold_bytes=1)
        monitor = type(lab.scheduler.monitor)(cast(Any, lab), lab.scheduler, sleep)
        running = asyncio.create_task(monitor.run())
        awake.set()
        assert (await lab.compactor.started()).topic == topic.name
        assert slept[0] == 1.5
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await lab.scheduler.stop()

    asyncio.run(body())


SETTINGS = BrokerSettings(data_dir=Path("unused"))
