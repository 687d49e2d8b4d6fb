"""From publishing order to event time.

A sensor that was offline sends its old readings late. Compaction by publishing order, the default,
keeps the reading that was sent last, although it is older. Compaction by event time keeps the one
that was measured last. A change of the strategy applies from the next run on, and does not restore
what earlier runs have removed.

    python event_time.py 127.0.0.1:7650 readings
"""

from __future__ import annotations

import sys

from ledgerfold import Client, MessageId
from ledgerfold.admin import Admin

NOON, ONE, TWO = 43_200_000, 46_800_000, 50_400_000


def compact(admin: Admin, topic: str) -> None:
    admin.trigger_compaction(topic)
    for _ in admin.watch_compaction(topic):
        pass


def compacted(client: Client, topic: str) -> dict[str, bytes]:
    with client.create_reader(topic, MessageId.earliest, is_read_compacted=True) as reader:
        return {message.partition_key(): message.data() for message in reader}


def main(url: str, topic: str) -> None:
    with Client(url) as client, Admin(url) as admin:
        producer = client.create_producer(topic)

        def send(sensor: str, reading: bytes, time_ms: int) -> None:
            producer.send(reading, partition_key=sensor, event_timestamp=time_ms)

        send("roof", b"21 at 13:00", ONE)
        send("roof", b"20 at 12:00", NOON)
        compact(admin, topic)
        print("by publishing order:", compacted(client, topic))

        # The same again, by event time. `explain` tells what the next run will do.
        send("cellar", b"9 at 14:00", TWO)
        send("cellar", b"8 at 12:00", NOON)
        admin.set_compaction_strategy("event-time", topic=topic)
        for version in admin.explain(topic, key="cellar").versions:
            print("the next run:", version.next)
        compact(admin, topic)
        print("by event time:", compacted(client, topic))


if __name__ == "__main__":
    main(*sys.argv[1:])
