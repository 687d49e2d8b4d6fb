"""The open end of a raw ledger.

append() on one thread gives positions and queues; flush() on any thread, one at a time, writes and
syncs all that was queued when it began (group commit), rolling segments by size. What both touch is
one deque and two counters that each have one writer: nothing is read, changed and written back by
two threads. Readers see entries up to `durable` only. Order of effects for a new segment: create
the file, sync the folder, write the ledger record that names it, then the entries.

Mode invariant: a ledger is being written by exactly one LedgerWriter, or closed, never both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, LedgerRecord

from storage.crash_points import reach
from storage.entry import Buffer, EntryHeader, Position
from storage.errors import DiskFailure
from storage.files import AppendFile, Files
from storage.metadata import MetadataStore
from storage.names import segment_path
from storage.segment import SegmentTally

if TYPE_CHECKING:
    from storage.ledger import StoreSettings


class _Queued(NamedTuple):
    header: EntryHeader
    position: Position
    stamped: bytes
    body: Buffer


class LedgerWriter:
    """Made by LedgerStore.create_ledger()."""

    def __init__(
        self,
        record: LedgerRecord,
        ledgers_dir: Path,
        metadata: MetadataStore,
        files: Files,
        settings: StoreSettings,
        clock_ms: Callable[[], int],
    ) -> None:
        self.record = record
        self.ledger_id = record.ledger_id
        self.next_entry_id = 0
        self.durable = Position(record.ledger_id, -1)
        self._ledgers_dir = ledgers_dir
        self._metadata = metadata
        self._files = files
        self._settings = settings
        self._clock_ms = clock_ms
        self._queue: deque[_Queued] = deque()
        # Changed by append() only, and by flush() only.
        self._appended_bytes = 0
        self._flushed_bytes = 0
        self._file: AppendFile | None = None
        self._tally: SegmentTally | None = None
        self._failure: DiskFailure | None = None

    @property
    def pending_bytes(self) -> int:
        """Queued and not durable yet."""
        return self._appended_bytes - self._flushed_bytes

    @property
    def is_failed(self) -> bool:
        return self._failure is not None

    def append(self, header: EntryHeader, stamped: bytes, body: Buffer) -> Position:
        """Queues an entry: `stamped` are its header's bytes, `body` is the rest. No I/O.

        Raises DiskFailure when an earlier flush failed.
        """
        self._check()
        position = Position(self.ledger_id, self.next_entry_id)
        self.next_entry_id += 1
        self._queue.append(_Queued(header, position, stamped, body))
        self._appended_bytes += header.size_bytes
        return position

    def should_roll(self) -> bool:
        """Whether a limit of the ledger is reached: bytes, entries, or age."""
        settings = self._settings
        if not self.next_entry_id:
            return False
        return (
            self._appended_bytes >= settings.ledger_bytes_max
            or self.next_entry_id >= settings.ledger_entries_max
            or self._clock_ms() - self.record.created_ms >= settings.ledger_age_max_ms
        )

    def flush(self) -> Position:
        """Makes durable what was queued when it began; the last durable position, (L, -1) if none.

        Raises DiskFailure, and always from then on.
        """
        self._check()
        queue = [self._queue.popleft() for _ in range(len(self._queue))]
        try:
            start = 0
            while start < len(queue):
                start = self._flush_segment(queue, start)
        except DiskFailure as error:
            self._failure = error
            raise
        except OSError as error:
            self._failure = DiskFailure(str(self._ledgers_dir), "A flush", error)
            raise self._failure from error
        return self.durable

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _flush_segment(self, queue: list[_Queued], start: int) -> int:
        """Writes as much as the current segment takes; where the rest begins."""
        if self._tally is not None and (
            self._tally.record.size_bytes >= self._settings.segment_bytes_max
        ):
            self.seal_segment()
        if self._tally is None:
            self._begin_segment(queue[start].position.entry_id)
        file, tally = self._file, self._tally
        assert file is not None
        assert tally is not None
        buffers: list[Buffer] = []
        size, end = tally.record.size_bytes, start
        while end < len(queue) and (end == start or size < self._settings.segment_bytes_max):
            queued = queue[end]
            buffers += (queued.stamped, queued.body)
            size += queued.header.size_bytes
            end += 1
        reach("flush.before-write")
        file.write(buffers)
        reach("flush.after-write")
        if self._settings.durability == "fsync":
            file.sync()
        reach("flush.after-sync")
        self._account(tally, queue[start:end])
        return end

    def _account(self, tally: SegmentTally, written: list[_Queued]) -> None:
        now_ms = self._clock_ms()
        for queued in written:
            tally.add(queued.header, queued.position)
            tally.add_crc(queued.stamped[:4])
        tally.record.append_time_max_ms = now_ms
        self.record.segments[-1].CopyFrom(tally.record)
        self.durable = written[-1].position
        self._flushed_bytes += sum(queued.header.size_bytes for queued in written)

    def _begin_segment(self, first_entry_id: int) -> None:
        relative = segment_path(self.ledger_id, first_entry_id)
        path = self._ledgers_dir / relative
        self._files.make_dir(path.parent)
        file = self._files.create(path)
        self._files.sync_dir(path.parent)
        self._files.sync_dir(self._ledgers_dir)
        reach("roll.before-record")
        tally = SegmentTally(relative)
        self.record.segments.append(tally.record)
        with self._metadata.batch() as batch:
            batch.put_ledger(self.record)
        reach("roll.after-record")
        self._file, self._tally = file, tally

    def seal_segment(self) -> None:
        """Ends the current segment, durably; the next flush begins another. Not during a flush."""
        self._check()
        if self._tally is None:
            return
        self._end_segment()
        with self._metadata.batch() as batch:
            batch.put_ledger(self.record)

    def _end_segment(self) -> None:
        if self._tally is not None and self._file is not None:
            if self._settings.durability != "fsync":
                self._file.sync()
            self._file.close()
            self._tally.record.sealed = True
            self.record.segments[-1].CopyFrom(self._tally.record)
        self._file = self._tally = None

    def close(self) -> LedgerRecord:
        """Flushes and closes the ledger for ever. Raises DiskFailure."""
        self.flush()
        self._end_segment()
        self.record.state = LEDGER_STATE_CLOSED
        self.record.closed_ms = self._clock_ms()
        with self._metadata.batch() as batch:
            batch.put_ledger(self.record)
        return self.record
