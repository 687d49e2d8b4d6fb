"""The peak memory of processes while something runs.

>>> with PeakMemory(list) as memory:
...     pass
>>> memory.proportional
0
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

MB = 1e6
_SAMPLE_S = 0.1


class PeakMemory:
    """Samples the memory of the processes that `pids` returns, all together. In bytes.

    `proportional` is the proportional set size, in which a page that several processes share counts
    once; `anonymous` is its part that is not of files. Both are zero without /proc.
    """

    def __init__(self, pids: Callable[[], Iterable[int]]) -> None:
        self.proportional = self.anonymous = 0
        self._pids = pids
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(_SAMPLE_S):
            sizes = [_rollup(pid) for pid in self._pids()]
            proportional = sum(each.get("Pss", 0) for each in sizes)
            anonymous = sum(each.get("Pss_Anon", 0) for each in sizes)
            self.proportional = max(self.proportional, proportional)
            self.anonymous = max(self.anonymous, anonymous)

    def __enter__(self) -> PeakMemory:
        self._watching.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._over.set()
        self._watching.join()


def _rollup(pid: int) -> dict[str, int]:
    # "Pss: 1234 kB", one per line; nothing without /proc, or if the process has ended.
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]
    except OSError:
        return {}
    pairs = (line.split(":", 1) for line in lines)
    return {name: int(amount.split()[0]) * 1024 for name, amount in pairs}
