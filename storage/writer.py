"""The writer of an open raw ledger.

append() on one thread assigns positions and queues; flush() on any thread, one at a time, stamps,
writes and syncs all entries that were queued when it began (group commit), rolling segments by
size. The stamp of an entry includes which entries were synced before it was written, so that
recovery can distinguish damage from a torn tail. Both methods share one deque and two counters.
Each counter is changed by one thread only, so no update is lost. Readers see `record`, which is
never modified, but replaced when more is durable.

A new segment is written in this order: create the file (and, before the first one, the ledger's
label), sync the folder, write the ledger record that names it, then the entries. Any failure ends
the writer: later entries could leave a gap.

Mode invariant: a ledger is being written by exactly one LedgerWriter, or closed, never both.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from itertools import repeat
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from ledgerfold.storage.append_files import AppendFiles
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.entry import (
    FORMAT_VERSION,
    Buffer,
    EntryHeader,
    Position,
    stamped_headers,
)
from ledgerfold.storage.errors import AlreadyClosed, DiskFailure
from ledgerfold.storage.files import Files
from ledgerfold.storage.label import Label, label_of, write_first_label, write_label
from ledgerfold.storage.limits import LEDGER_SEGMENTS_MAX
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import segment_path
from ledgerfold.storage.open_files import AppendFile
from ledgerfold.storage.segment import SegmentTally, size_of
from ledgerfold.storage.settings import StoreSettings
from ledgerfold.storage.shared_sync import SharedSync
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, LEDGER_STATE_OPEN, LedgerRecord

# From this number on, buffers that are small on average are copied into one.
_BUFFERS_JOINED_FROM, _SMALL_BYTES = 16, 4096
# The bytes of a stamped header that hold its checksum.
_HEADER_CRC = slice(0, 4)


# The parts of an entry that follow its header, concatenated.
Body = tuple[Buffer, ...]


class _Queued(NamedTuple):
    """Entries that were appended together."""

    headers: Sequence[EntryHeader]
    bodies: Sequence[Body]
    first_entry_id: int
    append_time_ms: int
    producer_number: int

    def stamps(self, ledger_id: int) -> Iterator[tuple[int, int, int, int]]:
        ids = range(self.first_entry_id, self.first_entry_id + len(self.headers))
        return zip(
            repeat(ledger_id), ids, repeat(self.append_time_ms), repeat(self.producer_number)
        )


class _Unwritten(NamedTuple):
    """Entries that a flush has taken from the queue, with their stamps."""

    headers: list[EntryHeader]
    bodies: list[Body]
    stamps: list[tuple[int, int, int, int]]


class LedgerWriter:
    """The writer of one ledger, created by LedgerStore.create_ledger()."""

    def __init__(
        self,
        record: LedgerRecord,
        ledgers_dir: Path,
        metadata: MetadataStore,
        files: Files,
        appending: AppendFiles,
        folders: SharedSync,
        settings: StoreSettings,
        clock_ms: Callable[[], int],
        on_closed: Callable[[int], None],
    ) -> None:
        """`folders`: syncs the names of the ledgers' folders."""
        # The record of the durable part, which is never modified.
        self.record = record
        self.ledger_id = record.ledger_id
        self.next_entry_id = 0
        self.durable = Position(record.ledger_id, -1)
        self._ledgers_dir = ledgers_dir
        self._metadata = metadata
        self._files = files
        self._appending = appending
        self._folders = folders
        self._settings = settings
        self._clock_ms = clock_ms
        self._on_closed = on_closed
        self._queue: deque[_Queued] = deque()
        # Only append() changes the first, only flush() the second.
        self._appended_bytes = 0
        self._flushed_bytes = 0
        # The number of entries on the disk: fewer than were acknowledged under durability "os".
        self._synced_entries = 0
        self._file: AppendFile | None = None
        self._tally: SegmentTally | None = None
        self._failure: DiskFailure | None = None

    @property
    def pending_bytes(self) -> int:
        """The size of entries that are queued and not yet durable."""
        return self._appended_bytes - self._flushed_bytes

    def append(
        self, header: EntryHeader, body: Body, append_time_ms: int, producer_number: int
    ) -> Position:
        """Queues an entry as it was sent: its header, and in `body` the rest, concatenated. No I/O.

        Raises DiskFailure if an earlier flush failed, AlreadyClosed.
        """
        position = Position(self.ledger_id, self.next_entry_id)
        self.append_all((header,), (body,), append_time_ms, producer_number)
        return position

    def append_all(
        self,
        headers: Sequence[EntryHeader],
        bodies: Sequence[Body],
        append_time_ms: int,
        producer_number: int,
    ) -> int:
        """Queues entries as append() does, at consecutive positions, until a limit of the ledger is
        reached.

        Returns their number, at least one. Raises like append().
        """
        self._check()
        if self.record.state == LEDGER_STATE_CLOSED:
            raise AlreadyClosed(f"Ledger {self.ledger_id} is closed.")
        # The version in which they are stored, so that their sizes are right.
        headers = [
            each if each.version == FORMAT_VERSION else each._replace(version=FORMAT_VERSION)
            for each in headers
        ]
        room = self._settings.ledger_entries_max - self.next_entry_id
        headers = headers[: max(1, room)]
        count = _until_full(headers, self._settings.ledger_bytes_max - self._appended_bytes)
        headers, bodies = headers[:count], bodies[:count]
        first_id = self.next_entry_id
        self.next_entry_id += count
        self._queue.append(_Queued(headers, bodies, first_id, append_time_ms, producer_number))
        self._appended_bytes += size_of(headers)
        return count

    def skip_to(self, entry_id: int) -> None:
        """Sets the id of the next entry: the missing entries before it are lost permanently.

        Not during a flush. Raises DiskFailure.
        """
        if entry_id != self.next_entry_id:
            self.flush()
            self.seal_segment()
            self.next_entry_id = entry_id

    def should_roll(self) -> bool:
        """Returns whether a limit of the ledger is reached: bytes, entries, segments, or age."""
        settings = self._settings
        if not self.next_entry_id:
            return False
        return (
            self._appended_bytes >= settings.ledger_bytes_max
            or self.next_entry_id >= settings.ledger_entries_max
            or len(self.record.segments) >= LEDGER_SEGMENTS_MAX
            or self._clock_ms() - self.record.created_ms >= settings.ledger_age_max_ms
        )

    def flush(self) -> Position:
        """Makes durable all entries queued when it began. Returns the last position, (L, -1) if
        none.

        Raises DiskFailure, and then on every later call.
        """
        with self._all_or_failed():
            queued = self._take_queued()
            while queued.headers:
                queued = self._flush_segment(queued)
        return self.durable

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def _all_or_failed(self) -> Iterator[None]:
        self._check()
        try:
            yield
        except DiskFailure as error:
            self._failure = error
            raise
        except BaseException as error:
            # Entries were taken from the queue and are lost: later ones must not be written.
            self._failure = DiskFailure(str(self._ledgers_dir), "A flush", OSError(0, repr(error)))
            raise

    def _take_queued(self) -> _Unwritten:
        taken = _Unwritten([], [], [])
        for _ in range(len(self._queue)):
            queued = self._queue.popleft()
            taken.headers.extend(queued.headers)
            taken.bodies.extend(queued.bodies)
            taken.stamps.extend(queued.stamps(self.ledger_id))
        return taken

    def _flush_segment(self, unwritten: _Unwritten) -> _Unwritten:
        """Writes entries until the current segment is full. Returns those that are left."""
        if self._tally is not None and (
            self._tally.record.size_bytes >= self._settings.segment_bytes_max
        ):
            self.seal_segment()
        if self._tally is None:
            self._begin_segment(unwritten.stamps[0][1])
        file, tally = self._file, self._tally
        assert file is not None
        assert tally is not None
        room = self._settings.segment_bytes_max - tally.record.size_bytes
        end = _until_full(unwritten.headers, room)
        headers, stamps = unwritten.headers[:end], unwritten.stamps[:end]
        stamped = stamped_headers(headers, stamps, self._synced_entries)
        reach("flush.before-write")
        file.write(_buffers(stamped, unwritten.bodies))
        reach("flush.after-write")
        if self._settings.durability == "fsync":
            file.sync()
            self._synced_entries = stamps[-1][1] + 1
        reach("flush.after-sync")
        first, last = Position(*stamps[0][:2]), Position(*stamps[-1][:2])
        append_time_max_ms = max(map(itemgetter(2), stamps))
        crcs = b"".join([header[_HEADER_CRC] for header in stamped])
        tally.add(headers, first, last, append_time_max_ms, crcs)
        self._publish(tally)
        self.durable = last
        self._flushed_bytes += size_of(headers)
        return _Unwritten(unwritten.headers[end:], unwritten.bodies[end:], unwritten.stamps[end:])

    def _publish(self, tally: SegmentTally) -> None:
        """Replaces the record by one whose last segment is `tally.record`."""
        # Each flush pays for it: half the time of deepcopy().
        record = LedgerRecord()
        record.CopyFrom(self.record)
        record.segments[-1].CopyFrom(tally.record)
        self.record = record

    def _begin_segment(self, first_entry_id: int) -> None:
        relative = segment_path(self.ledger_id, first_entry_id)
        path = self._ledgers_dir / relative
        self._files.make_dir(path.parent)
        if self.record.state == LEDGER_STATE_OPEN and not self.record.segments:
            write_first_label(path.parent, self._label(), self._files)
        file = self._appending.create(path)
        self._files.sync_dir(path.parent)
        if not self.record.segments:
            self._folders.sync()
        reach("roll.before-record")
        tally = SegmentTally(relative)
        record = deepcopy(self.record)
        record.segments.append(tally.record)
        with self._metadata.batch() as batch:
            batch.put(record)
        reach("roll.after-record")
        self.record, self._file, self._tally = record, file, tally

    def _label(self) -> Label:
        return label_of(self.record, partitions=self._metadata.siblings(self.record.topic))

    def seal_segment(self) -> None:
        """Seals the current segment durably; the next flush begins another. Not during a flush.

        Raises DiskFailure.
        """
        with self._all_or_failed():
            if self._tally is None:
                return
            self._end_segment()
            with self._metadata.batch() as batch:
                batch.put(self.record)

    def _end_segment(self) -> None:
        if self._tally is not None and self._file is not None:
            if self._settings.durability != "fsync":
                self._file.sync()
                self._synced_entries = self.durable.entry_id + 1
            self._file.close()
            self._tally.record.sealed = True
            self._publish(self._tally)
        self._file = self._tally = None

    def abandon(self) -> LedgerRecord:
        """Stops all writing, as after a failure. Returns the record of the durable part. Not during
        a flush.
        """
        if self._failure is None:
            why = OSError(0, "an earlier write to the same log failed")
            self._failure = DiskFailure(str(self._ledgers_dir), "A flush", why)
        if self._file is not None:
            self._file.close()
        return self.record

    def close(self) -> LedgerRecord:
        """Flushes and closes the ledger permanently; does nothing if it is closed. Raises
        DiskFailure.
        """
        self.flush()
        if self.record.state == LEDGER_STATE_CLOSED:
            return self.record
        with self._all_or_failed():
            record = self._ended()
            with self._metadata.batch() as batch:
                batch.put(record)
            self.record = record
        self._on_closed(self.ledger_id)
        return record

    def finish(self) -> LedgerRecord:
        """Flushes and closes a ledger of create_unfinished(). Returns its record, for the caller's
        batch.

        Raises DiskFailure.
        """
        self.flush()
        with self._all_or_failed():
            self.record = self._ended()
            if self.record.segments:
                folder = self._ledgers_dir / str(self.ledger_id)
                write_label(folder, self._label(), self._files)
                self._files.sync_dir(folder)
        self._on_closed(self.ledger_id)
        return self.record

    def _ended(self) -> LedgerRecord:
        """Returns the ledger's record as closed."""
        self._end_segment()
        record = deepcopy(self.record)
        record.state, record.being_made = LEDGER_STATE_CLOSED, False
        record.closed_ms = self._clock_ms()
        return record


def _until_full(headers: Sequence[EntryHeader], room_bytes: int) -> int:
    """Returns the number of entries that fit into `room_bytes`: at least one."""
    if size_of(headers) < room_bytes:
        return len(headers)
    for count, header in enumerate(headers, 1):
        room_bytes -= header.size_bytes
        if room_bytes <= 0:
            return count
    return len(headers)


def _buffers(stamped: Sequence[bytes], bodies: Iterable[Body]) -> list[Buffer]:
    """Returns the buffers to write: many small entries as one buffer, which costs less."""
    buffers: list[Buffer] = []
    for header, body in zip(stamped, bodies, strict=False):
        buffers += (header, *body)
    if len(buffers) < _BUFFERS_JOINED_FROM:
        return buffers
    if sum(map(len, buffers)) > len(buffers) * _SMALL_BYTES:
        return buffers
    return [b"".join(buffers)]
