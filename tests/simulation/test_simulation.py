"""Simulates the broker under 370 seeds; a seed gives the same run each time.

scripts/simulate --minutes 60 runs longer
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.__main__ import main
from tests.simulation.drawing import draw
from tests.simulation.scenario import run

SEEDS = int(os.environ.get("LEDGERFOLD_SEEDS", "200"))


def _simulate(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs seeds in a separate process with a fixed hash seed."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.process
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("kind", "share"),
    [
        ("faults", 0.8),
        ("codecs", 0.2),
        ("damage", 0.2),
        ("partitions", 0.1),
        ("kafka", 0.3),
        ("truncation", 0.2),
        ("metadata", 0.05),
    ],
)
def test_all_seeds_pass(kind: str, share: float) -> None:
    """Prints a failure with its seed, shrunk as far as possible."""
    done = _simulate("--kind", kind, "--count", str(int(SEEDS * share)), "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("seed", range(1, 6))
def test_a_seed_gives_the_same_run_twice(seed: int) -> None:
    """The traces are equal."""
    first, second = (run(draw(seed)) for _ in range(2))
    assert first.trace == second.trace
    assert first.loop_steps == second.loop_steps


def test_an_unknown_kind_shows_the_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """An unknown kind is refused."""
    with pytest.raises(SystemExit, match="2"):
        main(["--kind", "nonsense"])
    assert "usage: scripts/simulate" in capsys.readouterr().err
