"""`what-if` on a real broker: it predicts what the real compactor then does, and changes
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ledgerfold.broker.cli.exit_codes import NOT_FOUND, USAGE
from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from tests.support.broker_process import BrokerProcess
from tests.support.command_line import ledgerfold
from tests.support.waiting import RUN_S

pytestmark = pytest.mark.spark
ORDER = "publishing-order"


@pytest.fixture
def broker(shared_broker: BrokerProcess) -> BrokerProcess:
    return shared_broker


def publish(client: Client, topic: str, numbers: range) -> None:
    """Publishes batches and single messages, tombstones, messages without a key."""
    batching = client.create_producer(topic, batching_max_messages=5)
    alone = client.create_producer(topic, batching_enabled=False)
    for number in numbers:
        key = f"k{number * 7 % 20}" if number % 9 else None
        value = b"" if number % 11 == 0 else b"value %d" % number * 5
        if number % 3:
            batching.send_async(value, None, partition_key=key)
        else:
            batching.flush()
            alone.send(value, partition_key=key)
    batching.close()
    alone.close()


@pytest.mark.parametrize("strategy", [ORDER, "numeric"])
def test_the_real_compactor_does_what_was_predicted(
    client: Client, admin: Admin, new_topic: Callable[[str], str], strategy: str
) -> None:
    """Twice: for a topic that was never compacted, and for a compacted one."""
    topic = new_topic("foretold")
    for numbers in (range(100), range(100, 140)):
        publish(client, topic, numbers)
        admin.set_compaction_strategy(strategy, topic=topic)
        before = admin.internal_stats(topic)
        (found,) = admin.what_if(topic)
        assert admin.internal_stats(topic) == before
        (forecast,) = found.forecasts
        admin.trigger_compaction(topic)
        *_, last = admin.watch_compaction(topic, timeout_seconds=RUN_S)
        counts = last.run.counts
        assert not last.last_error
        assert forecast.strategy.name == strategy
        assert (found.input.messages, found.input.entries, found.input.bytes) == (
            counts.messages_in,
            counts.entries_in,
            counts.bytes_in,
        )
        assert (found.input.tombstones, found.input.null_keys) == (
            counts.tombstones,
            counts.null_keys,
        )
        assert (forecast.messages, forecast.entries, forecast.keys, forecast.removed_events) == (
            counts.messages_out,
            counts.entries_out,
            counts.keys,
            counts.removed_events,
        )
        assert forecast.bytes == pytest.approx(counts.bytes_out, rel=0.25)


def test_the_command(
    client: Client, broker: BrokerProcess, new_topic: Callable[[str], str]
) -> None:
    """JSON lines in a pipe, tables on request; mistakes are reported."""
    topic = new_topic("asked")
    publish(client, topic, range(30))
    names = (ORDER, ORDER, "newest", "shop:Best")
    asked = ("what-if", topic, *(part for name in names for part in ("--strategy", name)))
    ran = ledgerfold("--url", broker.url, *asked, "--diff")
    rows = ran.rows
    assert [row["about"] for row in rows] == ["input", *["strategy"] * 4, "differences"]
    assert rows[1] == rows[2]
    assert rows[3]["bytes"] == rows[1]["bytes"]
    assert "module shop cannot be imported" in rows[4]["not_forecast"]
    assert rows[-1]["keys"] == 0
    own = ("--strategy", "shop:Best", "--strategy", "shop:Worst", "--diff")
    ran = ledgerfold("--url", broker.url, "what-if", topic, *own)
    assert [row["about"] for row in ran.rows] == ["input", "strategy", "strategy"]
    unknown = ledgerfold("--url", broker.url, "what-if", topic, "--strategy", "keep_n")
    assert (unknown.code, "no package of the compactor" in unknown.err) == (USAGE, True)
    table = ledgerfold("--url", broker.url, *asked, "-o", "table")
    assert "a run would read 30 messages" in table.out
    assert table.out.count(ORDER) == 2
    assert ledgerfold("--url", broker.url, "what-if", new_topic("none")).code == NOT_FOUND
    assert ledgerfold("--url", broker.url, "what-if", topic, "--strategy", "keep-n").code == USAGE
    when = ("--threshold", "300", "--every", "1h")
    replay = ledgerfold("--url", broker.url, "what-if", topic, "--strategy", "shop:Best", *when)
    assert "cannot be replayed" in replay.err
    replays = [
        ledgerfold("--url", broker.url, "what-if", topic, "--strategy", name, *when).rows[2:]
        for name in (ORDER, "newest")
    ]
    assert replays[0] == replays[1]
    assert replays[0][0]["runs"] > 1


def test_a_command_that_is_no_strategy_is_rejected(
    client: Client, broker: BrokerProcess, new_topic: Callable[[str], str], tmp_path: Path
) -> None:
    """A callable that is no strategy is rejected without a call."""
    topic, told = new_topic("commanded"), tmp_path / "told"
    publish(client, topic, range(3))
    harm = f"command=touch {told}"
    for verb in (
        ("topics", "set-compaction-strategy", topic, "os:system", "--set", harm),
        ("namespaces", "set-compaction-strategy", "public/default", "os:system", "--set", harm),
        ("compact", topic, "--compaction-strategy", "os:system", "--set", harm),
        ("what-if", topic, "--strategy", f"os:system:{harm}"),
    ):
        ran = ledgerfold("--url", broker.url, *verb)
        assert "'os:system' cannot be used: this broker does not allow it" in ran.err
        assert "(shop:Best, shop:Worst)" in ran.err
        assert "start this broker with --allow-strategy os:system" in ran.err
        assert not ran.out
    assert not told.exists()


@pytest.mark.slow
def test_a_file_is_analyzed_without_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A separate worker of the command analyzes it; nothing of it remains."""
    path = tmp_path / "prices.csv"
    path.write_text("id,price,publish_time_ms\na,1,1000\nb,2,1000\na,,2000\nb,3,3000\n")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    fields = ("--key", "id", "--value", "price", "--tombstone-when", "price=")
    when = ("--threshold", "1", "--every", "1s,1d")
    ran = ledgerfold("what-if", "--csv", str(path), *fields, *when)
    assert ran.code == 0, ran.err
    given, forecast, *replays = ran.rows
    assert [(each["when"], each["runs"]) for each in replays] == [
        ("threshold 1", 3),
        ("every 1s", 2),
        ("every 1d", 0),
    ]
    assert replays[0]["why_no_run"] is None
    assert "all was published within 2000 ms" in replays[2]["why_no_run"]
    assert replays[2]["mean_rewind_bytes"] > replays[2]["mean_space_bytes"] > 0
    assert (given["messages"], given["tombstones"], given["topic"]) == (4, 1, str(path))
    assert (forecast["survivors"], forecast["keys"], forecast["removed_events"]) == (1, 2, 2)
    assert not list(temporary.glob("ledgerfold-what-if-*"))


def test_a_file_with_messages_without_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They survive with the option. The worker finds no Java: it starts sooner."""
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "prices.jsonl"
    path.write_text('{"value": "1"}\n{"key": "a", "value": "2"}\n{"key": null, "value": "3"}\n')
    ran = ledgerfold("what-if", "--jsonl", str(path), "--retain-null-key")
    assert ran.code == 0, ran.err
    assert (ran.rows[0]["null_keys"], ran.rows[1]["survivors"]) == (2, 3)
