"""A cache that rebuilds itself from a compacted topic.

Every instance of a service holds all prices in memory. Each change of a price is a message whose
key is the item. A deletion is a message without a value, a tombstone. A new instance reads the
compacted view, which has one message for each item, and then follows the topic.

    python cache.py 127.0.0.1:7650 prices
"""

from __future__ import annotations

import sys

from ledgerfold import Client
from ledgerfold.admin import Admin


class Cache:
    """The current prices. Raises KeyError for an unknown item."""

    def __init__(self, client: Client, topic: str) -> None:
        self._producer = client.create_producer(topic)
        # Returns when the view has read the topic up to its end, and follows it from then on.
        self._view = client.create_table_view(topic)

    def __getitem__(self, item: str) -> bytes:
        price: bytes | None = self._view.get(item)
        if price is None:
            raise KeyError(item)
        return price

    def __len__(self) -> int:
        return len(self._view)

    def set(self, item: str, price: bytes) -> None:
        """Publishes a price. All instances see it a moment later."""
        self._producer.send(price, partition_key=item)

    def delete(self, item: str) -> None:
        """Publishes a tombstone, which removes the item."""
        self._producer.send(None, partition_key=item)


def main(url: str, topic: str) -> None:
    with Client(url) as client, Admin(url) as admin:
        first = Cache(client, topic)
        for price in range(1000):
            first.set(f"item {price % 10}", b"%d" % price)
        first.delete("item 3")
        admin.trigger_compaction(topic)
        for status in admin.watch_compaction(topic):
            run = status.run
        print(f"{run.counts.messages_in} messages were compacted to {run.counts.messages_out}")
        # A restarted service has only the topic.
        with Client(url) as restarted:
            second = Cache(restarted, topic)
            print(f"{len(second)} items; item 7 costs {second['item 7'].decode()}")


if __name__ == "__main__":
    main(*sys.argv[1:])
