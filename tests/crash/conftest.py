"""What crash tests share: a compactor that outlives the brokers, so that Spark starts once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

# Sets the secret in the environment.
from tests.support import compactor_process  # noqa: F401


@pytest.fixture(scope="session")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a compactor that no broker started."""
    local = tmp_path_factory.mktemp("worker")
    with (local / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(sys.executable, "-m", "ledgerfold.compactor", "--listen", "127.0.0.1:0"),
                *("--local-dir", str(local / "work")),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    assert process.stdout is not None
    assert process.stdin is not None
    listening = json.loads(process.stdout.readline())
    yield f"127.0.0.1:{listening['port']}"
    process.stdin.close()
    process.wait(30)
    process.stdout.close()
