"""The supervisor's time limits for a worker's actions, and its pauses between workers."""

from __future__ import annotations

from dataclasses import dataclass

PAUSE_MIN_MS = 500
PAUSE_MAX_MS = 30_000
HEALTHY_MS = 60_000


@dataclass(frozen=True)
class SupervisorLimits:
    """Time limits in seconds."""

    # A run waits this long for a ready worker.
    ready: float = 120.0
    # A new process reports its port within this time.
    listening: float = 60.0
    # Spark is ready within this time after that.
    warm: float = 300.0
    # The wait for a worker and for its check of a strategy that is being set.
    check: float = 25.0
    # A worker that does not end a cancelled run within this time is killed.
    cancel: float = 10.0
    # The time between SIGTERM and SIGKILL. The first worker of a machine may write its class-data
    # archive.
    stop: float = 10.0
    # A worker that stopped serving ends its runs, then itself, within this time.
    leave: float = 20.0


def pause_after_ms(previous_ms: int, healthy_ms: int) -> int:
    """Returns the pause before the next start. `healthy_ms`: how long the last worker was ready."""
    if previous_ms == 0 or healthy_ms >= HEALTHY_MS:
        return PAUSE_MIN_MS
    return min(previous_ms * 2, PAUSE_MAX_MS)
