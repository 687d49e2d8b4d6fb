"""The metrics of the process: the syncs of its files, and on Linux its memory, CPU time and open
files.

prometheus_client counts and formats them. Both ports that serve metrics add them to the readings of
the broker (broker/metrics/readings.py). Thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import (
    CollectorRegistry,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from ledgerfold.broker.metrics.catalogue import SYNC_BUCKETS_S, SYNC_SECONDS
from ledgerfold.storage.files import Files


class ProcessMetrics:
    """The metrics of one process. The store uses `files`, of the kind `make_files`, so that its
    syncs are timed."""

    def __init__(self, make_files: Callable[[Callable[[float], object]], Files] = Files) -> None:
        # Creation times of counters are not useful: they equal the process's start.
        disable_created_metrics()
        self._registry = CollectorRegistry()
        syncs = Histogram(
            SYNC_SECONDS.name, SYNC_SECONDS.help, buckets=SYNC_BUCKETS_S, registry=self._registry
        )
        ProcessCollector(registry=self._registry)
        self.files = make_files(syncs.observe)

    def text(self) -> bytes:
        """Returns them in Prometheus' text format."""
        return generate_latest(self._registry)
