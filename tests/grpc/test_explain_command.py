"""`explain` from the command line, on a real broker: it predicts what the real compactor does."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ledgerfold.broker.cli.exit_codes import NOT_FOUND, USAGE
from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.explain.text import KEEPS, record_text
from tests.conftest import MakeBroker
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import Ran, ledgerfold
from tests.support.waiting import RUN_S

KEYS = (b"a", b"b", b"", b"c\xff", None)


@pytest.fixture
def broker(shared_broker: BrokerProcess) -> BrokerProcess:
    return shared_broker


def publish(client: Client, topic: str) -> None:
    """Publishes batches and single messages; values, null and empty tombstones, messages without a
    key.
    """
    alone = client.create_producer(topic)
    batching = client.create_producer(
        topic, batching_enabled=True, batching_max_messages=5, batching_max_publish_delay_ms=60_000
    )
    for content, key in [(b"1", "a"), (b"2", "b"), (None, "b"), (b"3", None), (b"4", "a")]:
        batching.send_async(content, None, partition_key=key, event_timestamp=7)
    batching.flush()
    for content, key in [(b"5", ""), (b"6", "c\udcff"), (b"", ""), (b"7", None), (b"8", "b")]:
        alone.send(content, partition_key=key)
    batching.close()
    alone.close()


def compact(admin: Admin, topic: str) -> None:
    admin.trigger_compaction(topic)
    *_, last = admin.watch_compaction(topic, timeout_seconds=RUN_S)
    assert not last.last_error


@pytest.mark.spark
@pytest.mark.parametrize(
    ("strategy", "settings", "retain"),
    [
        ("publishing-order", {}, False),
        ("publishing-order", {}, True),
        ("event-time", {}, True),
        ("keep-n", {"n": "2"}, False),
        ("numeric", {}, True),
    ],
)
def test_the_real_compactor_does_what_explain_predicts(
    client: Client,
    admin: Admin,
    new_topic: Callable[[str], str],
    strategy: str,
    settings: dict[str, str],
    retain: bool,
) -> None:
    """Two runs: the compacted ledger then holds the messages that were predicted to be kept."""
    from ledgerfold.v1.records_pb2 import CompactionStrategy, Policies

    topic = new_topic(f"{strategy}-{'retain' if retain else 'drop'}")
    admin.create_topic(topic)
    wanted = CompactionStrategy(name=strategy, settings=settings)
    values = Policies(retain_null_key=retain, compaction_strategy=wanted)
    admin.update_policies(topic=topic, values=values)
    for _ in range(2):
        publish(client, topic)
        predicted = {
            record_text(version.id)
            for key in KEYS
            for version in admin.explain(topic, key=key).versions
            if version.next_rule in KEEPS
        }
        compact(admin, topic)
        reader = client.create_reader(topic, MessageId.earliest, is_read_compacted=True)
        kept = {record_text(each.message_id().to_record()) for each in reader}
        reader.close()
        assert kept == predicted


@pytest.mark.spark
def test_the_command_prints_places_reasons_and_predictions(
    client: Client, admin: Admin, shared_broker: BrokerProcess, topic: str
) -> None:
    """JSON lines in a pipe, a table with -o table, notes on standard error."""

    def explain(*arguments: str) -> Ran:
        return ledgerfold("--url", shared_broker.url, "explain", topic, *arguments)

    publish(client, topic)
    compact(admin, topic)
    first = explain("--key", "a")
    batch = first.rows[0]["id"].rpartition(":")[0]
    last = record_text(admin.last_message_id(topic).to_record())
    assert [(row["id"], row["where"], row["what"]) for row in first.rows] == [
        (f"{batch}:0", "raw", f"superseded by {batch}:4, dropped by run 1"),
        (f"{batch}:4", "both", f"newest up to the horizon {last}, kept by run 1"),
    ]
    assert first.rows[0]["by"] == f"{batch}:4"
    assert (first.rows[0]["dropped_by_run"], first.rows[1]["kept_by_run"]) == (1, 1)
    assert first.rows[0]["event_time"] == 7
    assert "set by run 1" in first.err
    without = explain("--null-key").rows
    assert {row["what"] for row in without} == {"null key, retain_null_key=false, dropped by run 1"}
    assert [row["value_bytes"] for row in explain("--key-base64", "Y/8=").rows] == [1]
    assert explain("--at", f"{batch}:1").rows == explain("--key", "b").rows[:1]
    table = explain("--key", "a", "-o", "table").out.splitlines()
    columns = "id published event_time bytes where what next"
    assert table[0].split() == columns.split()
    assert len(table) == 3
    admin.unload(topic)
    kept = explain("--key", "a").rows
    assert [(row["id"], row["where"]) for row in kept] == [(f"{batch}:4", "compacted")]
    trimmed = explain("--at", f"{batch}:0")
    assert [row["where"] for row in trimmed.rows] == ["trimmed"]
    assert "messages are trimmed" in trimmed.err


def test_invalid_input_is_rejected(broker_process: MakeBroker) -> None:
    """Exit codes as everywhere: 3 for a topic that does not exist, 2 for a malformed or
    wrong id.
    """
    broker = broker_process()
    with Client(broker.url) as client:
        producer = client.create_producer("t", batching_enabled=True, batching_max_messages=2)
        producer.send_async(b"1", None, partition_key="a")
        producer.send_async(b"2", None, partition_key="b")
        producer.flush()
        batch = str(producer.send(b"3", partition_key="a")).rsplit(":", 2)[0]
    first = f"{batch.partition(':')[0]}:0"

    def explain(*arguments: str) -> Ran:
        return ledgerfold("--url", broker.url, "explain", *arguments)

    assert explain("nowhere", "--key", "a").code == NOT_FOUND
    for wrong in ("x", "latest", "earliest", first, f"{first}:-1:9", "999:0"):
        assert explain("t", "--at", wrong).code == USAGE, wrong
    assert explain("t", "--key-base64", "*").code == USAGE
    assert explain("t").code == USAGE
    assert explain("t", "--key", "absent").rows == []
