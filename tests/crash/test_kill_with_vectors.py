"""An inline worker that writes deletion vectors: killed meanwhile, and its output read by all kinds
of clients.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from ledgerfold import aio
from ledgerfold.broker.client import Client, InitialPosition, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.v1.records_pb2 import RUN_STATE_ERROR, RUN_STATE_SUCCESS, RunRecord
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import ledgerfold
from tests.support.waiting import RUN_S, WAIT_MS

pytestmark = pytest.mark.slow
TOPIC = "hidden"
# Enough key bytes, in several segments, for several tasks: only such runs write key indexes.
KEYS, KEY_BYTES = 30_000, 300
View = dict[str, str]


def _key(number: int) -> str:
    return f"{number:05d}".ljust(KEY_BYTES, "x")


def _publish(broker: BrokerProcess, values: dict[int, str]) -> None:
    with Client(broker.url) as client:
        producer = client.create_producer(
            TOPIC, batching_max_messages=1000, block_if_queue_full=True
        )
        for number, value in values.items():
            producer.send_async(value.encode(), None, partition_key=_key(number))
        producer.close()


def _compact(broker: BrokerProcess) -> RunRecord:
    with Admin(broker.url) as admin:
        admin.trigger_compaction(TOPIC)
        for _ in admin.watch_compaction(TOPIC, timeout_seconds=RUN_S):
            pass
        return admin.runs(TOPIC, limit=1)[0]


def _view(broker: BrokerProcess) -> tuple[View, str]:
    """Returns the view of a reader, each key once, and the last id."""
    with Client(broker.url) as client:
        reader = client.create_reader(TOPIC, MessageId.earliest, is_read_compacted=True)
        found: View = {}
        last = ""
        for message in reader:
            assert message.partition_key() not in found
            found[message.partition_key()] = message.data().decode()
            last = str(message.message_id())
        return found, last


async def _view_by_asyncio(broker: BrokerProcess) -> View:
    found: View = {}
    async with aio.Client(broker.url) as client:
        reader = await client.create_reader(TOPIC, MessageId.earliest, is_read_compacted=True)
        while await reader.has_message_available():
            message = await reader.read_next(timeout_millis=WAIT_MS)
            assert message.partition_key() not in found
            found[message.partition_key()] = message.data().decode()
    return found


def _view_by_consumer(broker: BrokerProcess, count: int) -> View:
    """Each message is acknowledged separately."""
    with Client(broker.url) as client:
        consumer = client.subscribe(
            TOPIC, "s", is_read_compacted=True, initial_position=InitialPosition.Earliest
        )
        found: View = {}
        for _ in range(count):
            message = consumer.receive(timeout_millis=WAIT_MS)
            consumer.acknowledge(message)
            found[message.partition_key()] = message.data().decode()
        return found


def _expected(*published: dict[int, str]) -> View:
    values: dict[int, str] = {}
    for each in published:
        values |= each
    return {_key(number): value for number, value in values.items() if value}


def test_a_worker_killed_after_writing_a_deletion_vector(broker_process: MakeBroker) -> None:
    """The view stays; the next run hides the same messages from every kind of reader."""
    broker = broker_process(
        "--segment-size", "2M", compactor="inline", crash_at="worker.vector-written"
    )
    broker.wait_for_compactor()
    first = {number: f"value {number}" for number in range(KEYS)}
    _publish(broker, first)
    assert _compact(broker).state == RUN_STATE_SUCCESS
    second = {17: "new", 18: "", **dict.fromkeys(range(2000, 2100), "newer")}
    _publish(broker, second)
    assert _compact(broker).state == RUN_STATE_ERROR
    # The second life's worker has no crash point.
    broker.restart()
    broker.wait_for_compactor()
    with Admin(broker.url) as admin:
        [whatif] = admin.what_if(TOPIC)
    run = _compact(broker)
    assert (run.state, run.counts.messages_out) == (RUN_STATE_SUCCESS, KEYS - 1)
    assert run.counts.vector_bytes
    assert run.counts.bytes_kept > 0.8 * run.counts.bytes_out
    assert whatif.forecasts[0].messages == KEYS - 1
    expected = _expected(first, second)
    found, last = _view(broker)
    assert found == expected
    assert asyncio.run(_view_by_asyncio(broker)) == expected
    assert _view_by_consumer(broker, len(expected)) == expected
    with Admin(broker.url) as admin:
        assert str(admin.last_message_id(TOPIC, read_compacted=True)) == last
        [again] = admin.what_if(TOPIC)
        assert (again.input.messages, again.forecasts[0].messages) == (KEYS - 1, KEYS - 1)
        explained = admin.explain(TOPIC, key=_key(17))
        assert len(explained.versions) == 2
        garbage = admin.internal_stats(TOPIC)["compactedLedger"]["garbageSize"]
        assert garbage == run.counts.garbage_bytes > 0
    assert broker.stop() == 0
    assert ledgerfold("verify", str(broker.data_dir)).code == 0
    assert _dumped(broker.data_dir, run.ledger_id) == KEYS - 1


def _dumped(data_dir: Path, ledger_id: int) -> int:
    """Returns the messages of a ledger, as `segment dump` lists them."""
    paths = sorted((data_dir / "ledgers" / str(ledger_id)).glob("*.log"))
    assert any(path.with_suffix(".dead").exists() for path in paths)
    dumps = (
        ledgerfold("segment", "dump", str(path), "--messages", "-o", "jsonl") for path in paths
    )
    return sum(len(each.rows) for each in dumps)
