"""A log whose messages have event times and properties, and a strategy's view of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ledgerfold.storage.entry import Compression
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import SegmentRecord
from tests.model.strategic_model import Said
from tests.model.strategy_model import Message
from tests.support.compaction import Batch, LogBuilder, Stored

SETTINGS = {"header-version": {"property": "n"}}


class StrategicLog(LogBuilder):
    """As LogBuilder; the property `n` of every other message is its place in the batch."""

    def add_segment(
        self, ledger_id: int, batches: Iterable[Batch], compression: int = Compression.NONE
    ) -> SegmentRecord:
        timed = [
            [message._replace(event_time_ms=_event_time_ms(message)) for message in batch]
            for batch in batches
        ]
        return super().add_segment(ledger_id, timed, compression)

    def said(self) -> list[Said]:
        return [_said(message) for message in self.messages]

    def strategic_plan(
        self, ledger_id: int, name: str, renumber: bool = False, **more: Any
    ) -> CompactionPlan:
        """With the settings that the strategy needs."""
        plan = self.plan(ledger_id, strategy=name, **more)
        plan.strategy_settings.update(SETTINGS.get(name, {}))
        plan.renumber_batches = renumber
        return plan


def _said(message: Stored) -> Said:
    index = message.batch_index
    return Said(
        key=None if message.key is None else message.key.decode(errors="surrogateescape"),
        value=message.value,
        properties={"n": str(index)} if index % 2 else {},
        event_time_ms=_event_time_ms(Message(message.key, message.value)),
        publish_time_ms=1000,
        message_id=(message.ledger_id, message.entry_id, index),
    )


def _event_time_ms(message: Message) -> int:
    return len(message.value) % 3
