"""The memory that is left to a process: of the machine, and of its control groups."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from ledgerfold.compactor.memory import free_memory_bytes

MACHINE = {"proc/meminfo": "MemTotal: 2000 kB\nMemAvailable: 1000 kB\nHugePages_Total: 0\n\nodd\n"}
STAT = "anon 9\nactive_file 30\ninactive_file 50\n"
POD = {
    "groups/pod/memory.max": "900000\n",
    "groups/pod/memory.current": "400000\n",
    "groups/pod/memory.stat": STAT,
}
CONTAINER = {
    "proc/self/cgroup": "4:memory:/old\n0::/pod/container\n",
    "groups/pod/container/memory.max": "max\n",
    "groups/pod/container/memory.current": "300000\n",
    "groups/pod/container/memory.stat": STAT,
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, None),
        (MACHINE, 1000 * 1024),
        # The container has no limit; the group around it has.
        ({**MACHINE, **CONTAINER, **POD}, 900_000 - 400_000 + 80),
        ({**MACHINE, **CONTAINER, **POD, "groups/pod/memory.max": "9000000\n"}, 1000 * 1024),
        # Within a container, the own group may be the root.
        (
            {
                "proc/self/cgroup": "0::/\n",
                "groups/memory.max": "7\n",
                "groups/memory.current": "2",
            },
            5,
        ),
        # A path that the container does not see.
        ({**MACHINE, "proc/self/cgroup": "0::/../elsewhere\n"}, 1000 * 1024),
    ],
)
def test_the_memory_left_is_the_least_of_all(
    files: Mapping[str, str], expected: int | None, tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert free_memory_bytes(tmp_path / "proc", tmp_path / "groups") == expected
