"""Copies the surviving batches of a task's files into the new ledger of their group.

A batch that keeps all its records and gets no horizon is copied as bytes; one that keeps some is
rebuilt (rewrite.py). Batches that lose all their records are not read. Of other batches, only the
surviving records are read, at the places that the scan found. A batch that extends beyond the map
is read completely.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ledgerfold.compactor.job.output import LedgerOutput
from ledgerfold.compactor.job.plan import InputSegment, Output
from ledgerfold.compactor.job.rows import Written
from ledgerfold.compactor.kafka.batches import CHUNK_BYTES, Batches, batches_of
from ledgerfold.compactor.kafka.record_filter import (
    BatchDecisions,
    Kept,
    Rules,
    decide_batches,
    kept_of_all,
    kept_records,
)
from ledgerfold.compactor.kafka.records import Records, read_chosen, read_records
from ledgerfold.compactor.kafka.rewrite import rebuilt
from ledgerfold.compactor.kafka.rows import Copied, Located, Row
from ledgerfold.compactor.kafka.survivors import SurvivorEntries, Survivors
from ledgerfold.compactor.kafka.throttle import TaskThrottle
from ledgerfold.compactor.kafka.transactions import AbortedIndex
from ledgerfold.compactor.positions import Booleans, Integers
from ledgerfold.storage.entry import HEADER_BYTES


class Copy:
    """A copy task. Without `output` it only counts."""

    def __init__(
        self,
        task: int,
        rules: Rules,
        chosen: Located,
        output: Output | None,
        throttle: TaskThrottle,
    ) -> None:
        self._task, self._rules, self._chosen, self._throttle = task, rules, chosen, throttle
        self._aborted = AbortedIndex(rules.lines)
        self._output = LedgerOutput(output) if output is not None else None
        self._messages_read = self._messages_written = 0
        self._survivors: list[bytes] = []

    def run(self, files: Sequence[InputSegment]) -> Iterator[Row]:
        """Copies the files. Raises as copy_survivors does."""
        if self._output is None:
            self._copy(files)
        else:
            with self._output:
                self._copy(files)
                self._output.finish()
            self._throttle.settle()
            for record in self._output.sealed:
                yield self._task, Written(record.SerializeToString())
            yield self._task, self._output.write_times
        batches = b"".join(self._survivors)
        yield self._task, Copied(self._task, self._messages_read, self._messages_written, batches)

    def _copy(self, files: Sequence[InputSegment]) -> None:
        for batches in batches_of(files, self._throttle.chunk_bytes(CHUNK_BYTES)):
            self._copy_chunk(batches)
            self._throttle.spend(batches.stored_bytes)

    def _copy_chunk(self, batches: Batches) -> None:
        rules = self._rules
        decisions = decide_batches(batches, rules, self._aborted)
        is_read = ~decisions.is_dropped | decisions.keeps_header
        self._messages_read += int(batches.record_count[is_read].sum())
        stays = is_read & (batches.record_count > 0) & ~decisions.is_dropped
        survivors = Survivors(batches)
        for records in read_records(batches, np.flatnonzero(stays & batches.is_control)):
            self._keep_markers(batches, records, decisions, survivors)
        has_data, is_covered = stays & ~batches.is_control, batches.last_offset <= rules.latest
        with_chosen = np.flatnonzero(has_data & is_covered & self._has_chosen(batches))
        for records in read_chosen(batches, with_chosen, self._chosen):
            selection = kept_records(records, rules, np.arange(len(records)))
            self._keep_records(batches, records, selection, survivors)
        for records in read_records(batches, np.flatnonzero(has_data & ~is_covered)):
            selection = kept_of_all(records, rules, self._chosen.offsets)
            self._keep_records(batches, records, selection, survivors)
        survivors.keep_headers(np.flatnonzero(decisions.keeps_header & ~survivors.stays))
        self._write(survivors.entries())

    def _has_chosen(self, batches: Batches) -> Booleans:
        """Returns which batches have a record that the map chose."""
        bounds = (batches.base_offset, batches.last_offset + 1)
        first, behind = np.searchsorted(self._chosen.offsets, bounds)
        found: Booleans = first < behind
        return found

    def _keep_markers(
        self, batches: Batches, records: Records, decisions: BatchDecisions, survivors: Survivors
    ) -> None:
        indexes = records.batches
        self._messages_written += int(records.counts.sum())
        gets_horizon = decisions.is_discardable[indexes] & ~batches.has_horizon[indexes]
        survivors.keep(indexes[~gets_horizon])
        rows = np.flatnonzero(gets_horizon[records.batch])
        if len(rows):
            # A horizon is for batches with tombstones: these records count as tombstones.
            selection = Kept(rows, np.ones(len(rows), np.bool_))
            self._rebuild(batches, records, selection, np.flatnonzero(gets_horizon), survivors)

    def _keep_records(
        self, batches: Batches, records: Records, selection: Kept, survivors: Survivors
    ) -> None:
        indexes = records.batches
        of = records.batch[selection.rows]
        counts = np.bincount(of, minlength=len(indexes))
        self._messages_written += len(of)
        has_tombstones = np.zeros(len(indexes), np.bool_)
        has_tombstones[of[selection.is_null]] = True
        is_whole = (counts == batches.record_count[indexes]) & ~(
            has_tombstones & ~batches.has_horizon[indexes]
        )
        survivors.keep(indexes[is_whole])
        changed = np.flatnonzero((counts > 0) & ~is_whole)
        if len(changed):
            self._rebuild(batches, records, selection, changed, survivors)

    def _rebuild(
        self,
        batches: Batches,
        records: Records,
        selection: Kept,
        changed: Integers,
        survivors: Survivors,
    ) -> None:
        built = rebuilt(batches, records, selection, changed, self._rules.horizon_ms)
        survivors.replace(records.batches[changed], *built)

    def _write(self, entries: SurvivorEntries) -> None:
        facts = (entries.last_offset, entries.size_bytes, entries.max_timestamp_ms)
        self._survivors.append(np.stack(facts, axis=1).astype("<i8").tobytes())
        if self._output is not None:
            self._output.append_block(entries)
            written = entries.size_bytes
            self._throttle.spend(int(written.sum()) + HEADER_BYTES * len(written))
