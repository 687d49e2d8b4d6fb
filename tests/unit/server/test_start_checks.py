"""A start that cannot succeed reports why, and creates nothing."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.command_line import Ran, ledgerfold, run


def serve(data_dir: Path, *arguments: str) -> Ran:
    return ledgerfold("serve", "--data", str(data_dir), "--compactor", "off", *arguments)


def serve_apart(data_dir: Path, *arguments: str) -> Ran:
    """Starts a separate process: gRPC's core writes past Python's standard error."""
    ran = run(["serve", "--data", str(data_dir), "--compactor", "off", *arguments])
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


@pytest.fixture
def taken() -> Iterator[str]:
    """Returns an address that another socket listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.process
@pytest.mark.parametrize("option", ["--listen", "--metrics-listen"])
def test_an_address_in_use_is_refused(tmp_path: Path, taken: str, option: str) -> None:
    """A conflict, with one sentence as its error."""
    ran = serve_apart(tmp_path / "data", "--listen", "127.0.0.1:0", option, taken)
    assert (ran.code, ran.out) == (5, "")
    assert ran.err == (
        f"ledgerfold: Another process listens on {taken}. Stop it, or choose another port "
        f"with {option}.\n"
    )
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("option", ["--listen", "--metrics-listen"])
@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("nonsense", "use HOST:PORT"),
        ("127.0.0.1", "use HOST:PORT"),
        ("127.0.0.1:x", "use HOST:PORT"),
        ("127.0.0.1:99999", "use HOST:PORT"),
        (":7650", "use HOST:PORT"),
        ("nohost.invalid:7650", "unknown host"),
        # Of a network for documentation: no machine has it.
        ("192.0.2.1:7650", "not an address of this machine"),
    ],
)
def test_an_invalid_address_is_refused(tmp_path: Path, option: str, address: str, why: str) -> None:
    """Exits with the usage; the error does not say that the address is in use."""
    ran = serve(tmp_path / "data", "--listen", "127.0.0.1:0", option, address)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"ledgerfold: {option} {address}: ")
    assert why in ran.err
    assert ran.err.count("\n") == 1
    assert not (tmp_path / "data").exists()


def test_one_address_for_two_ports_is_refused(tmp_path: Path) -> None:
    """Messages and metrics cannot share a port."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
    ran = serve(tmp_path / "data", "--listen", address, "--metrics-listen", address)
    assert ran.code == 2
    assert "--metrics-listen" in ran.err
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("named", ["locl", "h", "h:x", "h:0", "http://h:1"])
def test_an_invalid_compactor_is_refused(tmp_path: Path, named: str) -> None:
    """Otherwise every run would wait for ever."""
    ran = serve(tmp_path / "data", "--listen", "127.0.0.1:0", "--compactor", named)
    assert (ran.code, ran.out) == (2, "")
    expected = f"ledgerfold: --compactor {named}: use auto, spark, inline, off or HOST:PORT.\n"
    assert ran.err == expected
    assert not (tmp_path / "data").exists()


def test_an_unwritable_ready_file_is_refused(tmp_path: Path) -> None:
    """The error comes before "ready", and before anything is created."""
    where = ("--listen", "127.0.0.1:0", "--ready-file")
    missing = tmp_path / "missing" / "ready"
    ran = serve(tmp_path / "data", *where, str(missing))
    assert (ran.code, ran.out) == (3, "")
    assert ran.err == f"ledgerfold: {missing}: No such file or directory\n"
    ran = serve(tmp_path / "data", *where, str(tmp_path))
    assert (ran.code, ran.out) == (1, "")
    assert ran.err == f"ledgerfold: {tmp_path}: Is a directory\n"
    assert not any(tmp_path.iterdir())


def test_a_file_as_data_directory_is_refused(tmp_path: Path) -> None:
    """A file that is no directory holds no data."""
    path = tmp_path / "file"
    path.write_text("mine")
    for data_dir in (path, path / "data"):
        ran = serve(data_dir, "--listen", "127.0.0.1:0")
        assert (ran.code, ran.out) == (2, "")
        assert ran.err == f"ledgerfold: --data {data_dir}: {path} is not a directory.\n"
    assert path.read_text() == "mine"
