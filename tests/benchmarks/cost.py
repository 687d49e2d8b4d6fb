"""Runs whose cost depends on the changes: a first one, then 1 % new messages, then a single
message.

A topic of 10,000,000 keys, one message of 100 B each, on a warm worker. Then a hundredth of the
keys, spread over all, gets another message, and then one key. Each later run is compared with the
first one, by its time and by the bytes that it wrote. The baseline copies the bytes of the
compacted ledger and syncs them.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.wire.frames import encode_entries
from ledgerfold.v1.records_pb2 import RunCounts
from tests.benchmarks import wire
from tests.benchmarks.compaction import Timed, compact
from tests.benchmarks.options import Options
from tests.benchmarks.peak_memory import MB
from tests.benchmarks.report import Report
from tests.benchmarks.workload import Workload

MESSAGES = 10_000_000
VALUE_BYTES = 100
TOPIC = "cost"


@dataclass(frozen=True)
class Numbered(Workload):
    """One message for each of `numbers`, in that order."""

    numbers: Sequence[int] = ()

    def _chunks(self, rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        value = os.urandom(self.value_bytes)
        for start in range(0, len(self.numbers), rows):
            keys = [b"key-%08d" % number for number in self.numbers[start : start + rows]]
            yield keys, [value] * len(keys)


def run(options: Options) -> Report:
    report = Report("cost", "runs by publishing order over unique keys, warm worker")
    count = options.messages_or(MESSAGES)
    with options.broker(compactor="local") as broker, Admin(broker.url) as admin:
        _publish(broker.url, "warm-up", range(10_000))
        compact(admin, "warm-up")
        _publish(broker.url, TOPIC, range(count))
        first = compact(admin, TOPIC)
        copied_s = _copy(broker.data_dir / "ledgers" / str(first.run.ledger_id))
        report.add("first run", first.seconds, "s", f"cp and sync of its ledger {copied_s:.2f} s")
        _add_phases(report, "first run", first.run.counts)
        some = np.random.default_rng(7).permutation(count)[: max(count // 100, 1)].tolist()
        for name, numbers, goal in (("1 % new", some, 15), ("one message", [count // 2], 3)):
            _publish(broker.url, TOPIC, numbers)
            _add(report, name, compact(admin, TOPIC), first, goal)
    return report


def _add(report: Report, name: str, timed: Timed, first: Timed, goal: int) -> None:
    share = 100 * timed.seconds / first.seconds
    report.add(name, timed.seconds, "s", f"{share:.1f} % of the first run, goal {goal} %")
    _add_phases(report, name, timed.run.counts)


def _add_phases(report: Report, name: str, counts: RunCounts) -> None:
    report.add(f"{name}: phase one", counts.phase_one_ms / 1000, "s", "as the worker says")
    report.add(f"{name}: phase two", counts.phase_two_ms / 1000, "s", "as the worker says")
    report.add(
        f"{name}: written",
        _written(counts) / MB,
        "MB",
        f"kept {counts.bytes_kept / MB:.0f}, of which dead {counts.garbage_bytes / MB:.1f}",
    )


def _written(counts: RunCounts) -> int:
    return counts.bytes_out - counts.bytes_kept + counts.vector_bytes


def _copy(folder: Path) -> float:
    """Copies a folder's files and syncs them; returns the seconds."""
    target = folder.with_name(f"{folder.name}-copy")
    target.mkdir()
    began = time.perf_counter()
    for each in folder.iterdir():
        shutil.copyfile(each, target / each.name)
        with open(target / each.name, "r+b") as file:
            os.fsync(file.fileno())
    taken_s = time.perf_counter() - began
    shutil.rmtree(target)
    return taken_s


def _publish(broker: str, topic: str, numbers: Sequence[int]) -> None:
    workload = Numbered(len(numbers), len(numbers), VALUE_BYTES, numbers=numbers)

    async def publish() -> None:
        frames = (encode_entries([entry]) for entry, _ in workload.entries())
        async with wire.connected(broker) as channel:
            await wire.publish(wire.Broker(channel, topic), frames)

    asyncio.run(publish())
