"""The time left of a phase: shown when it can be estimated."""

from __future__ import annotations

import asyncio

import pytest

from ledgerfold.broker.compaction.progress import RunProgress
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_COMMIT,
    COMPACTION_PHASE_ONE,
    COMPACTION_PHASE_QUEUED,
    COMPACTION_PHASE_TWO,
    CompactionPhase,
    CompactionProgress,
)
from tests.support.compaction_lab import Lab


def progress(
    done: int,
    total: int = 100,
    *,
    tasks: tuple[int, int] = (0, 0),
    phase: CompactionPhase = COMPACTION_PHASE_ONE,
) -> CompactionProgress:
    return CompactionProgress(
        phase=phase, bytes=done, bytes_total=total, tasks_done=tasks[0], tasks_total=tasks[1]
    )


def left_ms(run: RunProgress, now_ms: int) -> int | None:
    shown = run.shown(now_ms)
    return shown.left_ms if shown.HasField("left_ms") else None


@pytest.mark.parametrize(
    ("reports", "now_ms", "expected"),
    [
        ([], 9_000, None),
        ([(0, progress(0))], 9_000, None),
        ([(0, progress(0)), (900, progress(90))], 900, None),
        ([(0, progress(0)), (9_000, progress(4))], 9_000, None),
        ([(0, progress(0)), (2_000, progress(20))], 2_000, 8_000),
        # No news: it takes longer than expected.
        ([(0, progress(0)), (2_000, progress(20))], 4_000, 16_000),
        # What was done before the first report was not measured.
        ([(0, progress(50)), (2_000, progress(75))], 2_000, 2_000),
        ([(0, progress(0, 0, tasks=(0, 4))), (3_000, progress(0, 0, tasks=(1, 4)))], 3_000, 9_000),
        # All bytes were read, and half of the tasks are left.
        ([(0, progress(0, tasks=(0, 4))), (3_000, progress(100, tasks=(2, 4)))], 3_000, 3_000),
        ([(0, progress(0)), (3_000, progress(100))], 3_000, None),
        # The clock was set back.
        ([(5_000, progress(0)), (6_000, progress(50))], 1_000, None),
    ],
)
def test_the_estimate(
    reports: list[tuple[int, CompactionProgress]], now_ms: int, expected: int | None
) -> None:
    """It follows from the phase's own progress, or there is none."""
    run = RunProgress()
    for at_ms, each in reports:
        run.report(each, at_ms)
    assert left_ms(run, now_ms) == expected


def test_each_phase_is_measured_anew() -> None:
    """The first one's speed says nothing about the second."""
    run = RunProgress()
    run.report(progress(0), 0)
    run.report(progress(90), 10_000)
    run.report(progress(0, phase=COMPACTION_PHASE_TWO), 20_000)
    assert left_ms(run, 30_000) is None
    run.report(progress(50, phase=COMPACTION_PHASE_TWO), 30_000)
    assert left_ms(run, 30_000) == 10_000


@pytest.mark.parametrize("phase", [COMPACTION_PHASE_QUEUED, COMPACTION_PHASE_COMMIT])
def test_other_phases_have_no_estimate(phase: CompactionPhase) -> None:
    run = RunProgress()
    run.report(progress(0, phase=phase), 0)
    run.report(progress(50, phase=phase), 10_000)
    assert left_ms(run, 10_000) is None


def test_the_status_of_a_run_has_the_estimate() -> None:
    async def body() -> None:
        lab = Lab()
        topic = lab.topic("t", backlog_bytes=10, compaction_threshold_bytes=1)
        await lab.scheduler.monitor.check(topic)
        await lab.compactor.started()
        lab.compactor.progress(phase=COMPACTION_PHASE_ONE, tasks_total=4)
        assert not lab.scheduler.status(topic).progress.HasField("left_ms")
        lab.now_ms += 4_000
        lab.compactor.progress(phase=COMPACTION_PHASE_ONE, tasks_done=1, tasks_total=4)
        assert lab.scheduler.status(topic).progress.left_ms // 100 == 120
        await lab.scheduler.stop()

    asyncio.run(body())
