"""Staggered runs: a seed and a test determine the pauses, which reach processes of tests too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.stagger import sitecustomize
from tests.stagger.sitecustomize import VARIABLE, Stagger

PLACES = [f"before {number}" for number in range(100)]
# The executor is new: its first work, too, must be paused.
PROGRAM = """
import threading
from concurrent.futures import ThreadPoolExecutor
print(threading.Thread.start.__name__, end=" ")
ThreadPoolExecutor(1).submit(int).result()
print(ThreadPoolExecutor.submit.__name__)
"""


def pauses(seed: str, test: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float]]:
    """Returns the pauses of two passes of each place."""
    found = []
    place = ""
    monkeypatch.setattr(sitecustomize, "_sleep", lambda pause_s: found.append((place, pause_s)))
    monkeypatch.setenv(VARIABLE, "")
    stagger = Stagger(seed)
    stagger.pytest_runtest_logstart(test)
    assert os.environ[VARIABLE] == f"{seed} {test}"
    for place in PLACES * 2:
        stagger.pause(place)
    return found


def test_seed_and_test_determine_the_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most places never pause; a few pause for long."""
    first = pauses("1", "test_a", monkeypatch)
    assert pauses("1", "test_a", monkeypatch) == first
    assert pauses("2", "test_a", monkeypatch) != first
    assert pauses("1", "test_b", monkeypatch) != first
    assert 20 < len({place for place, _ in first}) < 50
    assert 5 < sum(pause_s > 0.02 for _, pause_s in first) < 40


def test_a_busy_place_pauses_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    taken_s: list[float] = []
    monkeypatch.setattr(sitecustomize, "_sleep", taken_s.append)
    stagger = Stagger("1")
    for _ in range(2_000):
        for place in PLACES[:10]:
            stagger.pause(place)
    assert len(taken_s) < 500


@pytest.mark.process
def test_a_process_of_a_test_pauses_too() -> None:
    """Its environment determines it."""
    environment = os.environ | {
        "PYTHONPATH": str(Path(sitecustomize.__file__).parent),
        VARIABLE: "1 test",
    }
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["paused_start", "paused_submit"]
