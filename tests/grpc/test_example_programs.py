"""The programs of docs/examples run as they are, and print what they should."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.broker_process import BrokerProcess
from tests.tidy import ROOT

EXAMPLES = ROOT / "docs" / "examples"
_TIMEOUT_S = 90


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker whose compactions run inline."""
    folder = tmp_path_factory.mktemp("examples")
    with BrokerProcess(folder / "data", arguments=("--compactor", "inline")) as broker:
        yield broker.url


def run(*command: str | Path, folder: Path) -> str:
    ran = subprocess.run(
        [sys.executable, *map(str, command)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_the_cache(url: str, tmp_path: Path) -> None:
    assert run(EXAMPLES / "cache.py", url, "prices", folder=tmp_path).splitlines() == [
        "1001 messages were compacted to 9",
        "9 items; item 7 costs 997",
    ]


def test_the_change_log(url: str, tmp_path: Path) -> None:
    """A publisher that starts again sends what is new."""
    out = run(EXAMPLES / "change_log.py", url, "people", "people.db", folder=tmp_path)
    assert out.splitlines() == [
        "3 changes published",
        "1 more",
        "0 more",
        "{'ada': 'Paris'}",
    ]


def test_event_time(url: str, tmp_path: Path) -> None:
    first, *told, last = run(EXAMPLES / "event_time.py", url, "r", folder=tmp_path).splitlines()
    assert first == "by publishing order: {'roof': b'20 at 12:00'}"
    assert len(told) == 2
    assert "older by event time" in told[1]
    assert last == "by event time: {'roof': b'20 at 12:00', 'cellar': b'9 at 14:00'}"


def test_the_job(tmp_path: Path) -> None:
    """Its tests, in a folder of their own, by the installed plugin."""
    test = tmp_path / "test_prices.py"
    test.write_text((EXAMPLES / "test_prices.py").read_text())
    assert "1 passed" in run("-m", "pytest", "-q", "-p", "no:cacheprovider", folder=tmp_path)
    job = (EXAMPLES / "ci.yml").read_text()
    assert "pip install pytest ./ledgerfold" in job
    assert "ledgerfold doctor" in job


def test_every_example_is_here() -> None:
    text = Path(__file__).read_text()
    for path in EXAMPLES.iterdir():
        assert path.name in text or path.name == "__pycache__", path.name
