"""Finds the processes of a broker by kind, to kill one of them.

    broker -> worker (`ledgerfold.compactor`) -> JVM -> Spark's daemon -> Spark's Python workers

Only the descendants of the broker that serves now count, and only such as carry its mark: nothing
else on the machine is ever hit. Read from /proc.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from tests.support.broker_process import BrokerProcess
from tests.support.processes import command

BROKER, WORKER, JVM, PYTHON = "broker", "worker", "JVM", "Python worker"


def victims(broker: BrokerProcess) -> dict[str, list[int]]:
    """Pids by kind. Without a broker that runs, none of any."""
    found: dict[str, list[int]] = {BROKER: [], WORKER: [], JVM: [], PYTHON: []}
    if broker.returncode is not None:
        return found
    found[BROKER].append(broker.pid)
    children = _children(broker.processes())
    for worker in children.get(broker.pid, ()):
        found[WORKER].append(worker)
        for jvm in children.get(worker, ()):
            if "java" in command(jvm).partition(" ")[0]:
                found[JVM].append(jvm)
                found[PYTHON] += _below(jvm, children)
    return found


def _children(pids: Iterable[int]) -> dict[int, list[int]]:
    children: dict[int, list[int]] = {}
    for pid in pids:
        with contextlib.suppress(OSError):
            # After the name, which may contain anything: state, then the parent.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            children.setdefault(int(fields[1]), []).append(pid)
    return children


def _below(pid: int, children: dict[int, list[int]]) -> list[int]:
    found = list(children.get(pid, ()))
    for child in tuple(found):
        found += _below(child, children)
    return found


def kill(pid: int) -> bool:
    """As kill -9. Returns False if it had ended."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True
