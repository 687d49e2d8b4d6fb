"""A broker in this process for the differential test, with a worker in the same process: the same
code, without Spark.

The broker is complete, on real files in a temporary folder; only gRPC is omitted: its handlers are
called directly. The worker's cleaning uses the real job and tasks on the inline engine
(compactor/job/inline.py). A crash is an exception at a crash point that no code handles: nothing is
closed, and the next broker finds the files as they are.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar
from unittest.mock import patch

from ledgerfold.broker.common.clock import ManualClock
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.kafka.cleaner.deletion import delete_old_segments
from ledgerfold.broker.rpc.kafka import kafka_calls
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.kafka_reader import KafkaReaderOptions
from ledgerfold.broker.topics.stream_reader import Checked, Entries
from ledgerfold.storage import crash_points
from ledgerfold.storage.entry import read_header
from ledgerfold.storage.files import REAL
from ledgerfold.storage.kafka.records import records_of
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import metadata_dir
from ledgerfold.storage.rocks import RocksKeyValue
from ledgerfold.v1 import kafka_pb2
from ledgerfold.v1.compactor_pb2 import CleanManifest, CleanPlan
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import Emulation, MessageId
from tests.differential.kafka_product import NO_TURNS
from tests.model.kafka.cleaner import KAFKA
from tests.support.kafka_log import run_round
from tests.support.memory_compactor import MemoryCompactor

_TIMEOUT_S = 60
_MEMORY = Path("/dev/shm")
T = TypeVar("T")


class Killed(BaseException):
    """The broker was killed."""


class LocalWorker(MemoryCompactor):
    async def clean(self, plan: CleanPlan) -> CleanManifest:
        self.has_begun.set()
        await self.may_go.wait()
        return run_round(plan)


class LocalBroker:
    """A Door. Each history has a separate data folder."""

    leaves_out = frozenset[str]()
    now_ms: int | None = None
    where = "in this process"

    def __init__(self, profile: str = KAFKA) -> None:
        self._profile = profile
        self._root = Path(tempfile.mkdtemp(dir=_MEMORY if _MEMORY.is_dir() else None))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._count = 0
        self._broker: Broker | None = None

    def _start(self, coroutine: Coroutine[Any, Any, T]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop)

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        result: T = self._start(coroutine).result(_TIMEOUT_S)
        return result

    # Its life

    def begin(self, config: Mapping[str, str], now_ms: int) -> None:
        self._drop()
        shutil.rmtree(self._root / str(self._count), ignore_errors=True)
        self._count += 1
        self._config, self._now_ms = config, now_ms
        self._open()

    def _open(self) -> None:
        data_dir = self._root / str(self._count)
        data_dir.mkdir(exist_ok=True)
        settings = BrokerSettings(
            data_dir=data_dir,
            compactor="off",
            kafka_config={**NO_TURNS, **self._config},
            emulation=Emulation(profile=self._profile),
        )
        clock = ManualClock(self._now_ms)
        self._metadata = MetadataStore(RocksKeyValue(metadata_dir(data_dir), is_same_boot=True))
        store = LedgerStore(
            data_dir, self._metadata, files=REAL, settings=settings.store, clock_ms=clock.now_ms
        )
        store.recover(is_same_boot=True)

        async def start() -> Broker:
            self._worker = LocalWorker(REAL)
            broker = Broker(settings, self._metadata, store, self._worker, clock)
            await broker.start()
            for name in broker.names.listed(""):
                await broker.kafka_topic(name)
            return broker

        self._broker = self._run(start())
        self._calls = kafka_calls(self._broker)

    def _drop(self) -> None:
        """Drops the broker as a killed process would be, without closing anything."""
        if self._broker is None:
            return

        async def cancel() -> None:
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks)

        self._run(cancel())
        self._broker.executor.shutdown()
        self._metadata.close()
        self._broker = None

    def die(self, dying: Callable[[], None] | None, point: str = "") -> None:
        if dying is not None:
            with _killed_at(point):
                dying()
        self._drop()
        self._open()

    def close(self) -> None:
        self._drop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        shutil.rmtree(self._root, ignore_errors=True)

    # Requests

    def call(self, name: str, request: Any) -> Any:
        return self._run(self._calls[name](request))

    def clean(
        self, request: kafka_pb2.CleanTurnRequest, during: Callable[[], None] | None
    ) -> kafka_pb2.CleanTurnResponse:
        worker = self._worker
        if during is not None:
            self._loop.call_soon_threadsafe(worker.may_go.clear)
            self._loop.call_soon_threadsafe(worker.has_begun.clear)
        turn = self._start(self._calls["Clean"](request))
        if during is not None:
            begun = self._start(worker.has_begun.wait())
            turn.add_done_callback(lambda _: begun.cancel())
            if _ends(begun):
                during()
            self._loop.call_soon_threadsafe(worker.may_go.set)
        answer: kafka_pb2.CleanTurnResponse = turn.result(_TIMEOUT_S)
        return answer

    def _topic(self, topic: str) -> tuple[Broker, str]:
        assert self._broker is not None
        return self._broker, f"persistent://public/default/{topic}"

    def create(self, topic: str, config: Mapping[str, str]) -> None:
        broker, name = self._topic(topic)
        self._run(broker.create_topic(name, config))

    def unload(self, topic: str) -> None:
        broker, name = self._topic(topic)
        self._run(broker.unload_topic(name))

    def delete_old(self, topic: str) -> int:
        broker, name = self._topic(topic)
        partition = broker.kafka_topics[name].partition
        return self._run(delete_old_segments(partition, broker.clock.now_ms))

    def move_clock(self, now_ms: int) -> None:
        broker, _ = self._topic("")
        assert broker.manual_clock is not None
        self._now_ms = now_ms
        self._run(broker.manual_clock.move_to(now_ms))

    def read(
        self, topic: str, offset: int | None, *, committed: bool
    ) -> list[tuple[int, int, bytes | None, bytes | None]]:
        broker, name = self._topic(topic)
        start = StartPosition(earliest=True)
        if offset is not None:
            start = StartPosition(message_id=MessageId(entry_id=offset), inclusive=True)

        async def read() -> list[tuple[int, int, bytes | None, bytes | None]]:
            reader = await (await broker.kafka_topic(name)).open_reader(
                start, KafkaReaderOptions(committed)
            )
            found: list[tuple[int, int, bytes | None, bytes | None]] = []
            try:
                while True:
                    reader.check(1)
                    for step in await reader.take() or []:
                        if isinstance(step, Entries):
                            for entry in step.entries:
                                body = entry.data[read_header(entry.data).header_bytes :]
                                found += [
                                    (each.offset, each.timestamp_ms, each.key, each.value)
                                    for each in records_of(body)
                                    if each.offset >= reader.first_offset
                                ]
                        elif isinstance(step, Checked) and not step.has_more:
                            return found
            finally:
                reader.detach()

        return self._run(read())


def _ends(begun: Any) -> bool:
    try:
        begun.result(_TIMEOUT_S)
    except BaseException:
        return False
    return True


@contextmanager
def _killed_at(point: str) -> Iterator[None]:
    """Simulates a kill: the work in the block reaches this point, and is not completed."""

    def kill(*_: int) -> None:
        raise Killed

    system = SimpleNamespace(kill=kill, getpid=os.getpid)
    with patch.object(crash_points, "os", system), patch.dict(crash_points._armed, {point: 1}):
        try:
            yield
        except Killed:
            return
    raise AssertionError(f"{point} was not reached")
