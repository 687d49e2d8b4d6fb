"""Tests the container image as far as that is possible without a container engine.

The files that it copies exist, its commands parse, and their ports and folders agree; so do those
of Prometheus, Grafana and systemd. tests/grpc/test_built_image.py builds it and runs it.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from ledgerfold.broker.cli.main import make_parser
from tests.conftest import MakeBroker
from tests.support.waiting import WAIT_S
from tests.tidy import ROOT

PORTS = ["6650", "8080", "7650", "7680"]
MONITORING_PORTS = ["9090", "3000"]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
IMAGE = ROOT / "scripts" / "image"


def lines(instruction: str) -> list[str]:
    """Returns the arguments of each use of an instruction."""
    return re.findall(rf"^ *{instruction} +(.*)$", DOCKERFILE, re.MULTILINE)


def test_the_image_runs_without_root() -> None:
    (user,) = lines("USER")
    assert int(user) > 0
    assert any(f"--uid {user}" in each for each in lines("RUN"))


def test_copied_files_exist_and_are_not_ignored() -> None:
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    kept = [line[1:] for line in ignored if line.startswith("!")]
    assert "*" in ignored
    assert all((ROOT / each).exists() for each in kept)
    # hatch builds the package from these files, links included.
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
    assert re.findall(r"0\.0\.0\.0:\D*(\d+)", command) == ["7650", "6650", "8080", "7680"]
    assert "LEDGERFOLD_DATA:-/data" in command
    compose = (ROOT / "compose.yaml").read_text()
    published = [*PORTS, *MONITORING_PORTS]
    assert re.findall(r'"127\.0\.0\.1:(\d+):(\d+)"', compose) == [
        (each, each) for each in published
    ]
    assert "- data:/data" in compose
    mounted = re.findall(r"- \./(\S+?):/", compose)
    assert len(mounted) == 4
    assert all((ROOT / each).exists() for each in mounted)
    # Prometheus and the scripts of the image agree where the metrics are.
    scraped = (ROOT / "scripts/monitoring/prometheus.yml").read_text()
    assert 'targets: ["ledgerfold:8080"]' in scraped


def test_the_image_installs_the_locked_versions() -> None:
    """The image installs the lock's versions, as constraints of pip."""
    (step,) = (each for each in lines("RUN") if "requirements.lock" in each)
    expression = shlex.split(step)[2]
    assert expression == r"/^ +(--hash|#)/d; s/ *\\$//"
    text = (ROOT / "requirements.lock").read_text()
    kept = [line for line in text.splitlines() if not re.match(r" +(--hash|#)", line)]
    pinned = [re.sub(r" *\\$", "", line) for line in kept if not line.startswith("#")]
    assert all(re.match(r"[\w.-]+==[\w.]+( ;.*)?$", line) for line in pinned), pinned
    assert any(line.startswith("pyspark==") for line in pinned)


@pytest.mark.process
@pytest.mark.parametrize("spark", ["no", "yes"])
def test_dependencies_are_installed_before_the_source_is_copied(spark: str) -> None:
    """Each change of a source file installed them again: no test looked at the order of layers."""
    steps = re.findall(r"^(?:COPY|RUN) +(.*)$", DOCKERFILE, re.MULTILINE)
    (step,) = (each for each in steps if "--requirement /dependencies.txt" in each)
    copied = [each for each in steps[: steps.index(step)] if each.endswith("./")]
    assert copied == ["pyproject.toml requirements.lock ./"]
    assert steps.index(step) < steps.index(". .")
    found = subprocess.run(
        ["sh", "-c", step.partition(" > ")[0]],
        cwd=ROOT,
        env={"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "SPARK": spark},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.splitlines()
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extra = project["optional-dependencies"]["spark"] if spark == "yes" else []
    assert found == [*project["dependencies"], *extra]


def test_the_dashboard_asks_for_metrics_that_exist() -> None:
    board = json.loads((ROOT / "scripts/monitoring/ledgerfold.json").read_text())
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    asked += [each["query"]["query"] for each in board["templating"]["list"][1:]]
    names = {
        name for each in asked for name in re.findall(r"\b(?:pulsar|ledgerfold|kafka)_\w+", each)
    }
    documented = set(
        re.findall(r"^\| `(\w+)`", (ROOT / "docs/METRICS.md").read_text(), re.MULTILINE)
    )
    known = documented | {f"{each}_bucket" for each in documented}
    assert len(names) > 20
    assert names <= known, names - known
    ids = [panel["id"] for panel in board["panels"]]
    assert len(set(ids)) == len(ids)
    source = (ROOT / "scripts/monitoring/grafana.yml").read_text()
    assert f"uid: {board['templating']['list'][0]['current']['value']}" in source


@pytest.mark.process
def test_the_unit_of_systemd_is_valid(tmp_path: Path) -> None:
    unit = (ROOT / "scripts/systemd/ledgerfold.service").read_text()
    (command,) = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
    program, *arguments = command.replace("$OPTIONS", "--compactor off").split()
    options = make_parser().parse_args(arguments)
    assert str(options.data) == "/var/lib/ledgerfold/data"
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze, which checks the unit")
    # It must name a program that is there.
    (tmp_path / "ledgerfold.service").write_text(unit.replace(program, sys.executable))
    checked = subprocess.run(
        ["systemd-analyze", "verify", tmp_path / "ledgerfold.service"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.process
def test_the_health_check_calls_grpcs_health_service(broker_process: MakeBroker) -> None:
    broker = broker_process()
    port = broker.url.rpartition(":")[2]

    def healthy(port: str) -> tuple[int, str]:
        done = subprocess.run(
            [sys.executable, IMAGE / "healthy.py"],
            env={**os.environ, "LEDGERFOLD_PORT": port},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stderr

    assert healthy(port) == (0, "")
    broker.kill()
    code, told = healthy(port)
    assert code == 1
    assert told.startswith("The broker does not answer: ")


@pytest.mark.process
def test_the_pulsar_standalone_command_starts_a_broker(tmp_path: Path) -> None:
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
        timeout=WAIT_S,
        check=True,
    )
    assert (tmp_path / "conf/standalone.conf").read_text() == "maxMessageSize=1048576\n"
    options = make_parser().parse_args(done.stdout.splitlines())
    assert options.pulsar_listen == "0.0.0.0:6650"
    assert options.admin_listen == "0.0.0.0:8080"
    assert options.listen == "0.0.0.0:7650"
    assert (options.ui_listen, options.ui_writes) == ("0.0.0.0:7680", False)
    assert options.insecure
    refused = subprocess.run(
        ["bin/pulsar", "zookeeper"], cwd=tmp_path, capture_output=True, timeout=WAIT_S, check=False
    )
    assert refused.returncode == 2
