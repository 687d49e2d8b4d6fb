"""One topic on the real broker with the real compactor, driven in the catalogue's words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS, RunRecord

from broker.client import Client, CompressionType, Message, MessageId
from broker.client.admin import Admin
from tests.conformance.notation import parse


class Scenario:
    """Entries are numbered E0, E1, ... over all calls of publish()."""

    def __init__(self, url: str, topic: str) -> None:
        self.topic = topic
        self.client = Client(url)
        self.admin = Admin(url)
        self._names: dict[tuple[int, int], str] = {}

    def close(self) -> None:
        self.client.close()
        self.admin.close()

    def publish(
        self, text: str, compression: CompressionType = CompressionType.NONE, **more: Any
    ) -> None:
        """`more` goes to send_async: properties, event_timestamp."""
        history = parse(text)
        for entry, is_batch in zip(history.entries, history.batches, strict=True):
            producer = self.client.create_producer(
                self.topic,
                batching_enabled=is_batch,
                batching_max_messages=len(entry),
                batching_max_publish_delay_ms=60_000,
                compression_type=compression,
            )
            ids: list[MessageId] = []
            for sent in entry:
                producer.send_async(sent.value, _collect(ids), partition_key=sent.key, **more)
            producer.flush()
            producer.close()
            assert len(ids) == len(entry)
            self._names[(ids[0].ledger_id(), ids[0].entry_id())] = f"E{len(self._names)}"

    def compact(self) -> RunRecord:
        """Runs to the end; the run's record, which must tell of success."""
        self.admin.trigger_compaction(self.topic)
        for _ in self.admin.watch_compaction(self.topic, timeout_seconds=100):
            pass
        run = self.admin.runs(self.topic, limit=1)[0]
        assert run.state == RUN_STATE_SUCCESS, run.error_message
        return run

    def read_messages(self, *, compacted: bool = True) -> list[Message]:
        reader = self.client.create_reader(
            self.topic, MessageId.earliest, is_read_compacted=compacted
        )
        found = []
        while reader.has_message_available():
            found.append(reader.read_next(timeout_millis=10_000))
        reader.close()
        return found

    def read(self, *, compacted: bool = True) -> list[str]:
        """ "E2.1 a=1" for each message, in order."""
        return [self.describe(message) for message in self.read_messages(compacted=compacted)]

    def describe(self, message: Message) -> str:
        key = message.partition_key() if message.has_key() else "~"
        value = "∅" if message.has_null_value() else message.data().decode()
        return f"{self.name(message.message_id())} {key}={value}"

    def name(self, at: MessageId) -> str:
        entry = self._names[(at.ledger_id(), at.entry_id())]
        return entry if at.batch_index() < 0 else f"{entry}.{at.batch_index()}"

    def compacted_ledger(self) -> dict[str, Any]:
        ledger: dict[str, Any] = self.admin.internal_stats(self.topic)["compactedLedger"]
        return ledger

    def horizon(self) -> str:
        """Of `__compaction`, as E<n>."""
        cursors = self.admin.internal_stats(self.topic)["cursors"]
        ledger, _, entry = cursors["__compaction"]["markDeletePosition"].partition(":")
        return self._names[(int(ledger), int(entry))]


def _collect(ids: list[MessageId]) -> Callable[[Any, MessageId | None], None]:
    def collect(result: Any, at: MessageId | None) -> None:
        assert at is not None, result
        ids.append(at)

    return collect
