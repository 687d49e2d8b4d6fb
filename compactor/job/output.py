"""The files that one copy task writes into the folder of the new ledger.

A file is numbered by the first entry of the run's input that it may hold, so that numbers are in
order of id and tasks cannot collide. Several attempts at one task may run at the same time
(speculative execution, or an executor that was given up and still works). Each has its own
temporary files, and the first attempt that completes a file renames it. Only the driver creates the
folder: once the driver has removed it, a task that is still running cannot recreate it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

import numpy as np

from ledgerfold.compactor.job.dead_rows import Vectored
from ledgerfold.compactor.job.key_index import KeyIndexBuilder
from ledgerfold.compactor.job.plan import InputSegment, Output
from ledgerfold.compactor.job.rebuild import RawEntry
from ledgerfold.compactor.job.rows import WriteTimes
from ledgerfold.compactor.positions import Integers
from ledgerfold.storage.crash_points import reach
from ledgerfold.storage.entry import Buffer, EntryHeader
from ledgerfold.storage.files import Files, replace_file
from ledgerfold.storage.names import deletion_vector_path
from ledgerfold.storage.segment import SegmentWriter, Totals, link_segment
from ledgerfold.v1.records_pb2 import SegmentRecord

# Entries are written in groups: one system call for many.
_PENDING_BYTES_MAX = 1024 * 1024


class Block(Protocol):
    """A block of entries that are written together, as many as fit into each file."""

    @property
    def ends(self) -> Integers:
        """The end offset of each entry within the block."""
        ...

    def ordinal(self, index: int) -> int:
        """Returns the entry's index in the run's input."""
        ...

    def totals(self, start: int, end: int) -> Totals: ...

    def buffers(self, start: int, end: int) -> Sequence[Buffer]:
        """Returns buffers whose concatenation is the entries from `start` to `end`."""
        ...


class LedgerOutput:
    """A writer that appends entries and rolls files at the plan's limit. Use as a context manager.

    `sealed` lists the finished files: synced, renamed, durable. `write_times` has the durations of
    writes and seals.
    """

    def __init__(self, output: Output) -> None:
        self.sealed: list[SegmentRecord] = []
        # The segments of the input that it shares.
        self.shared: list[SegmentRecord] = []
        self._index = KeyIndexBuilder() if output.is_indexed else None
        self.write_times = WriteTimes()
        self._files = Files(attempt=attempt_number())
        self._output = output
        self._writer: SegmentWriter | None = None
        self._headers: list[EntryHeader] = []
        self._entries: list[Buffer] = []
        self._pending_bytes = 0

    def __enter__(self) -> LedgerOutput:
        return self

    def __exit__(self, *exc_info: object) -> None:
        if self._writer is not None:
            self._writer.abandon()

    def append(self, header: EntryHeader, entry: RawEntry, ordinal: int) -> None:
        """Appends an entry. `ordinal`: its index in the run's input. Raises DiskFailure."""
        if self._writer is not None:
            size_bytes = self._writer.size_bytes + self._pending_bytes
            if size_bytes + header.size_bytes > self._output.segment_bytes_max:
                self.finish()
        if self._writer is None:
            self._writer = self._created(ordinal)
        if self._index is not None:
            self._index.add(header, entry.key_section, partial(getattr, entry, "value_section"))
        self._headers.append(header)
        self._entries.extend(entry)
        self._pending_bytes += header.size_bytes
        if self._pending_bytes >= _PENDING_BYTES_MAX:
            self._write(self._writer)

    def append_block(self, block: Block) -> None:
        """Appends a block of entries. Raises DiskFailure."""
        start = 0
        while start < len(block.ends):
            if self._writer is None:
                self._writer = self._created(block.ordinal(start))
            writer, before = self._writer, int(block.ends[start - 1]) if start else 0
            room = self._output.segment_bytes_max - writer.size_bytes
            end = int(np.searchsorted(block.ends, before + room, side="right"))
            if not writer.size_bytes:
                # An entry that exceeds the size limit of files gets its own file.
                end = max(end, start + 1)
            if start < end:
                with self._timed():
                    writer.append_totalled(block.totals(start, end), block.buffers(start, end))
            start = end
            if start < len(block.ends):
                self.finish()

    def finish(self) -> None:
        """Seals the open file, if any. Raises DiskFailure."""
        if self._writer is None:
            return
        self._write(self._writer)
        with self._timed():
            self.sealed.append(self._writer.seal())
            if self._index is not None:
                self._index.write(Path(self._output.ledgers_dir), self.sealed[-1], self._files)
                self._index = KeyIndexBuilder()
        self._writer = None

    def share(
        self,
        segment: InputSegment,
        vector: Vectored | None = None,
        index: KeyIndexBuilder | None = None,
    ) -> None:
        """Adds a segment of the run's input, as a link.

        `vector`: its new deletion vector; `index`: its new key index. Raises MissingFile,
        DiskFailure.
        """
        self.finish()
        output = self._output
        ledgers_dir = Path(output.ledgers_dir)
        linked = link_segment(
            ledgers_dir,
            segment.record,
            output.ledger_id,
            segment.entries_before,
            self._files,
            keeps_vector=vector is None,
        )
        if vector is not None:
            with self._timed():
                path = ledgers_dir / deletion_vector_path(linked.path)
                replace_file(path, [vector.stored], self._files)
            reach("worker.vector-written")
            linked.dead.CopyFrom(vector.record)
        if index is not None:
            with self._timed():
                index.write(ledgers_dir, linked, self._files)
        self.shared.append(linked)

    def _created(self, ordinal: int) -> SegmentWriter:
        output = self._output
        return SegmentWriter(Path(output.ledgers_dir), output.ledger_id, ordinal, self._files)

    def _write(self, writer: SegmentWriter) -> None:
        with self._timed():
            writer.append_many(self._headers, self._entries)
        self._headers, self._entries, self._pending_bytes = [], [], 0

    @contextmanager
    def _timed(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        took_us = round((time.perf_counter() - began) * 1e6)
        self.write_times = self.write_times.with_one(took_us)


def attempt_number() -> int:
    """Returns Spark's number of the attempt; 0 outside of Spark's tasks, where there is one
    attempt.
    """
    # In a Spark task, pyspark is imported already. Elsewhere it may not even be installed.
    pyspark = sys.modules.get("pyspark")
    context = None if pyspark is None else pyspark.TaskContext.get()
    return 0 if context is None else int(context.taskAttemptId())
