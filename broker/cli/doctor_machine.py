"""The checks of `doctor` that concern the machine: Python, Java, ports, limits, the clock."""

from __future__ import annotations

import errno
import importlib.util
import re
import resource
import shutil
import socket
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

from ledgerfold.broker.cli.doctor_check import Check, State

_PYTHON_MIN, _PYTHON_END = (3, 11), (3, 15)
# Those of compactor/java.py, which the broker does not import.
_JAVA_MIN, _JAVA_MODULE = 17, "jdk.incubator.vector"
_RUN_S = 20
_PORT_MAX = 65_535
_ANOTHER_ADDRESS = "serve --listen with another address"
_ADVICE = {
    errno.EADDRINUSE: "see who has it: ss -ltnp 'sport = :{port}'; or serve --listen with another "
    "port",
    errno.EADDRNOTAVAIL: "give an address of this machine (ip address), or 0.0.0.0 for all",
    errno.EACCES: "a port below 1024 needs root; serve --listen with a higher one",
}
_INSTALL_JAVA = (
    "install Java 17 or later (apt install openjdk-17-jre-headless; brew install openjdk@17), or "
    "set JAVA_HOME; without it compaction is inline"
)
# The open files that a broker needs besides its connections (docs/ARCHITECTURE.md).
_DESCRIPTORS_MIN = 1024
_DESCRIPTORS_GOOD = 65_536
# 2024-01-01. A machine without a clock battery starts in 1970 or 2000.
_TIME_MIN_S = 1_704_067_200


def python(version: tuple[int, ...]) -> Check:
    text = ".".join(map(str, version))
    if _PYTHON_MIN <= version[:2] < _PYTHON_END:
        return Check("python", State.OK, text)
    return Check("python", State.PROBLEM, text, "install Python 3.11, 3.12, 3.13 or 3.14")


def java(environment: Mapping[str, str]) -> Check:
    """Checks the Java that a worker finds: of JAVA_HOME, or on PATH."""
    home = environment.get("JAVA_HOME")
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    executables = [f"{home}/bin/java"] if home else []
    executables += [on_path] if on_path else []
    seen = []
    for path in executables:
        version = _java_version(path)
        if version is None or version < _JAVA_MIN:
            seen.append(f"{path} is {'no Java' if version is None else f'Java {version}'}")
        elif not _has_module(path):
            seen.append(f"{path} lacks the module {_JAVA_MODULE}")
        else:
            return Check("java", State.OK, f"{version}, {path}")
    return Check("java", State.WARNING, "; ".join(seen) or "none", _INSTALL_JAVA)


def _java_version(path: str) -> int | None:
    """Returns the major version; None if it cannot be run."""
    out, error = _ran(path, "-version")
    match = re.search(r'version "(?:1\.)?(\d+)', error + out)
    return None if match is None else int(match[1])


def _ran(*command: str) -> tuple[str, str]:
    """Returns the output and the errors of a command; nothing if it cannot be run, or hangs."""
    try:
        ran = subprocess.run(command, capture_output=True, timeout=_RUN_S, check=False, text=True)
    except (OSError, subprocess.TimeoutExpired):
        return "", ""
    return ran.stdout, ran.stderr


def _has_module(path: str) -> bool:
    """Returns whether the runtime's `release` file lists the module, or names no modules."""
    try:
        text = (Path(path).resolve().parent.parent / "release").read_text(encoding="utf-8")
    except (OSError, ValueError):
        return True
    modules = re.search(r'^MODULES="?([^"\n]+)', text, re.MULTILINE)
    return modules is None or _JAVA_MODULE in modules[1].split()


def pyspark() -> Check:
    if importlib.util.find_spec("pyspark") is not None:
        return Check("pyspark", State.OK, "installed")
    what = "pip install 'WHEEL-OR-CHECKOUT[spark]'; without it compaction is inline"
    return Check("pyspark", State.WARNING, "not installed", what)


def port(address: str, owner_pid: int | None = None) -> Check:
    """Checks that a broker could listen at HOST:PORT. `owner_pid`: the process that serves the data
    directory, which may be who listens there.
    """
    name, (host, _, number) = f"port {address}", address.rpartition(":")
    try:
        if not 0 <= int(number) <= _PORT_MAX:
            raise ValueError(number)
        family, _, _, _, target = socket.getaddrinfo(
            host.strip("[]") or None, int(number), type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, socket.SOCK_STREAM) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(target)
            listener.listen()
    except (ValueError, socket.gaierror):
        return Check(name, State.PROBLEM, "not an address of this machine", "give HOST:PORT")
    except OSError as error:
        if error.errno == errno.EADDRINUSE and owner_pid is not None:
            usage = f"in use, perhaps by process {owner_pid}, which serves the data directory"
            return Check(name, State.OK, usage)
        what = _ADVICE.get(error.errno or 0, _ANOTHER_ADDRESS).format(port=number)
        return Check(name, State.PROBLEM, error.strerror or str(error), what)
    return Check(name, State.OK, "free")


def descriptors() -> Check:
    """Checks the hard limit: a start raises the soft one to it."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _DESCRIPTORS_GOOD if hard == resource.RLIM_INFINITY else hard
    if limit >= _DESCRIPTORS_GOOD:
        return Check("file descriptors", State.OK, f"{limit:,} or more")
    state = State.WARNING if limit >= _DESCRIPTORS_MIN else State.PROBLEM
    what = f"ulimit -Hn {_DESCRIPTORS_GOOD}, as root; in a systemd unit LimitNOFILE"
    return Check("file descriptors", state, f"at most {limit:,}", what)


def clock() -> Check:
    now_s = time.time()
    text = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_s))
    if now_s < _TIME_MIN_S:
        what = "set the clock: TTL, retention and delays count from publish times"
        return Check("clock", State.PROBLEM, text, what)
    if _is_synchronized() is False:
        return Check(
            "clock", State.WARNING, f"{text}, not synchronized", "timedatectl set-ntp true"
        )
    return Check("clock", State.OK, text)


def _is_synchronized() -> bool | None:
    """Returns what systemd says; None without it, as in a container."""
    if not Path("/run/systemd/system").is_dir() or shutil.which("timedatectl") is None:
        return None
    out, _ = _ran("timedatectl", "show", "--property=NTPSynchronized", "--value")
    return {"yes": True, "no": False}.get(out.strip())
