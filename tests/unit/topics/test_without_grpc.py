"""A producer, a reader and a consumer are driven without gRPC: any door may be theirs."""

from __future__ import annotations

import asyncio
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from ledgerfold.broker.common.clock import ManualClock
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.subscriptions.consumer import ConsumerOptions
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.reader import ReaderOptions
from ledgerfold.broker.topics.stream_reader import Checked, Entries
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import read_header
from ledgerfold.storage.ledger import LedgerStore
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.v1.data_pb2 import StartPosition
from tests.support.lossy_files import CountedKeyValue, LossyFiles
from tests.support.memory_compactor import MemoryCompactor
from tests.tidy import ROOT

pytestmark = pytest.mark.process

ROOMS = ("ground", "log", "policies", "subscriptions", "compaction", "topics", "stats", "explain")
# They talk to the compactor's worker.
WITH_GRPC = {"supervisor", "worker_connection", "worker_health"}
START = StartPosition(earliest=True)


@pytest.mark.process
def test_a_broker_is_used_without_grpc() -> None:
    """It runs in a separate process: this one has imported much."""
    script = "from tests.unit.topics.test_without_grpc import use_without_grpc as use; use()"
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=True)


def use_without_grpc() -> None:
    for room in ROOMS:
        for path in (ROOT / "broker" / room).glob("*.py"):
            if path.stem not in WITH_GRPC:
                importlib.import_module(f"ledgerfold.broker.{room}.{path.stem}")
    asyncio.run(_use_broker())
    assert not [name for name in sys.modules if name.partition(".")[0].startswith("grpc")]


async def _use_broker() -> None:
    files, data = LossyFiles(Path("/disk")), Path("/disk/data")
    metadata = MetadataStore(CountedKeyValue(files))
    clock = ManualClock(1_000)
    store = LedgerStore(data, metadata, files=files, clock_ms=clock.now_ms)
    store.recover()
    settings = BrokerSettings(data_dir=data, compactor="off")
    broker = Broker(settings, metadata, store, MemoryCompactor(files), clock)
    await broker.start()
    topic = await broker.topic("persistent://public/default/t", to_write=True)
    position = await _publish(topic)
    assert await _read(topic) == position
    assert await _consume(topic) == position
    await broker.stop()


async def _publish(topic: Topic) -> object:
    builder = NativeBatchBuilder("p")
    builder.add(b"v", b"k")
    producer = await topic.attach_producer("p")
    producer.append_all([memoryview(builder.build(sequence_id=0, publish_time_ms=1, plain=True))])
    producer.finish()
    (receipt,) = await producer.receipts()
    assert not await producer.receipts()
    producer.detach()
    return receipt.position


async def _read(topic: Topic) -> object:
    reader = await topic.open_reader(START, ReaderOptions())
    reader.check(1)
    steps = await reader.take()
    assert steps is not None
    entries, checked = steps
    assert isinstance(entries, Entries)
    assert checked == Checked([1], has_more=True)
    reader.finish()
    assert await reader.take() is None
    reader.detach()
    return entries.entries[0].header.position


async def _consume(topic: Topic) -> object:
    subscription = await create_subscription(topic, "s", START)
    consumer = subscription.attach(ConsumerOptions(SubscriptionType.SHARED))
    subscription.add_permits(consumer, 1)
    output = await consumer.take()
    assert output is not None
    consumer.finish()
    assert await consumer.take() is None
    subscription.detach(consumer)
    return read_header(output.deliveries[0].entry).position
