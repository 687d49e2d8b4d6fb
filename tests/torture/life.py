"""The broker's life: started on one port, killed, started again, each start counted.

A start fails when the process ends, or is not ready in time. Then it is tried again, up to
`start_attempts` times: nothing that was killed may need a person. A start that a full disk refuses,
with the documented sentence, is no failure; the disk is freed and it is tried again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.broker_process import BrokerFailed, BrokerProcess
from tests.support.ports import free_port
from tests.torture.clients import child_environment
from tests.torture.settings import LEDGER_ENTRIES, SEGMENT_SIZE, TortureSettings
from tests.torture.slow_broker import DELAY
from tests.torture.tally import Tally

_NO_ROOM = "No space left"


class TortureBroker(BrokerProcess):
    """The real broker, but for its slow disk."""

    def _command(self) -> list[str]:
        command = super()._command()
        command[command.index("ledgerfold")] = "tests.torture.slow_broker"
        return command


class Life:
    """One data directory and the brokers that serve it, one after the other."""

    def __init__(
        self,
        settings: TortureSettings,
        data_dir: Path,
        log: Path,
        tally: Tally,
        free_disk: Callable[[], None],
    ) -> None:
        self._settings, self._tally, self._free_disk = settings, tally, free_disk
        self.url = f"127.0.0.1:{free_port()}"
        path = child_environment("")["PYTHONPATH"]
        self.broker = TortureBroker(
            data_dir,
            arguments=(
                *("--listen", self.url),
                *("--kafka-config", "log.cleaner.backoff.ms=200"),
                *("--ledger-entries", str(LEDGER_ENTRIES), "--segment-size", SEGMENT_SIZE),
            ),
            environment={"PYTHONPATH": path, DELAY: str(settings.sync_delay_ms)},
            log=log,
        )
        tally.starts += 1

    def start(self) -> None:
        """After its end, however that came. Raises BrokerFailed when no attempt succeeds."""
        for attempt in range(self._settings.start_attempts):
            self._tally.starts += 1
            try:
                self.broker.start()
                return
            except BrokerFailed as failure:
                self._count_failure(failure)
                if attempt + 1 == self._settings.start_attempts:
                    raise

    def verify(self) -> None:
        """Verifies the state after a kill, before a start has repaired it: nothing is damaged."""
        done = subprocess.run(
            [sys.executable, "-m", "ledgerfold", "verify", str(self.broker.data_dir)],
            env=child_environment(""),
            capture_output=True,
            text=True,
            check=False,
            timeout=self._settings.client_stall_s,
        )
        if done.returncode:
            self._tally.damaged += 1
            self._tally.tell(
                f"verify ends with {done.returncode}: {(done.stdout + done.stderr)[-2000:]}"
            )

    def _count_failure(self, failure: BrokerFailed) -> None:
        last = str(failure).strip().splitlines()[-1]
        if self.broker.returncode == 1 and _NO_ROOM in last:
            self._tally.starts_without_room += 1
            self._free_disk()
            return
        self._tally.starts_failed += 1
        self._tally.tell(f"a start failed: {last}")

    @property
    def is_up(self) -> bool:
        return self.broker.returncode is None
