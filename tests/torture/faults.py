"""Faults at random moments, one round after another.

    quick: the broker is killed shortly after its start, while it recovers, loads its topics and
    connects clients; run: a run is in progress, in a drawn phase, and one of the four kinds is
    killed; if there is time, another run has succeeded before in half of these rounds; calm: a run
    succeeds without a fault; full: the disk fills up, except some random space; the broker may be
    killed meanwhile, and must then start or report why it cannot; then space is freed

Kills come at `kills_per_minute`, fillings at `fillings_per_minute`. After the first ones, rounds
that wait long are replaced by quick ones, but some of them still let the compactor start. Each wait
has a limit, at which its round ends. Hangs are counted elsewhere.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence

from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_COMMIT,
    COMPACTION_PHASE_ONE,
    COMPACTION_PHASE_TWO,
)
from tests.support.small_disk import SmallDisk
from tests.torture.compactions import Compactions
from tests.torture.life import Life
from tests.torture.settings import TortureSettings
from tests.torture.tally import Tally
from tests.torture.victims import BROKER, JVM, PYTHON, WORKER, kill, victims

_QUICK_S = 3.0
_IN_RUN_S = 0.2
_RUN_WAIT_S = 40.0
_CALM_WAIT_S = 25.0
_FULL_S = 4.0
# Kills behind schedule from which rounds are hurried.
_BEHIND_MAX = 2
# In so many of the rounds that are not, a run succeeds before another one is killed.
_SUCCESS_FIRST = 0.5
_POLL_S = 0.005
# Of the kills of the broker, so many are looked at by `verify` before the next start.
_VERIFIED = 0.5
_STEP_EVERY_S = 2.0
# The most space left on a disk that fills up: between nothing and a few ledgers.
_ROOM_BYTES = (0, 4_096, 100_000, 2_000_000)
_KINDS = (BROKER, WORKER, JVM, PYTHON)
_KIND_WEIGHTS = (35, 20, 10, 35)
_PHASES = (COMPACTION_PHASE_ONE, COMPACTION_PHASE_TWO, COMPACTION_PHASE_COMMIT)
_PHASE_WEIGHTS = (25, 60, 15)
_ROUNDS = ("quick", "run", "calm", "full")
_ROUND_WEIGHTS = (30, 50, 10, 10)


class Faults:
    """`disk`: None where nothing could be mounted; then it never fills up.

    `on_step` is called every few seconds.
    """

    def __init__(
        self,
        settings: TortureSettings,
        life: Life,
        disk: SmallDisk | None,
        compactions: Sequence[Compactions],
        tally: Tally,
        on_step: Callable[[], None],
    ) -> None:
        self._settings, self._life, self._disk = settings, life, disk
        self._compactions, self._tally, self._on_step = compactions, tally, on_step
        self._random = random.Random(settings.seed)
        self._began_s = time.monotonic()
        self._deadline_s = self._began_s + settings.minutes * 60
        self._never = threading.Event()
        # Rounds that were behind the pace.
        self._hurried = 0
        self._is_hurried = False

    def run(self) -> None:
        """Until the time is over. Raises BrokerFailed when the broker cannot be started."""
        rounds = {
            "quick": self._quick,
            "run": self._in_run,
            "calm": self._calm,
            "full": self._full,
        }
        while not self._is_over():
            self._on_step()
            self._free_stuck()
            rounds[self._draw()]()

    def _is_over(self) -> bool:
        is_late = time.monotonic() >= self._deadline_s
        return is_late and self._tally.kills[BROKER] >= self._settings.broker_kills_min

    def _draw(self) -> str:
        minutes = (time.monotonic() - self._began_s) / 60
        if self._tally.fillings < minutes * self._settings.fillings_per_minute - 1:
            return "full"
        behind = minutes * self._settings.kills_per_minute - self._tally.kills.total()
        self._is_hurried = behind > _BEHIND_MAX
        if self._is_hurried:
            self._hurried += 1
            is_run = self._is_under_way() or self._hurried % max(3, int(behind / 2)) == 0
            return "run" if is_run else "quick"
        return self._random.choices(_ROUNDS, _ROUND_WEIGHTS)[0]

    # The rounds.

    def _quick(self) -> None:
        self._pause(_QUICK_S)
        self._kill(BROKER)

    def _in_run(self) -> None:
        if not self._is_hurried and self._random.random() < _SUCCESS_FIRST:
            self._wait_for_successes(1)
        kind = self._random.choices(_KINDS, _KIND_WEIGHTS)[0]
        # The only kill that Spark survives: several, then.
        for _ in range(self._random.randint(1, 3) if kind == PYTHON else 1):
            self._kill_in_run(kind)

    def _kill_in_run(self, kind: str) -> None:
        phase = self._random.choices(_PHASES, _PHASE_WEIGHTS)[0]
        if not self._wait(self._is_under_way):
            return
        # Too short to be met each time: any moment of any run will do.
        self._wait(lambda: any(each.phase == phase for each in self._compactions), 2.0)
        self._pause(self._random.choice((0.0, _IN_RUN_S / 10, _IN_RUN_S)))
        self._kill(kind)

    def _is_under_way(self) -> bool:
        return any(each.phase >= COMPACTION_PHASE_ONE for each in self._compactions)

    def _calm(self) -> None:
        self._wait_for_successes(len(self._compactions))

    def _wait_for_successes(self, count: int) -> None:
        wanted = sum(each.succeeded for each in self._compactions) + count
        self._wait(
            lambda: sum(each.succeeded for each in self._compactions) >= wanted, _CALM_WAIT_S
        )

    def _full(self) -> None:
        if self._disk is None:
            return self._quick()
        room_bytes = self._random.choice(_ROOM_BYTES)
        self._disk.fill(leave_bytes=room_bytes)
        self._tally.fillings += 1
        self._tally.note(f"the disk is full but for {room_bytes} bytes")
        try:
            self._pause(_FULL_S)
            if self._random.random() < 0.4:
                self._kill(BROKER)
                self._pause(_FULL_S / 2)
        finally:
            self._disk.free()
            self._tally.note("the disk has room")
        return self._pause(_FULL_S / 2)

    # Their parts.

    def _kill(self, kind: str) -> None:
        pids = victims(self._life.broker)[kind]
        if not pids or not kill(self._random.choice(pids)):
            return
        self._tally.kills[kind] += 1
        phases = ", ".join(str(each.phase) for each in self._compactions)
        self._tally.note(f"killed a {kind}, runs in phases {phases}")
        if kind == BROKER:
            self._life.broker.wait()
            if self._random.random() < _VERIFIED:
                self._life.verify()
            self._life.start()
            self._tally.note("started")

    def _free_stuck(self) -> None:
        """A run that never ends is over with its broker."""
        if any(each.is_stuck.is_set() for each in self._compactions):
            self._kill(BROKER)
            for each in self._compactions:
                each.is_stuck.clear()

    def _wait(self, condition: Callable[[], bool], longest_s: float = _RUN_WAIT_S) -> bool:
        deadline_s = min(time.monotonic() + longest_s, self._deadline_s)
        step_s = time.monotonic() + _STEP_EVERY_S
        while time.monotonic() < deadline_s:
            if condition():
                return True
            if any(each.is_stuck.is_set() for each in self._compactions):
                return False
            if time.monotonic() > step_s:
                self._on_step()
                step_s = time.monotonic() + _STEP_EVERY_S
            self._never.wait(_POLL_S)
        return False

    def _pause(self, longest_s: float) -> None:
        self._never.wait(self._random.uniform(0, longest_s))
