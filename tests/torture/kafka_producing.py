"""An idempotent producer of a Kafka topic: `python -m tests.torture.kafka_producing TASK`.

It builds its batches itself with sequence ids, and sends one at a time, unchanged, until it is
answered: the broker must recognise duplicates over any number of kills.

Reports besides those of tests/torture/producing.py: {"event": "stored", "first": sequence id,
"count": records, "offset": of the first}.
"""

from __future__ import annotations

import time
from contextlib import closing
from typing import NamedTuple

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.broker.client.administration.kafka_admin import KafkaAdmin
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch
from tests.torture.child import PROGRESS_S, Child
from tests.torture.messages import Messages
from tests.torture.producing import serve

# The header with a record's sequence id: a tombstone has no value to tell it.
SEQUENCE = "sequence"
_BATCH_MAX = 60
# How far the times of records are from now, for a while: some are so old that Kafka would forget
# their producer at once, some are ahead.
_SKEWS_MS = (0, -3 * 86_400_000, 1_800_000)
# Each change ends a segment.
_CHANGE = 0.02
_TIMEOUT_S = 20.0


class _Batch(NamedTuple):
    first: int
    records: int
    data: bytes


class KafkaSender:
    """`sent` and `acknowledged` are sequence ids, -1 for none; the latter is a prefix always."""

    def __init__(self, child: Child) -> None:
        self._child, task = child, child.task
        self._messages = Messages(task["name"], task["seed"])
        self._rate = task["rate"]
        self.sent = self.acknowledged = -1
        # None: sends on and on.
        self.goal: int | None = None
        self._producer_id: int | None = None
        self._waiting: _Batch | None = None
        self._last_offset, self._skew_ms = -1, 0

    @property
    def is_finished(self) -> bool:
        return self.goal is not None and self.acknowledged >= self.goal

    def run(self, client: Client) -> None:
        while not self._child.is_ending.is_set():
            try:
                with closing(Admin(self._child.task["url"], timeout_seconds=_TIMEOUT_S)) as admin:
                    self._live(admin.kafka)
            except LedgerfoldError as error:
                self._child.fault("kafka producer", error)

    def _live(self, kafka: KafkaAdmin) -> None:
        """Until a call fails."""
        if self._producer_id is None:
            self._producer_id, _ = kafka.init_producer_id()
        while not self._child.is_ending.is_set():
            if self._waiting is None:
                self._waiting = self._next(self._producer_id)
            batch, began_s = self._waiting, time.monotonic()
            if batch is None:
                self._child.is_ending.wait(PROGRESS_S)
                continue
            self.sent = max(self.sent, batch.first + batch.records - 1)
            ((first, last),) = kafka.append(self._child.task["topic"], batch.data).offsets
            self._waiting = None
            self._take_receipt(batch, first, last)
            due_s = batch.records / self._rate
            self._child.is_ending.wait(max(0.0, due_s - (time.monotonic() - began_s)))

    def _next(self, producer_id: int) -> _Batch | None:
        """None: all that was wanted was sent."""
        first, count = self.acknowledged + 1, self._child.random.randint(1, _BATCH_MAX)
        if self.goal is not None:
            count = min(count, self.goal + 1 - first)
        if count < 1:
            return None
        if self._child.random.random() < _CHANGE:
            self._skew_ms = self._child.random.choice(_SKEWS_MS)
        time_ms = time.time_ns() // 1_000_000 + self._skew_ms
        records = [
            KafkaRecord(
                at,
                time_ms,
                self._messages.key(first + at).encode(),
                self._messages.content(first + at) or None,
                ((SEQUENCE, b"%d" % (first + at)),),
            )
            for at in range(count)
        ]
        batch = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=first)
        return _Batch(first, count, batch)

    def _take_receipt(self, batch: _Batch, first: int, last: int) -> None:
        if last - first + 1 != batch.records or first <= self._last_offset:
            self._child.report("disorder", sequence_id=batch.first, where="receipts")
        self._last_offset = last
        self._child.report("stored", first=batch.first, count=batch.records, offset=first)
        self.acknowledged = batch.first + batch.records - 1


if __name__ == "__main__":
    serve(KafkaSender)
