"""A process with the real log cleaner of Kafka: a JSON request a line in, an answer a line out.

The environment variable LEDGERFOLD_KAFKA_ORACLE names its command; without it, its tests are
skipped. Its logs lie in a temporary folder below `home`.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

from tests.support.waiting import WAIT_S

COMMAND = "LEDGERFOLD_KAFKA_ORACLE"


class KafkaOracle:
    """Calls raise AssertionError with the oracle's error text when it refuses."""

    def __init__(self, home: Path, command: str | None = None) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._home = home
        options = f"{os.environ.get('JAVA_TOOL_OPTIONS', '')} -Djava.io.tmpdir={home}"
        self._process = subprocess.Popen(
            shlex.split(command or os.environ[COMMAND]),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "JAVA_TOOL_OPTIONS": options},
        )
        self("reset", clock=1_000_000)

    def __call__(self, op: str, **fields: Any) -> dict[str, Any]:
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"op": op, **fields}) + "\n")
        stdin.flush()
        answer: dict[str, Any] = json.loads(stdout.readline())
        assert answer["ok"], answer
        return answer

    @property
    def log_dir(self) -> Path:
        """Returns its only log directory."""
        (folder,) = self._home.glob("cleaner-oracle*/d0")
        return folder

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(WAIT_S)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def __enter__(self) -> KafkaOracle:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()
