"""The supervisor's time limits for a worker's actions, and its pauses between workers."""

from __future__ import annotations

from dataclasses import dataclass

PAUSE_MIN_MS = 500
PAUSE_MAX_MS = 30_000
HEALTHY_MS = 60_000


@dataclass(frozen=True)
class SupervisorLimits:
    """Time limits in seconds."""

    # For a run to get a ready worker.
    ready: float = 120.0
    # For a new process to report its port.
    listening: float = 60.0
    # For Spark to be up after that.
    warm: float = 300.0
    # For a worker, and its check of a strategy that is being set.
    check: float = 25.0
    # For a worker to end a cancelled run, before it is killed.
    cancel: float = 10.0
    # Between SIGTERM and SIGKILL. The first worker of a machine may write its class-data archive.
    stop: float = 10.0
    # For a worker that stopped serving to end its runs, then itself.
    leave: float = 20.0


def pause_after_ms(previous_ms: int, healthy_ms: int) -> int:
    """Returns the pause before the next start. `healthy_ms`: how long the last worker was ready."""
    if previous_ms == 0 or healthy_ms >= HEALTHY_MS:
        return PAUSE_MIN_MS
    return min(previous_ms * 2, PAUSE_MAX_MS)
