"""A run without new data under Pulsar 4's rules, after runs that kept segments."""

from __future__ import annotations

import pytest

from ledgerfold import Client, MessageId
from ledgerfold.testing import Broker

# With 500 kB in a segment, enough for two: the second run keeps both.
KEYS = 21_000
LAST = f"k{KEYS - 1}"


def _view(client: Client, topic: str) -> list[tuple[str | None, bytes]]:
    reader = client.create_reader(topic, MessageId.earliest, is_read_compacted=True)
    found = list[tuple[str | None, bytes]]()
    while reader.has_message_available():
        message = reader.read_next()
        found.append((message.partition_key(), message.data()))
    reader.close()
    return found


@pytest.mark.parametrize("garbage_max", ["0%", "30%"])
def test_a_repeated_run_ends_with_the_last_live_message(garbage_max: str) -> None:
    """Its segment may end with dead ones (docs/PROFILES.md, rule 10.2)."""
    options = ["--compactor", "inline", "--segment-size", "500K", "--profile", "pulsar-4"]
    garbage = ["--compaction-segment-garbage-max", garbage_max]
    with Broker(arguments=[*options, *garbage]) as broker:
        producer = broker.client.create_producer("t", block_if_queue_full=True)
        for number in range(KEYS):
            producer.send_async(b"v", None, partition_key=f"k{number}")
        producer.flush()
        broker.compact_and_wait("t")
        producer.send(None, partition_key=LAST)
        broker.compact_and_wait("t")
        assert _view(broker.client, "t")[-1] == (f"k{KEYS - 2}", b"v")
        broker.compact_and_wait("t")
        repeated, before, _ = broker.admin.runs("t")
        assert (before.horizon.entry_id, repeated.horizon.entry_id) == (KEYS, KEYS - 2)
        # The raw log begins after the horizon.
        assert _view(broker.client, "t")[-2:] == [(LAST, b"v"), (LAST, b"")]
        # For the next run, they are new.
        broker.compact_and_wait("t")
        assert len(_view(broker.client, "t")) == KEYS - 1
