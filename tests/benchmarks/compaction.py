"""One compaction, from the call to the commit, as an administrator sees it."""

from __future__ import annotations

import time
from typing import NamedTuple

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1 import admin_pb2, records_pb2

# Of one gigabyte, on a slow machine.
TIMEOUT_S = 600.0
_PHASES = {
    admin_pb2.COMPACTION_PHASE_QUEUED: "queued",
    admin_pb2.COMPACTION_PHASE_ONE: "phase one",
    admin_pb2.COMPACTION_PHASE_TWO: "phase two",
    admin_pb2.COMPACTION_PHASE_COMMIT: "commit",
}


class Timed(NamedTuple):
    """`phases`: the duration of each, in seconds, by name."""

    seconds: float
    run: records_pb2.RunRecord
    phases: dict[str, float]


def compact(admin: Admin, topic: str) -> Timed:
    """Triggers a run and waits for its end. Raises RuntimeError if it fails."""
    began = now = time.perf_counter()
    if not admin.trigger_compaction(topic):
        raise RuntimeError(f"{topic} holds nothing new to compact.")
    phases: dict[str, float] = {}
    phase = "queued"
    for status in admin.watch_compaction(topic, timeout_seconds=TIMEOUT_S):
        then, now = now, time.perf_counter()
        phases[phase] = phases.get(phase, 0.0) + now - then
        phase = _PHASES.get(status.progress.phase, phase)
        if status.status != admin_pb2.COMPACTION_STATUS_RUNNING:
            break
    taken = now - began
    run = admin.runs(topic, limit=1)[0]
    if run.state != records_pb2.RUN_STATE_SUCCESS:
        raise RuntimeError(f"The run ended as {run.state}: {run.error_message}")
    return Timed(taken, run, phases)
