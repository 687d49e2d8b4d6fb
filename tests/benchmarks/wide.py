"""Many topics from one client, each created and written once, and their stats.

`create_producer`, one durable message, `close`: by IN_FLIGHT tasks at a time with the asyncio
client, and one topic after the other with the synchronous one (a tenth of the topics). The baseline
performs the disk work of each topic on one thread: a folder with two small files, with syncs of the
files and the folders, and two synced records. Both are timed in the same run. `stats`: one call for
one topic, when all topics exist. Then the broker is stopped, and started on these topics. Goals: a
topic in 2.5 ms, stats in 5 ms, a start in 1.3 s with 71 MB.

NOTE: run it before other benchmarks, or a minute later. For a minute after files were deleted, ext4
avoids their inodes, which makes new files slower.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ledgerfold.aio import Client as AsyncClient
from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.files import REAL, replace_file, write_file
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, seconds_of, spread
from tests.support import processes

TOPICS = 10_000
IN_FLIGHT = 64
STATS = 200
_VALUE = b"x" * 100


def run(options: Options) -> Report:
    count = options.messages_or(TOPICS)
    report = Report("wide", "topics made and written once from one client, fsync")
    report.sizes = {"topics": count}
    with options.broker() as broker:
        pid, address = broker.pid, broker.url
        names = [f"wide-{number}" for number in range(count)]
        few = [f"serial-{number}" for number in range(max(count // 10, 1))]
        together = _timed(
            report, pid, f"{IN_FLIGHT} at a time", names, lambda: _make(address, names)
        )
        serial = _timed(report, pid, "one by one", few, lambda: _make_serially(address, few))
        with options.fresh_folder() as folder:
            alone = _disk_alone(folder, len(few))
        report.add("the disk alone, one by one", alone * 1e3, "ms/topic")
        report.add("at a time / the disk alone", together / alone * 100, "%")
        report.add("one by one / the disk alone", serial / alone * 100, "%")
        with Admin(address) as admin:
            taken = [seconds_of(lambda name=name: admin.stats(name)) for name in names[:STATS]]  # type: ignore[misc]
        report.add("stats of one topic", median(taken) * 1e3, "ms", f"{spread(taken)} s; goal 5 ms")
        broker.stop()
        started = seconds_of(broker.start)
        report.add("a start", started, "s", f"{count + len(few):,} topics with data; goal 1.3 s")
        report.add("memory then", processes.memory_bytes([broker.pid]) / 1e6, "MB", "goal 71 MB")
    return report


def _timed(
    report: Report, pid: int, name: str, topics: Sequence[str], work: Callable[[], object]
) -> float:
    """Returns the seconds for each topic."""
    before = processes.processor_seconds([pid]), time.process_time()
    seconds = seconds_of(work) / len(topics)
    used = processes.processor_seconds([pid]) - before[0], time.process_time() - before[1]
    broker_ms, client_ms = (each / len(topics) * 1e3 for each in used)
    of_a_core = f"of a core: broker {broker_ms:.2f}, client {client_ms:.2f}"
    report.add(name, seconds * 1e3, "ms/topic", f"{of_a_core}; goal 2.5")
    return seconds


def _make(address: str, names: Sequence[str]) -> None:
    async def make_all() -> None:
        left = iter(names)
        async with AsyncClient(address) as client:

            async def make_some() -> None:
                for name in left:
                    producer = await client.create_producer(name)
                    await producer.send(_VALUE, partition_key="k")
                    await producer.close()

            await asyncio.gather(*(make_some() for _ in range(IN_FLIGHT)))

    asyncio.run(make_all())


def _make_serially(address: str, names: Sequence[str]) -> None:
    with Client(address) as client:
        for name in names:
            producer = client.create_producer(name)
            producer.send(_VALUE, partition_key="k")
            producer.close()


def _disk_alone(folder: Path, topics: int) -> float:
    """Returns the seconds for each topic."""

    def write_all() -> None:
        for number in range(topics):
            topic = folder / str(number)
            for record in ("made", "written"):
                replace_file(folder / record, [_VALUE])
            REAL.make_dir(topic)
            write_file(topic / "label", [_VALUE])
            write_file(topic / "0.log", [_VALUE])
            REAL.sync_dir(topic)
            REAL.sync_dir(folder)

    return seconds_of(write_all) / topics
