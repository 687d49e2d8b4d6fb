"""Compactions that a fault rule makes fail.

In phase one or two, the worker is killed at a point of storage/crash_points.py, as the kernel would
kill it, and is restarted. At the commit, the worker has finished, and nothing is published. If no
worker was killed (a compaction service, a worker started by hand without --allow-faults, or a phase
two without output), the run fails when the compactor has finished.
"""

from __future__ import annotations

from ledgerfold.broker.faults.faults import Faults
from ledgerfold.broker.worker.compactor import OnProgress, RunPlan
from ledgerfold.storage.errors import CompactionFailed
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_COMMIT,
    COMPACTION_PHASE_ONE,
    COMPACTION_PHASE_TWO,
)
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest

_POINTS = {
    COMPACTION_PHASE_ONE: "worker.phase-one",
    COMPACTION_PHASE_TWO: "worker.segment-written",
}
_STAGES = {
    COMPACTION_PHASE_ONE: "phase one",
    COMPACTION_PHASE_TWO: "phase two",
    COMPACTION_PHASE_COMMIT: "the commit",
}


async def run_or_fail(
    run: RunPlan, faults: Faults, plan: CompactionPlan, on_progress: OnProgress
) -> Manifest:
    """Runs a plan. Raises CompactionFailed for a rule that hits, and as Compactor.run()."""
    phase = faults.failing_phase(plan.topic)
    plan.crash_at = _POINTS.get(phase, "")
    try:
        manifest = await run(plan, on_progress)
    except CompactionFailed as error:
        if phase in _POINTS and error.worker_died:
            # A run of a small topic may have sent no progress from which the phase is known.
            why = "the worker died, as a fault rule demands (`ledgerfold faults list`)"
            raise CompactionFailed(_STAGES[phase], why, worker_died=True) from error
        raise
    if phase in _STAGES:
        raise CompactionFailed(
            _STAGES[phase], "a fault rule made it fail (`ledgerfold faults list`)"
        )
    return manifest
