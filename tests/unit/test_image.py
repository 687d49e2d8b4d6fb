"""Tests the container image as far as that is possible without a container engine.

The files that it copies exist, its commands parse, and their ports and folders agree.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from ledgerfold.broker.cli.main import make_parser
from tests.tidy import ROOT

PORTS = ["6650", "8080", "7650"]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
IMAGE = ROOT / "scripts" / "image"


def lines(instruction: str) -> list[str]:
    """Returns the arguments of an instruction, each time it stands there."""
    return re.findall(rf"^ *{instruction} +(.*)$", DOCKERFILE, re.MULTILINE)


def test_it_runs_as_nobody_special() -> None:
    (user,) = lines("USER")
    assert int(user) > 0
    assert any(f"--uid {user}" in each for each in lines("RUN"))


def test_what_it_copies_exists_and_is_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line[1:] for line in ignored if line.startswith("!")]
    assert "*" in ignored
    assert all((ROOT / each).exists() for each in kept)
    # The package is what hatch builds it from, its links included.
    links = [path.name for path in (ROOT / "ledgerfold").iterdir() if path.is_symlink()]
    targets = {(ROOT / "ledgerfold" / name).resolve().relative_to(ROOT).parts[0] for name in links}
    assert targets | {"ledgerfold", "requirements.lock", "pyproject.toml", "scripts/image"} <= {
        *kept
    }
    assert "scripts/image /pulsar/bin" in lines("COPY")


def test_ports_and_the_data_folder_agree() -> None:
    assert lines("EXPOSE") == [" ".join(PORTS)]
    assert lines("VOLUME") == ["/data"]
    command = (IMAGE / "pulsar").read_text()
    assert re.findall(r"0\.0\.0\.0:\D*(\d+)", command) == ["7650", "6650", "8080"]
    assert "LEDGERFOLD_DATA:-/data" in command
    compose = (ROOT / "compose.yaml").read_text()
    assert re.findall(r'"127\.0\.0\.1:(\d+):(\d+)"', compose) == [(port, port) for port in PORTS]
    assert "- data:/data" in compose


def test_the_lock_becomes_constraints() -> None:
    """The image installs the versions of the lock, which pip takes as constraints."""
    (step,) = (each for each in lines("RUN") if "requirements.lock" in each)
    expression = shlex.split(step)[2]
    assert expression == r"/^ +(--hash|#)/d; s/ *\\$//"
    text = (ROOT / "requirements.lock").read_text()
    kept = [line for line in text.splitlines() if not re.match(r" +(--hash|#)", line)]
    pinned = [re.sub(r" *\\$", "", line) for line in kept if not line.startswith("#")]
    assert all(re.match(r"[\w.-]+==[\w.]+( ;.*)?$", line) for line in pinned), pinned
    assert any(line.startswith("pyspark==") for line in pinned)


@pytest.mark.process
def test_pulsar_standalone_is_a_start_of_a_broker(tmp_path: Path) -> None:
    """As Testcontainers' modules start it: settings from the environment, then `standalone`."""
    for each in IMAGE.iterdir():
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / "bin" / each.name).symlink_to(each)
    (tmp_path / "conf").mkdir()
    shown = tmp_path / "ledgerfold"
    shown.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    shown.chmod(0o755)
    path = f"{tmp_path}:{Path(sys.executable).parent}:/usr/bin:/bin"
    done = subprocess.run(
        ["sh", "-c", "bin/apply-config-from-env.py conf/standalone.conf && bin/pulsar standalone"],
        cwd=tmp_path,
        env={"PATH": path, "PULSAR_PREFIX_maxMessageSize": "1048576", "LEDGERFOLD_DATA": "data"},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert (tmp_path / "conf/standalone.conf").read_text() == "maxMessageSize=1048576\n"
    options = make_parser().parse_args(done.stdout.splitlines())
    assert options.pulsar_listen == "0.0.0.0:6650"
    assert options.admin_listen == "0.0.0.0:8080"
    assert options.listen == "0.0.0.0:7650"
    assert options.insecure
    refused = subprocess.run(
        ["bin/pulsar", "zookeeper"], cwd=tmp_path, capture_output=True, timeout=30, check=False
    )
    assert refused.returncode == 2
