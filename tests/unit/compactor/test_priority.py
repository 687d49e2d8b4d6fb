"""The priority and the processors of a worker (`--nice`, `--cores`), for itself and all that it
starts.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process
GROUP = Path("/proc/self/autogroup")
PROGRAM = """
import os, subprocess, sys
from ledgerfold.compactor.__main__ import _be_nice
_be_nice(int(sys.argv[1]))
child = "import os; print(os.nice(0), open('/proc/self/autogroup').read() if {} else '')"
subprocess.run([sys.executable, "-c", child.format(os.path.exists("/proc/self/autogroup"))])
"""


@pytest.mark.parametrize("value", [0, 7])
def test_child_processes_of_a_worker_have_its_nice_value(value: int) -> None:
    """As processes, and as a session where Linux schedules sessions."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(value)],
        capture_output=True,
        text=True,
        check=True,
        start_new_session=True,
    )
    found = done.stdout.split()
    # The tests themselves may run under `nice`.
    assert found[0] == str(min(os.nice(0) + value, 19))
    if GROUP.exists():
        assert found[-2:] == ["nice", str(value)]


CORES_PROGRAM = """
import os, subprocess, sys
from ledgerfold.compactor.__main__ import _limit_cores
_limit_cores(int(sys.argv[1]))
child = "import os; print(*sorted(os.sched_getaffinity(0)))"
subprocess.run([sys.executable, "-c", child])
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
@pytest.mark.parametrize("count", [1, 100_000])
def test_child_processes_of_a_worker_use_its_processors(count: int) -> None:
    """More processors than the machine has are all of them."""
    done = subprocess.run(
        [sys.executable, "-c", CORES_PROGRAM, str(count)],
        capture_output=True,
        text=True,
        check=True,
    )
    every = sorted(os.sched_getaffinity(0))
    assert [int(each) for each in done.stdout.split()] == every[-count:]
