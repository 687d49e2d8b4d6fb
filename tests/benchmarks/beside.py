"""Measures the latency of publishing while a gigabyte is compacted.

A producer sends one message of 1 kB every 5 ms and waits for each receipt: first without other
work, then while topics of 10,000,000 messages of 100 B over 1,000,000 keys are compacted on a warm
worker. The 99th percentile is compared: by default, with a lower priority of the worker (`serve
--compactor-nice`), and with a core that it does not use (`--compactor-cores`). The goal: at most
1.5 times as long beside a run.

The baseline is the disk alone: a write of the same bytes and `fdatasync`, as often, without other
work and beside another such run.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.files import REAL
from tests.benchmarks.compact_large import publish
from tests.benchmarks.compaction import compact
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, percentile, spread
from tests.benchmarks.workload import Workload

MESSAGES, KEYS, VALUE_BYTES = 10_000_000, 1_000_000, 100
_ANOTHER = "large"
_PAYLOAD = bytes(1000)
_EVERY_S = 0.005
_QUIET_S = 10.0
_OPTIONS = {
    "default": (),
    "nice 10": ("--compactor-nice", "10"),
    "one core less": ("--compactor-cores", str(max((os.cpu_count() or 1) - 1, 1))),
}


class _Latencies(threading.Thread):
    """Repeats a piece of work until it is stopped. `found_ms`: the times that it has taken.

    `prepared` yields the work, on this thread.
    """

    def __init__(self, prepared: AbstractContextManager[Callable[[], object]]) -> None:
        super().__init__()
        self.found_ms = list[float]()
        self._prepared, self._over = prepared, threading.Event()
        self.start()

    def run(self) -> None:
        with self._prepared as work:
            while not self._over.wait(_EVERY_S):
                began = time.perf_counter()
                work()
                self.found_ms.append((time.perf_counter() - began) * 1000)

    def end(self) -> list[float]:
        self._over.set()
        self.join()
        return self.found_ms


@contextmanager
def _publishing(url: str) -> Iterator[Callable[[], object]]:
    with Client(url) as client:
        producer = client.create_producer("beside")
        yield lambda: producer.send(_PAYLOAD)


@contextmanager
def _syncing(folder: Path) -> Iterator[Callable[[], object]]:
    def work() -> None:
        file.write([_PAYLOAD])
        file.sync()

    path = folder / "synced"
    with closing(REAL.create(path)) as file:
        yield work
    path.unlink()


def run(options: Options) -> Report:
    report = Report("beside", "publishing 1 kB every 5 ms, beside a compaction of 1 GB")
    size = options.messages_or(MESSAGES)
    workload = Workload(size, max(size * KEYS // MESSAGES, 1), VALUE_BYTES)
    topics = [f"large-{number}" for number in range(options.rounds_or(3))]
    quiet_s = _QUIET_S / (10 if options.quick else 1)
    for name, arguments in _OPTIONS.items():
        with (
            options.broker(*arguments, compactor="local") as broker,
            options.fresh_folder() as folder,
            Admin(broker.url) as admin,
        ):
            publish(broker.url, "warm-up", Workload(10_000, keys=500, value_bytes=100))
            compact(admin, "warm-up")
            for topic in (*topics, _ANOTHER):
                publish(broker.url, topic, workload)
            latencies = _Latencies(_publishing(broker.url))
            threading.Event().wait(quiet_s)
            quiet = latencies.end()
            latencies = _Latencies(_publishing(broker.url))
            seconds = [compact(admin, topic).seconds for topic in topics]
            beside = latencies.end()
            syncs = _Latencies(_syncing(folder))
            threading.Event().wait(quiet_s)
            syncs_alone = syncs.end()
            syncs = _Latencies(_syncing(folder))
            compact(admin, _ANOTHER)
            syncs_beside = syncs.end()
        _add(report, name, quiet, beside, "; goal 1.5")
        report.add(f"{name}: a run", median(seconds), "s", spread(seconds))
        _add(report, f"{name}, the disk alone", syncs_alone, syncs_beside)
    return report


def _add(
    report: Report, name: str, quiet: list[float], beside: list[float], goal: str = ""
) -> None:
    before, after = percentile(quiet, 99), percentile(beside, 99)
    report.add(f"{name}: p50, idle", percentile(quiet, 50), "ms")
    report.add(f"{name}: p99, idle", before, "ms")
    report.add(f"{name}: p50, beside", percentile(beside, 50), "ms")
    report.add(f"{name}: p99, beside", after, "ms", f"{after / before:.2f} times as idle{goal}")
    report.add(f"{name}: longest, beside", max(beside), "ms")
