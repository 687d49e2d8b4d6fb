"""`serve --test-clock` and `ledgerfold clock`: a real broker whose time a test moves."""

from __future__ import annotations

import json

import pytest

from ledgerfold.broker.cli.main import main
from ledgerfold.broker.client import Client, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from tests.conftest import MakeBroker

START = "2020-01-01T00:00:00Z"
START_MS = 1_577_836_800_000
HOUR_MS = 3_600_000


def test_time_stops_until_it_is_moved(broker_process: MakeBroker) -> None:
    """By a duration or to a time, forwards only; over the wire the refusal keeps its class."""
    broker = broker_process("--test-clock", START)
    with Admin(broker.url) as admin:
        for _ in range(2):
            clock = admin.clock()
            assert (clock.now_ms, clock.is_manual) == (START_MS, True)
        assert admin.move_clock(advance_ms=HOUR_MS) == START_MS + HOUR_MS
        assert admin.move_clock(to_ms=START_MS + 2 * HOUR_MS) == START_MS + 2 * HOUR_MS
        for past in ({"to_ms": START_MS}, {"advance_ms": -1}):
            with pytest.raises(InvalidRequest, match="forwards"):
                admin.move_clock(**past)
        assert admin.clock().now_ms == START_MS + 2 * HOUR_MS


def test_all_times_are_the_broker_s(broker_process: MakeBroker) -> None:
    """Publish times, too: the machine's clock is years ahead. Seeking by time finds them."""
    broker = broker_process("--test-clock", START)
    with Admin(broker.url) as admin, Client(broker.url) as client:
        producer = client.create_producer("t")
        producer.send(b"first")
        admin.move_clock(advance_ms=HOUR_MS)
        producer.send(b"second")
        reader = client.create_reader("t", MessageId.earliest)
        found = [(message.data(), message.publish_timestamp()) for message in reader]
        assert found == [(b"first", START_MS), (b"second", START_MS + HOUR_MS)]
        reader.seek(START_MS + 1)
        assert [message.data() for message in reader] == [b"second"]
        shown = admin.stats("t")["publishers"][0]["connectedSince"]
        assert shown == "2020-01-01T00:00:00.000Z"


def test_records_of_a_kafka_topic_have_the_broker_s_time(broker_process: MakeBroker) -> None:
    """As timestamps, if they have no event time."""
    broker = broker_process("--test-clock", START)
    with Admin(broker.url) as admin, Client(broker.url) as client:
        admin.create_topic("t", kafka={})
        producer = client.create_producer("t", batching_enabled=True)
        for time_ms in (None, 77):
            producer.send_async(b"first", None, event_timestamp=time_ms)
        producer.flush()
        admin.move_clock(advance_ms=HOUR_MS)
        producer.send(b"second")
        with client.create_reader("t", start_offset=0) as reader:
            found = [(each.event_timestamp(), each.publish_timestamp()) for each in reader]
        later = START_MS + HOUR_MS
        assert found == [(START_MS, START_MS), (77, START_MS), (later, later)]


def test_a_broker_without_a_test_clock_refuses_to_move_time(broker_process: MakeBroker) -> None:
    broker = broker_process()
    with Admin(broker.url) as admin:
        assert not admin.clock().is_manual
        with pytest.raises(NotAllowed, match="--test-clock"):
            admin.move_clock(advance_ms=1)
    assert main(["--url", broker.url, "clock", "advance", "1h"]) == 1


def test_the_clock_on_the_command_line(
    broker_process: MakeBroker, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a time, it begins at the machine's, and does not advance."""
    broker = broker_process("--test-clock")

    def clock(*arguments: str) -> tuple[int, dict[str, object]]:
        code = main(["--url", broker.url, "clock", *arguments, "-o", "jsonl"])
        output = capsys.readouterr().out
        return code, json.loads(output) if output else {}

    code, shown = clock("show")
    assert (code, clock("show")[1]) == (0, shown)
    assert clock("set", "2100-01-01T00:00:00Z") == (
        0,
        {"now": "2100-01-01T00:00:00.000+00:00", "now_ms": 4_102_444_800_000},
    )
    assert clock("advance", "1d")[1]["now"] == "2100-01-02T00:00:00.000+00:00"
    assert clock("set", START) == (2, {})
