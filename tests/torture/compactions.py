"""Compactions of one topic without a pause: each run is triggered as soon as the one before ended.

Each run is counted once, by its end in the broker's history. A run that changes in nothing for
`run_stall_s` while the compactor is ready never ends: it is counted, and `is_stuck` asks for a
restart. So is a compactor that is not ready for `worker_stall_s` after its broker's start.
"""

from __future__ import annotations

import threading
import time
from contextlib import closing, suppress

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import (
    CompactionQueueFull,
    CompactionRunning,
    LedgerfoldError,
    Timeout,
)
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_QUEUED,
    COMPACTION_STATUS_RUNNING,
    COMPACTOR_STATE_READY,
    GetCompactionStatusResponse,
)
from ledgerfold.v1.records_pb2 import RUN_STATE_QUEUED, RUN_STATE_RUNNING, RUN_STATE_SUCCESS
from tests.torture.settings import TortureSettings
from tests.torture.tally import Tally

_WATCH_S = 2.0
_CALL_TIMEOUT_S = 10.0
# Between two runs: avoids a busy loop when there is nothing to compact.
_PAUSE_S = 0.05


class Compactions:
    """Compactions at random. `phase` is that of the run in progress, 0 without one; `succeeded`
    counts successes.
    """

    def __init__(self, topic: str, url: str, tally: Tally, settings: TortureSettings) -> None:
        self.phase = 0
        self.succeeded = 0
        self.is_stuck = threading.Event()
        self._topic, self._url, self._tally, self._settings = topic, url, tally, settings
        self._stop = threading.Event()
        self._counted: set[int] = set()
        self._stuck: set[int] = set()
        self._last: tuple[int, ...] = ()
        self._changed_s = self._ready_s = time.monotonic()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        self._stop.set()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while not self._stop.is_set():
            # A channel for each connection: an old one waits long before it tries again.
            with closing(Admin(self._url, timeout_seconds=_CALL_TIMEOUT_S)) as admin:
                try:
                    while not self._stop.is_set():
                        self._one(admin)
                except LedgerfoldError:
                    # The broker was killed, or its disk is full: the next call says so, too.
                    self.phase = 0
                    self._ready_s = time.monotonic()
                    self._stop.wait(0.1)

    def _one(self, admin: Admin) -> None:
        with suppress(CompactionRunning, CompactionQueueFull):
            admin.trigger_compaction(self._topic)
        try:
            for status in admin.watch_compaction(self._topic, timeout_seconds=_WATCH_S):
                self._note(status)
                if self._stop.is_set():
                    return
        except Timeout:
            self._check_stall(admin)
            return
        self.phase = 0
        self._ready_s = time.monotonic()
        self.count(admin)
        admin.trim(self._topic)
        self._stop.wait(_PAUSE_S)

    def _note(self, status: GetCompactionStatusResponse) -> None:
        is_running = status.status == COMPACTION_STATUS_RUNNING
        progress = status.progress
        self.phase = progress.phase if is_running else 0
        state = (status.run.number, progress.phase, progress.tasks_done, progress.messages)
        if state != self._last:
            self._last, self._changed_s = state, time.monotonic()

    def _check_stall(self, admin: Admin) -> None:
        is_ready = admin.broker_info().compactor_state == COMPACTOR_STATE_READY
        self._check_ready(is_ready=is_ready)
        is_waiting = self.phase in (0, COMPACTION_PHASE_QUEUED) and not self._is_recorded_running(
            admin
        )
        if is_waiting or not is_ready:
            self._changed_s = time.monotonic()
            return
        if time.monotonic() - self._changed_s > self._settings.run_stall_s:
            number = self._last[0] if self._last else 0
            if number not in self._stuck:
                self._stuck.add(number)
                self._tally.runs_never_ended += 1
                self._tally.tell(f"run {number} of {self._topic} does not end")
            self._changed_s = time.monotonic()
            self.is_stuck.set()

    def _check_ready(self, *, is_ready: bool) -> None:
        now_s = time.monotonic()
        if not is_ready and now_s - self._ready_s > self._settings.worker_stall_s:
            self._tally.workers_never_ready += 1
            self._tally.tell(f"the compactor is not ready for {now_s - self._ready_s:.0f} s")
            self.is_stuck.set()
            is_ready = True
        if is_ready:
            self._ready_s = now_s

    def _is_recorded_running(self, admin: Admin) -> bool:
        return any(run.state == RUN_STATE_RUNNING for run in admin.runs(self._topic, limit=1))

    def count(self, admin: Admin) -> None:
        """Takes in the runs that ended. Raises the call's error."""
        for run in admin.runs(self._topic):
            if run.state in (RUN_STATE_QUEUED, RUN_STATE_RUNNING) or run.number in self._counted:
                continue
            self._counted.add(run.number)
            is_success = run.state == RUN_STATE_SUCCESS
            self.succeeded += is_success
            reason = "SUCCESS" if is_success else run.error_reason or "without a reason"
            self._tally.runs[reason] += 1
            if reason in self._tally.runs_ended_wrongly:
                self._tally.tell(f"run {run.number} of {self._topic}: {run.error_message[:200]}")

    def open_runs(self, admin: Admin) -> int:
        """Returns the runs that the history does not show as ended."""
        states = (RUN_STATE_QUEUED, RUN_STATE_RUNNING)
        return sum(run.state in states for run in admin.runs(self._topic))
