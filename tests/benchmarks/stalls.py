"""Measures how long the event loop is blocked while topics are created, rolled, trimmed and loaded.

A complete broker in this process, with SYNC_MS added to each sync of a file or a folder, and to
each metadata write. One message after the other is published to a topic, and a heartbeat measures
the longest pause of the loop, while operations run on other topics. Compare: the same without other
operations. If the loop waits for a disk, its pause is SYNC_MS or more.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.broker.worker.compactor import OnProgress
from ledgerfold.storage.entry import read_header
from ledgerfold.storage.files import Files
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import metadata_dir
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.rocks import RocksKeyValue
from ledgerfold.storage.settings import StoreSettings
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from ledgerfold.v1.records_pb2 import RUN_TRIGGER_ADMIN
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median
from tests.support.memory_compactor import MemoryCompactor

SYNC_MS = 50
_BEAT_S = 0.001
# Small, so that a few entries roll a ledger.
_STORE = StoreSettings(ledger_entries_max=3)
_never = threading.Event()
Work = Callable[["_Lab", int], Awaitable[object]]


def _wait_for_the_disk(_: float = 0) -> None:
    _never.wait(SYNC_MS / 1000)


class _SlowFiles(Files):
    def __init__(self) -> None:
        super().__init__(_wait_for_the_disk)

    def sync_dir(self, path: Path) -> None:
        _wait_for_the_disk()
        super().sync_dir(path)


class _SlowKeyValue(RocksKeyValue):
    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        _wait_for_the_disk()
        super().write(puts, deletes)


class _Compactor(MemoryCompactor):
    """Outside of the loop, as the real one."""

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        work = super().run
        return await asyncio.to_thread(lambda: asyncio.run(work(plan, lambda progress: None)))


class _Lab:
    def __init__(self, folder: Path) -> None:
        files, data = _SlowFiles(), folder / "data"
        data.mkdir()
        metadata = MetadataStore(_SlowKeyValue(metadata_dir(data)))
        settings = BrokerSettings(data_dir=data, compactor="off", store=_STORE)
        store = LedgerStore(
            data, metadata, files=files, settings=_STORE, clock_ms=lambda: time.time_ns() // 10**6
        )
        self._metadata = metadata
        self.broker = Broker(settings, metadata, store, _Compactor(files))
        self._sequence = 0

    async def stop(self) -> None:
        await self.broker.stop()
        self._metadata.close()

    async def topic(self, name: str) -> Topic:
        return await self.broker.topic(f"persistent://public/default/{name}")

    async def publish(self, topic: Topic, count: int = 1) -> None:
        """Returns when all are durable."""
        for _ in range(count):
            self._sequence += 1
            builder = NativeBatchBuilder("p")
            builder.add(b"value", b"k%d" % (self._sequence % 3))
            entry = memoryview(
                builder.build(sequence_id=self._sequence, publish_time_ms=1, plain=True)
            )
            header = read_header(entry)
            topic.log.tail.append(header, (entry[header.header_bytes :],), 1)
        await topic.log.commit.flush()


async def _made(lab: _Lab, number: int) -> None:
    await lab.topic(f"made-{number}")


async def _rolled(lab: _Lab, number: int) -> None:
    await lab.publish(await lab.topic("rolled"), 10)


async def _trimmed(lab: _Lab, number: int) -> None:
    topic = await lab.topic("trimmed")
    await topic.enable_compaction_cursor()
    await lab.publish(topic, 10)
    await _compact(lab, topic)
    await topic.trim()


async def _committed(lab: _Lab, number: int) -> None:
    topic = await lab.topic("committed")
    await lab.publish(topic, 2)
    await _compact(lab, topic)


async def _loaded(lab: _Lab, number: int) -> None:
    topic = await lab.topic("loaded")
    await lab.publish(topic, 2)
    await lab.broker.unload_topic(topic.name)


async def _deleted(lab: _Lab, number: int) -> None:
    topic = await lab.topic("deleted")
    await lab.publish(topic, 2)
    await lab.broker.delete_topic(topic.name, force=True)


async def _compact(lab: _Lab, topic: Topic) -> None:
    await lab.broker.compaction.trigger(topic, RUN_TRIGGER_ADMIN)
    async for _ in lab.broker.compaction.watch(topic):
        pass


WORKS: dict[str, Work] = {
    "made": _made,
    "rolled": _rolled,
    "trimmed": _trimmed,
    "committed": _committed,
    "loaded": _loaded,
    "deleted": _deleted,
}


def run(options: Options) -> Report:
    report = Report("stalls", f"the loop's longest pause, with {SYNC_MS} ms added to every sync")
    with options.fresh_folder() as folder:
        asyncio.run(_measure(folder, options.rounds_or(5), report))
    return report


async def _measure(folder: Path, rounds: int, report: Report) -> None:
    lab = _Lab(folder)
    await lab.broker.start()
    other = await lab.topic("other")
    await lab.publish(other)
    # The first one warms up.
    await _beside(lab, other, _nothing, rounds)
    quiet = await _beside(lab, other, _nothing, rounds)
    report.add("nothing: pause", quiet.pause_ms, "ms")
    report.add("nothing: publish", median(quiet.publish_ms), "ms")
    for name, work in WORKS.items():
        found = await _beside(lab, other, work, rounds)
        against = f"{found.pause_ms / quiet.pause_ms:.1f} times as long as with nothing"
        report.add(f"{name}: pause", found.pause_ms, "ms", against)
        ratio = median(found.publish_ms) / median(quiet.publish_ms)
        report.add(f"{name}: publish", median(found.publish_ms), "ms", f"{ratio:.2f} times")
    await lab.stop()


async def _nothing(lab: _Lab, number: int) -> None:
    await asyncio.sleep(SYNC_MS / 100)


class _Found:
    def __init__(self) -> None:
        self.pause_ms = 0.0
        self.publish_ms: list[float] = []
        self.has_published = asyncio.Event()


async def _beside(lab: _Lab, other: Topic, work: Work, rounds: int) -> _Found:
    """Measures publishing to `other` and the loop's delays during the work, several times."""
    found = _Found()

    async def beat() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(_BEAT_S)
            pause_ms = (time.perf_counter() - began - _BEAT_S) * 1000
            found.pause_ms = max(found.pause_ms, pause_ms)

    async def publish() -> None:
        while True:
            began = time.perf_counter()
            await lab.publish(other)
            found.publish_ms.append((time.perf_counter() - began) * 1000)
            found.has_published.set()

    beside: Sequence[asyncio.Task[None]] = [asyncio.create_task(each()) for each in (beat, publish)]
    for number in range(rounds):
        await work(lab, number)
    await found.has_published.wait()
    for task in beside:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    return found
