"""The steps of every demonstration: publish, compact, read back, compare.

With `--cleanup-policy` the topic is a Kafka topic, and Kafka's cleaner compacts it. Its dirty ratio
prevents automatic cleaning: the demonstration starts each pass.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.connecting import credentials_of, why_waiting
from ledgerfold.broker.cli.data.producing import Outgoing, send_all
from ledgerfold.broker.cli.exit_codes import DONE, FAILED
from ledgerfold.broker.cli.topics.compaction import report_end, wait_for_end
from ledgerfold.broker.common.sizes import format_size
from ledgerfold.storage.errors import LedgerfoldError, TopicNotFound
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client import Message, MessageId
    from ledgerfold.broker.client.administration.kafka_answers import CleanerTurn

# Number of rows, or differences, printed.
SHOWN = 8
_NO_AUTOMATIC_CLEANING = {"min.cleanable.dirty.ratio": "1"}


class Stage:
    """A broker and a topic, with the steps of a demonstration."""

    def __init__(self, options: argparse.Namespace, url: str, topic: str) -> None:
        from ledgerfold.broker.client import Client
        from ledgerfold.broker.client.administration.admin import Admin

        self.options = options
        self.topic = topic
        credentials = credentials_of(options) if url == options.url else {}
        self.client, self.admin = Client(url, **credentials), Admin(url, **credentials)
        self._policy: str = getattr(options, "cleanup_policy", None) or ""
        self.is_kafka = self._policy != ""

    def close(self, *, deletes_topic: bool) -> None:
        self.client.close()
        # The topic does not exist if nothing was published.
        with self.admin, suppress(TopicNotFound):
            if deletes_topic:
                self.admin.delete_topic(self.topic, force=True)
                print("deleted     the topic; --keep leaves it there")

    def publish(self, messages: Iterable[Outgoing], *, batching: bool) -> list[MessageId]:
        """Publishes messages. Returns their ids, in order. Raises errors of the producer."""
        from ledgerfold.broker.client.messages.configs import BULK_SENDING

        began = time.monotonic()
        ids: list[MessageId] = []
        with self.client.create_producer(
            self.topic, batching_enabled=batching, batching_max_messages=10_000, **BULK_SENDING
        ) as producer:
            count = send_all(producer, messages, on_stored=ids.append)
        print(f"published   {counted(count, 'message')} in {time.monotonic() - began:.2f} s")
        return ids

    def publish_pairs(self, pairs: Iterable[tuple[str, str]]) -> list[MessageId]:
        return self.publish((Outgoing(k, v.encode()) for k, v in pairs), batching=False)

    def compact(self) -> int:
        """Compacts, waits, and prints the run's figures. Returns the exit code."""
        if why := why_waiting(self.admin):
            print(f"compacting  {why}", flush=True)
        self.admin.trigger_compaction(self.topic)
        print("compacted   ", end="")
        return report_end(wait_for_end(self.admin, self.topic))

    def read(self, *, compacted: bool) -> Iterator[Message]:
        from ledgerfold.broker.client import MessageId

        reader = self.client.create_reader(
            self.topic, MessageId.earliest, is_read_compacted=compacted
        )
        yield from reader
        reader.close()

    def print_sizes(self) -> None:
        internal = self.admin.internal_stats(self.topic)
        ledger = internal["compactedLedger"]
        print(
            f"stored      {counted(internal['numberOfEntries'], 'raw entry', 'raw entries')}, "
            f"{format_size(internal['totalSize'])}; compacted "
            f"{counted(ledger['entries'], 'entry', 'entries')}, {format_size(ledger['size'])}"
        )

    # The steps of a Kafka topic.

    def create_log(self) -> None:
        config = {"cleanup.policy": self._policy, **_NO_AUTOMATIC_CLEANING}
        self.admin.create_topic(self.topic, kafka=config)

    def roll(self) -> None:
        """Rolls the active segment, so that its records can be cleaned."""
        base = self.admin.kafka.roll_segment(self.topic)
        print(f"rolled      the active segment begins at offset {base}")

    def clean(self) -> None:
        """Runs passes until everything cleanable is clean. Raises LedgerfoldError if one fails."""
        if why := why_waiting(self.admin):
            print(f"cleaning    {why}", flush=True)
        while (turn := self._turn()).checkpoint is not None:
            (plan,) = self.admin.kafka.plan_cleaning(self.topic)
            if not plan.cleanable_bytes:
                return
        raise LedgerfoldError(f"The cleaning failed: {turn.failure or 'it was aborted'}.")

    def _turn(self) -> CleanerTurn:
        turn = self.admin.kafka.clean(self.topic)
        if turn.stats is not None:
            stats = turn.stats
            print(
                f"cleaned     {stats.messages_read:,} -> {stats.messages_written:,} messages, "
                f"{format_size(stats.bytes_read)} -> {format_size(stats.bytes_written)}, "
                f"{counted(stats.map_keys, 'key')} in the map, checkpoint {turn.checkpoint}"
            )
        return turn


def verdict(wrong: list[str], right: str) -> int:
    if not wrong:
        print(f"checked     {right}")
        return DONE
    print(f"checked     {counted(len(wrong), 'difference')}:")
    for line in wrong[:SHOWN]:
        print(f"  {line}")
    return FAILED


def differences(actual: dict[str, object], expected: dict[str, object]) -> list[str]:
    keys = sorted(actual.keys() | expected.keys())
    return [
        f"{key}: {actual.get(key)} instead of {expected.get(key)}"
        for key in keys
        if actual.get(key) != expected.get(key)
    ]
