"""The simulator can fail: it finds each defect of tests/simulation/mutants within its seeds."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.mutants import load, mutated, names

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("name", names())
def test_the_defect_is_found(name: str) -> None:
    """Within the number of seeds that its patch states."""
    mutant = load(name)
    with mutated(mutant) as tree:
        command = [
            *(sys.executable, "-m", "tests.simulation", "--no-shrink", "--until", mutant.says),
            *("--kind", mutant.kind, "--seed", str(mutant.first), "--count", str(mutant.seeds)),
            # Most are found at once: to start more processes would take longer.
            *("--jobs", "1"),
        ]
        environment = {**os.environ, "PYTHONPATH": str(tree)}
        done = subprocess.run(
            command, cwd=tree, env=environment, capture_output=True, text=True, check=False
        )
    assert f"found: {mutant.says}" in done.stdout, f"{mutant.words}\n{done.stdout}\n{done.stderr}"
