"""The progress of a run, with an estimate of the time left of its phase. Pure.

The progress of a phase is that of its bytes or of its tasks, whichever is less: when the last byte
is read, tasks of phase one still have to merge. An estimate needs a twentieth of the phase, and a
second. There is no estimate of a whole run, because phase one does not know how much phase two
copies.

  >>> progress = RunProgress()
  >>> for now_ms, done in ((0, 0), (2_000, 20)):
  ...     report = CompactionProgress(phase=COMPACTION_PHASE_TWO, bytes=done, bytes_total=80)
  ...     progress.report(report, now_ms)
  >>> progress.shown(2_000).left_ms
  6000
"""

from __future__ import annotations

from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_ONE,
    COMPACTION_PHASE_QUEUED,
    COMPACTION_PHASE_TWO,
    CompactionProgress,
)

_SHARE_MIN = 0.05
_ELAPSED_MIN_MS = 1_000
_MEASURED = (COMPACTION_PHASE_ONE, COMPACTION_PHASE_TWO)


class RunProgress:
    """The progress of a run, and the time that its phase has taken since its first report."""

    def __init__(self) -> None:
        self._progress = CompactionProgress(phase=COMPACTION_PHASE_QUEUED)
        self._began_ms = 0
        # The share of the phase that was done at its first report.
        self._first = 0.0

    def report(self, progress: CompactionProgress, now_ms: int) -> None:
        if progress.phase != self._progress.phase:
            self._began_ms, self._first = now_ms, _share(progress)
        self._progress = progress

    def shown(self, now_ms: int) -> CompactionProgress:
        """Returns the progress, with the time left of the phase if it can be estimated."""
        shown = CompactionProgress()
        shown.CopyFrom(self._progress)
        share, elapsed_ms = _share(shown), now_ms - self._began_ms
        done = share - self._first
        is_measured = done >= _SHARE_MIN and elapsed_ms >= _ELAPSED_MIN_MS
        if shown.phase in _MEASURED and is_measured and share < 1:
            shown.left_ms = round(elapsed_ms * (1 - share) / done)
        return shown


def _share(progress: CompactionProgress) -> float:
    shares = [
        done / total
        for done, total in (
            (progress.bytes, progress.bytes_total),
            (progress.tasks_done, progress.tasks_total),
        )
        if total > 0
    ]
    return min(shares, default=0.0)
