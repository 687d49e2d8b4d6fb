"""Measures the latency of publishing while a gigabyte is compacted.

A producer sends one message of 1 kB every 5 ms and waits for each receipt: first without other
work, then while topics of 10,000,000 messages of 100 B over 1,000,000 keys are compacted on a warm
worker. The 99th percentile is compared: by default, with a lower priority of the worker (`serve
--compactor-nice`), and with a core that it does not use (`--compactor-cores`). The goal: at most
1.5 times as long beside a run.
"""

from __future__ import annotations

import os
import threading
import time

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from tests.benchmarks.compact_large import publish
from tests.benchmarks.compaction import compact
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, percentile, spread
from tests.benchmarks.workload import Workload

MESSAGES, KEYS, VALUE_BYTES = 10_000_000, 1_000_000, 100
_PAYLOAD = bytes(1000)
_EVERY_S = 0.005
_QUIET_S = 10.0
_OPTIONS = {
    "default": (),
    "nice 10": ("--compactor-nice", "10"),
    "one core less": ("--compactor-cores", str(max((os.cpu_count() or 1) - 1, 1))),
}


class _Latencies(threading.Thread):
    """Publishes until it is stopped. `found_ms`: the time to each receipt."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.found_ms = list[float]()
        self._url, self._over = url, threading.Event()

    def run(self) -> None:
        with Client(self._url) as client:
            producer = client.create_producer("beside")
            while not self._over.wait(_EVERY_S):
                began = time.perf_counter()
                producer.send(_PAYLOAD)
                self.found_ms.append((time.perf_counter() - began) * 1000)

    def end(self) -> list[float]:
        self._over.set()
        self.join()
        return self.found_ms


def run(options: Options) -> Report:
    report = Report("beside", "publishing 1 kB every 5 ms, beside a compaction of 1 GB")
    size = options.messages_or(MESSAGES)
    workload = Workload(size, max(size * KEYS // MESSAGES, 1), VALUE_BYTES)
    topics = [f"large-{number}" for number in range(options.rounds_or(3))]
    for name, arguments in _OPTIONS.items():
        with options.broker(*arguments, compactor="local") as broker, Admin(broker.url) as admin:
            publish(broker.url, "warm-up", Workload(10_000, keys=500, value_bytes=100))
            compact(admin, "warm-up")
            for topic in topics:
                publish(broker.url, topic, workload)
            latencies = _Latencies(broker.url)
            latencies.start()
            threading.Event().wait(_QUIET_S / (10 if options.quick else 1))
            quiet = latencies.end()
            latencies = _Latencies(broker.url)
            latencies.start()
            seconds = [compact(admin, topic).seconds for topic in topics]
            beside = latencies.end()
        _add(report, name, quiet, beside)
        report.add(f"{name}: a run", median(seconds), "s", spread(seconds))
    return report


def _add(report: Report, name: str, quiet: list[float], beside: list[float]) -> None:
    before, after = percentile(quiet, 99), percentile(beside, 99)
    report.add(f"{name}: p50, idle", percentile(quiet, 50), "ms")
    report.add(f"{name}: p99, idle", before, "ms")
    report.add(f"{name}: p50, beside", percentile(beside, 50), "ms")
    against = f"{after / before:.2f} times as long as idle; goal 1.5"
    report.add(f"{name}: p99, beside", after, "ms", against)
    report.add(f"{name}: longest, beside", max(beside), "ms")
