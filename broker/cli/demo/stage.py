"""The steps of every demonstration: publish, compact, read back, compare."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.data.producing import Outgoing, send_all
from ledgerfold.broker.cli.exit_codes import DONE, FAILED
from ledgerfold.broker.cli.units import format_size
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client import Client, Message, MessageId

# Number of rows, or differences, printed.
SHOWN = 8


class Stage:
    """A broker and a topic, with the steps of a demonstration."""

    def __init__(self, options: argparse.Namespace, url: str, topic: str) -> None:
        from ledgerfold.broker.client import Client

        self.options = options
        self.url = url
        self.topic = topic
        self.client: Client = Client(url)

    def publish(self, messages: Iterable[Outgoing], *, batching: bool) -> list[MessageId]:
        """Publishes messages. Returns their ids, in order. Raises errors of the producer."""
        began = time.monotonic()
        ids: list[MessageId] = []
        with self.client.create_producer(
            self.topic, batching_enabled=batching, batching_max_messages=10_000
        ) as producer:
            count = send_all(producer, messages, on_stored=ids.append)
        print(f"published   {counted(count, 'message')} in {time.monotonic() - began:.2f} s")
        return ids

    def compact(self) -> int:
        """Compacts, waits, and prints the run's figures. Returns the exit code."""
        from ledgerfold.broker.cli.connecting import why_waiting
        from ledgerfold.broker.cli.topics.compaction import report_end, wait_for_end
        from ledgerfold.broker.client.administration.admin import Admin

        with Admin(self.url) as admin:
            if why := why_waiting(admin):
                print(f"compacting  {why}", flush=True)
            admin.trigger_compaction(self.topic)
            print("compacted   ", end="")
            return report_end(wait_for_end(admin, self.topic))

    def read(self, *, compacted: bool) -> Iterator[Message]:
        from ledgerfold.broker.client import MessageId

        reader = self.client.create_reader(
            self.topic, MessageId.earliest, is_read_compacted=compacted
        )
        while reader.has_message_available():
            yield reader.read_next()
        reader.close()

    def print_sizes(self) -> None:
        from ledgerfold.broker.client.administration.admin import Admin

        with Admin(self.url) as admin:
            internal = admin.internal_stats(self.topic)
        ledger = internal["compactedLedger"]
        print(
            f"stored      {counted(internal['numberOfEntries'], 'raw entry', 'raw entries')}, "
            f"{format_size(internal['totalSize'])}; compacted "
            f"{counted(ledger['entries'], 'entry', 'entries')}, {format_size(ledger['size'])}"
        )


def verdict(wrong: list[str], right: str) -> int:
    if not wrong:
        print(f"checked     {right}")
        return DONE
    print(f"checked     {counted(len(wrong), 'difference')}:")
    for line in wrong[:SHOWN]:
        print(f"  {line}")
    return FAILED


def differences(found: dict[str, object], expected: dict[str, object]) -> list[str]:
    keys = sorted(found.keys() | expected.keys())
    return [
        f"{key}: {found.get(key)} instead of {expected.get(key)}"
        for key in keys
        if found.get(key) != expected.get(key)
    ]
