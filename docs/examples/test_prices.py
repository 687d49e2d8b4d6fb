"""A test of a program that reads a compacted topic, with a real broker.

The fixture `ledgerfold` comes from Ledgerfold's pytest plugin, and gives each test a new namespace.
`ci.yml` runs the test in CI.
"""

from __future__ import annotations

from ledgerfold import MessageId
from ledgerfold.testing import Namespace


def prices(ledgerfold: Namespace, topic: str) -> dict[str, bytes]:
    """The program under test."""
    client = ledgerfold.client
    with client.create_reader(topic, MessageId.earliest, is_read_compacted=True) as reader:
        return {message.partition_key(): message.data() for message in reader}


def test_an_item_that_is_not_sold_any_more(ledgerfold: Namespace) -> None:
    topic = ledgerfold.topic("prices")
    with ledgerfold.client.create_producer(topic) as producer:
        producer.send(b"10", partition_key="tea")
        producer.send(b"3", partition_key="rice")
        producer.send(None, partition_key="tea")
    assert ledgerfold.compact(topic).run.counts.messages_out == 1
    assert prices(ledgerfold, topic) == {"rice": b"3"}
