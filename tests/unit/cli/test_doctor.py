"""`doctor`: each check, when all is well and when it is not."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import socket
import time
from pathlib import Path

import pytest

from ledgerfold.broker.cli import doctor_data, doctor_machine
from ledgerfold.broker.cli.doctor_check import State
from ledgerfold.broker.worker import remains
from ledgerfold.storage.lock import DirectoryLock
from tests.support.command_line import ledgerfold

FREE = "127.0.0.1:0"


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    folder = tmp_path / "the data"
    folder.mkdir(mode=0o700)
    return folder


@pytest.mark.process  # java -version
def test_the_command(data_dir: Path) -> None:
    """A line for each check; the exit code reports problems only."""
    ran = ledgerfold("doctor", "--data", str(data_dir), "--listen", FREE, "-o", "json")
    checks = json.loads(ran.out)
    assert all(set(each) == {"name", "state", "found", "what_to_do"} for each in checks)
    assert all((each["what_to_do"] == "") == (each["state"] == "ok") for each in checks)
    assert ran.code == int(any(each["state"] == "problem" for each in checks))
    assert ledgerfold("doctor", "--listen", "x").code == 1


@pytest.mark.parametrize(
    ("numbers", "state"),
    [((3, 10, 9), State.PROBLEM), ((3, 11, 0), State.OK), ((3, 15, 0), State.PROBLEM)],
)
def test_python(numbers: tuple[int, ...], state: State) -> None:
    assert doctor_machine.python(numbers).state is state


@pytest.mark.process
@pytest.mark.parametrize(
    ("says", "state", "found"),
    [
        ('openjdk version "17.0.1" 2021', State.OK, "17, "),
        ('java version "1.8.0_292"', State.WARNING, " is Java 8"),
        ("nothing", State.WARNING, "is no Java"),
    ],
)
def test_java(says: str, state: State, found: str, tmp_path: Path) -> None:
    """Java of JAVA_HOME is checked first, then Java on PATH; an old version counts as missing."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(0o755)
    for environment in ({"JAVA_HOME": str(tmp_path)}, {"PATH": str(java.parent)}):
        check = doctor_machine.java(environment)
        assert (check.state, found in check.found) == (state, True), check
    assert doctor_machine.java({"PATH": "", "JAVA_HOME": "/none"}).state is State.WARNING


@pytest.mark.process
@pytest.mark.parametrize(
    ("release", "state"),
    [
        ('MODULES="java.base java.desktop"', State.WARNING),
        ('MODULES="java.base jdk.incubator.vector"', State.OK),
        ('JAVA_VERSION="17.0.1"', State.OK),
    ],
)
def test_modules_of_java(release: str, state: State, tmp_path: Path) -> None:
    """As the compactor requires; every Java of the tests had all modules."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    java.chmod(0o755)
    (tmp_path / "release").write_text(f'IMPLEMENTOR="x"\n{release}\n')
    check = doctor_machine.java({"JAVA_HOME": str(tmp_path), "PATH": ""})
    assert (check.state, "jdk.incubator.vector" in check.found) == (state, state is not State.OK)


def test_ports() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken = f"127.0.0.1:{server.getsockname()[1]}"
        check = doctor_machine.port(taken)
        assert (check.state, "ss -ltnp" in check.what_to_do) == (State.PROBLEM, True)
    assert doctor_machine.port(taken).state is State.OK
    for address in ("", "x", "127.0.0.1:", "127.0.0.1:-1", "127.0.0.1:99999", "no host:1"):
        assert doctor_machine.port(address).state is State.PROBLEM, address


@pytest.mark.parametrize(
    ("number", "advice"),
    [
        (errno.EADDRNOTAVAIL, "an address of this machine"),
        (errno.EACCES, "below 1024 needs root"),
        (errno.ENOBUFS, "another address"),
    ],
)
def test_ports_that_cannot_be_used(
    number: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each reason has its advice; the tests knew only ports in use."""

    def bind(_: socket.socket, address: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(socket.socket, "bind", bind)
    check = doctor_machine.port("127.0.0.1:80", owner_pid=12)
    assert (check.state, advice in check.what_to_do) == (State.PROBLEM, True), check
    assert "ss -ltnp" not in check.what_to_do


@pytest.mark.process
def test_a_port_of_the_broker_that_runs(data_dir: Path) -> None:
    """No test had asked about a broker that runs: its own port was a problem."""
    with DirectoryLock(data_dir, "0.2.0"), socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        ran = ledgerfold("doctor", "--data", str(data_dir), "--listen", address, "-o", "json")
    [port] = [each for each in json.loads(ran.out) if each["name"] == f"port {address}"]
    assert (port["state"], f"process {os.getpid()}," in port["found"]) == ("ok", True)


def test_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    for hard, state in ((256, State.PROBLEM), (4096, State.WARNING), (1 << 20, State.OK)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, hard=hard: (hard, hard))
        assert doctor_machine.descriptors().state is state


def test_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 0.0)
    assert doctor_machine.clock().state is State.PROBLEM


def test_the_disk(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_data.nearest_folder(data_dir / "a" / "b") == data_dir
    assert doctor_data.sync_time(data_dir).name == "fsync"
    assert [*data_dir.iterdir()] == []
    assert doctor_data.sync_time(data_dir / "none").state is State.PROBLEM
    usage = type("Usage", (), {"free": 1 << 20})
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    assert doctor_data.space(data_dir).state is State.PROBLEM


def test_permissions(data_dir: Path) -> None:
    assert doctor_data.permissions(data_dir).state is State.OK
    assert doctor_data.permissions(data_dir / "none").state is State.OK
    data_dir.chmod(0o755)
    check = doctor_data.permissions(data_dir)
    assert (check.state, f"chmod 700 {data_dir}" in check.what_to_do) == (State.WARNING, True)
    (data_dir / "file").touch()
    assert doctor_data.permissions(data_dir / "file").state is State.PROBLEM


def test_the_version(data_dir: Path) -> None:
    assert doctor_data.owner_of(data_dir) is None
    with DirectoryLock(data_dir, "99.0.0"):
        owner = doctor_data.owner_of(data_dir)
        assert owner is not None
        assert owner.runs
        assert doctor_data.version(data_dir, owner).state is State.OK
    owner = doctor_data.owner_of(data_dir)
    assert owner is not None
    assert not owner.runs
    check = doctor_data.version(data_dir, owner)
    assert (check.state, "99.0.0" in check.what_to_do) == (State.WARNING, True)
    (data_dir / "lock").write_text("{")
    assert doctor_data.owner_of(data_dir) is None


def test_workers_left_by_an_earlier_broker(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert doctor_data.workers(data_dir, None).state is State.OK
    remains.new_scratch(data_dir)
    monkeypatch.setattr(remains, "processes", lambda token: iter([12, 11]))
    check = doctor_data.workers(data_dir, None)
    assert (check.state, "kill -9 11 12" in check.what_to_do) == (State.WARNING, True)
    running = doctor_data.Owner(1, "0.2.0", True)
    assert doctor_data.workers(data_dir, running).state is State.OK
