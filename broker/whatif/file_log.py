"""A temporary log on disk for messages that are not in a topic, and a temporary compactor for it.

The messages are written as one ledger, entry by entry, as a batching producer would publish them:
up to 1,000 messages or 512 KiB per entry, all of one publish time. Only one entry and the records
of the segments are in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.worker.supervisor import CompactorSupervisor
from ledgerfold.storage.entry import ENTRY_BYTES_MAX, read_header, stamp
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.files import REAL
from ledgerfold.storage.names import ledgers_dir
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.segment import SegmentWriter
from ledgerfold.strategies.allowed import AllowedStrategies
from ledgerfold.v1.compactor_pb2 import AnalyzeRequest, CompactionPlan
from ledgerfold.v1.records_pb2 import Position, SegmentRecord
from ledgerfold.v1.what_if_pb2 import TopicWhatIf

_MESSAGES_MAX = 1_000
_ENTRY_BYTES = 512 * 1024
_SEGMENT_BYTES = 64 * 1024 * 1024
_LEDGER = 1


class FileMessage(NamedTuple):
    """A message. An empty value is a tombstone. Times in ms; 0: not set."""

    key: bytes | None
    value: bytes
    event_time_ms: int = 0
    publish_time_ms: int = 0


def write_log(data_dir: Path, messages: Iterable[FileMessage], now_ms: int) -> CompactionPlan:
    """Writes the log. Returns the plan, without an output, of a run that would read all messages.

    Raises InvalidRequest if a message is too large, DiskFailure.
    """
    folder = ledgers_dir(data_dir)
    REAL.make_dir(folder)
    REAL.make_dir(folder / str(_LEDGER))
    log = _Log(folder, now_ms)
    for message in messages:
        log.add(message)
    plan = CompactionPlan(ledgers_dir=str(folder), segments=log.finish(), time_ms=now_ms)
    plan.horizon_previous.CopyFrom(Position(ledger_id=-1, entry_id=-1))
    if plan.segments:
        plan.horizon.CopyFrom(plan.segments[-1].last)
    return plan


class _Log:
    """The log being written: batches, entries and segments as they fill."""

    def __init__(self, folder: Path, now_ms: int) -> None:
        self._folder, self._now_ms = folder, now_ms
        self._batch = NativeBatchBuilder("what-if")
        self._publish_time_ms = 0
        self._messages = self._entries = 0
        self._writer: SegmentWriter | None = None
        self._sealed: list[SegmentRecord] = []

    def add(self, message: FileMessage) -> None:
        batch = self._batch
        is_full = len(batch) >= _MESSAGES_MAX or batch.size_bytes >= _ENTRY_BYTES
        if len(batch) and (is_full or message.publish_time_ms != self._publish_time_ms):
            self._write_batch()
        self._publish_time_ms = message.publish_time_ms
        batch.add(message.value or None, message.key, event_time_ms=message.event_time_ms)

    def finish(self) -> list[SegmentRecord]:
        if len(self._batch):
            self._write_batch()
        self._seal()
        return self._sealed

    def _write_batch(self) -> None:
        self._messages += len(self._batch)
        built = self._batch.build(
            sequence_id=self._messages - 1, publish_time_ms=self._publish_time_ms
        )
        self._batch.clear()
        entry = stamp(built, _LEDGER, self._entries, self._now_ms, 1)
        if len(entry) > ENTRY_BYTES_MAX:
            raise InvalidRequest(
                f"A message needs an entry of {len(entry)} bytes; the limit is {ENTRY_BYTES_MAX}."
            )
        self._entries += 1
        if self._writer is not None and self._writer.size_bytes + len(entry) > _SEGMENT_BYTES:
            self._seal()
        if self._writer is None:
            self._writer = SegmentWriter(self._folder, _LEDGER, len(self._sealed))
        self._writer.append(read_header(entry), entry)

    def _seal(self) -> None:
        if self._writer is not None:
            self._sealed.append(self._writer.seal())
            self._writer = None


def ask_own_worker(data_dir: Path, request: AnalyzeRequest, spark_master: str) -> TopicWhatIf:
    """Starts a worker, asks it, and stops it. `data_dir` is private: the worker's files go there.

    The caller has named the strategies itself, so the worker may load them. Raises
    CompactorUnavailable, CompactionFailed, InvalidRequest, StorageError.
    """
    asked_for = AllowedStrategies().also(*(each.name for each in request.strategies))
    settings = BrokerSettings(
        data_dir=data_dir, spark_master=spark_master, allowed_strategies=asked_for
    )
    return asyncio.run(_ask(settings, request))


async def _ask(settings: BrokerSettings, request: AnalyzeRequest) -> TopicWhatIf:
    supervisor = CompactorSupervisor(settings)
    supervisor.start()
    try:
        return await supervisor.analyze(request)
    finally:
        await supervisor.stop()
