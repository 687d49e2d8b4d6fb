"""Every command and snippet of the README, run as a newcomer would, on a broker of its own."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ledgerfold.broker.client.admin import Admin
from tests.conftest import MakeBroker

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
# Not run here: it would start this very test again, or sets up the environment this runs in.
_NOT_HERE = ("scripts/test", "scripts/run", "ledgerfold serve", "source .venv")
_COMMAND_TIMEOUT_S = 100


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def commands() -> list[str]:
    lines = [line[2:] for block in blocks("console") for line in block.splitlines()]
    return [line for line in lines if not line.startswith(_NOT_HERE)]


def run(command: str, folder: Path, url: str) -> str:
    """Runs one line in bash, with this environment's `ledgerfold`; its standard output."""
    environment = os.environ | {"LEDGERFOLD_URL": url}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=_COMMAND_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.spark
@pytest.mark.slow
def test_the_commands_of_the_readme_do_what_it_says(
    broker_process: MakeBroker, tmp_path: Path
) -> None:
    """The tour, in order, on a fresh broker with a real compactor."""
    broker = broker_process(compactor="local")
    ran = [(command, run(command, tmp_path, broker.url)) for command in commands()]
    outputs = dict(ran)
    trims = [out for command, out in ran if command.startswith("ledgerfold topics trim")]
    first = outputs["ledgerfold read addresses --read-compacted --until-end"]
    assert re.findall(r'"value": "(.*?)"', first) == ["Milkman Road", "21 Jump St", "Paper Road 21"]
    after = outputs["ledgerfold read addresses --read-compacted --until-end -o jsonl"]
    assert re.findall(r'"key": "(.*?)"', after) == ["1002", "1001"]
    assert len(outputs["ledgerfold runs addresses"].splitlines()) == 2
    # What is trimmed goes by itself every two minutes, too: the second may come too late.
    assert trims[0] == "0 ledgers removed\n"
    with Admin(broker.url) as admin:
        assert admin.internal_stats("public/sensors/readings")["totalSize"] == 0
    for snippet in blocks("python"):
        snippet = snippet.replace("127.0.0.1:7650", broker.url)
        shown = run(
            f"{shlex.quote(sys.executable)} -c {shlex.quote(snippet)}", tmp_path, broker.url
        )
        assert "p5" in shown


def test_the_readme_names_files_that_exist() -> None:
    """Links lead somewhere."""
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_serve_is_shown_with_options_that_exist() -> None:
    """The commands that are not run above parse."""
    from ledgerfold.broker.cli.main import make_parser

    for block in blocks("console"):
        for line in block.splitlines():
            if line.startswith("$ ledgerfold serve"):
                make_parser().parse_args(shlex.split(line[2:])[1:])
