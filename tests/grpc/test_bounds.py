"""A broker with a low limit of streams, as clients and operators see it."""

from __future__ import annotations

import json
import urllib.request

import pytest

from ledgerfold.broker.client import Client
from ledgerfold.errors import Overloaded
from tests.conftest import MakeBroker
from tests.support.command_line import ledgerfold
from tests.support.waiting import wait_until


def test_a_stream_beyond_the_limit_is_rejected(broker_process: MakeBroker) -> None:
    """A stream beyond the limit is rejected."""
    arguments = ("--streams-max", "3", "--unsent-max", "16M", "--metrics-listen", "127.0.0.1:0")
    broker = broker_process(*arguments)
    with (
        Client(broker.url) as client,
        Client(broker.url, operation_timeout_seconds=2) as impatient,
    ):
        producers = [client.create_producer("t") for _ in range(3)]
        # A client tries again until its timeout. This one is connected before.
        impatient.get_topic_partitions("t")
        with pytest.raises(Overloaded, match=r"has 3 streams .*serve --streams-max") as raised:
            impatient.create_producer("t")
        assert raised.value.from_broker
        # Administration continues to work, and reports this.
        told = json.loads(ledgerfold("--url", broker.url, "info").out)
        assert (told["streams"], told["streams_max"]) == (3, 3)
        assert told["streams_refused"] > 0
        assert (told["unsent_bytes"], told["unsent_bytes_max"]) == (0, 16 * 2**20)
        with urllib.request.urlopen(f"http://{broker.ready['metrics']}/metrics") as scrape:
            text = scrape.read().decode()
        assert "ledgerfold_streams 3\n" in text
        assert "ledgerfold_unsent_max_bytes 16777216\n" in text
        producers[0].send(b"1")
        producers.pop().close()
        wait_until(lambda: client.create_producer("t"), "room for another producer")
