"""Phase two: a task copies the survivors of its segments into the new ledger, in order of id.

An entry is copied as bytes if all its rows survive, rebuilt if some do (rebuild.py), and omitted if
none does. The task verifies both checksums of each entry that it copies, so damage is found here at
the latest, and never gets a new checksum. An indexed segment of the previous ledger is shared,
unless too much of it is dead: the new ledger gets a link to its file, and a deletion vector if
messages have died. A raw segment is shared, too, if enough of it survives (share_raw).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np

from ledgerfold.compactor.job.dead_rows import dead_mask, new_vector
from ledgerfold.compactor.job.header_blocks import header_at
from ledgerfold.compactor.job.key_index import KeyIndexBuilder, complement
from ledgerfold.compactor.job.output import LedgerOutput
from ledgerfold.compactor.job.plan import InputSegment, Output
from ledgerfold.compactor.job.pulsar_rebuild import changes_ids, keep_pulsar_rows
from ledgerfold.compactor.job.rebuild import RawEntry, keep_rows
from ledgerfold.compactor.job.rows import Dead, Failure, Positions, Row, Written
from ledgerfold.compactor.job.segment_map import PlacedEntry, SegmentMap
from ledgerfold.compactor.positions import ROW_BITS, ROW_MASK, Integers, ascending, grouped
from ledgerfold.storage.entry import ENTRY_BYTES_MAX, Codec, EntryHeader, position_of, read_header
from ledgerfold.storage.errors import CompactionFailed, Corruption, InvalidRequest
from ledgerfold.storage.native_batch import parse_keys


def copy_survivors(
    rows: Iterable[Row],
    segments: Sequence[InputSegment],
    output: Output,
    renumber: bool = False,
) -> Iterator[Row]:
    """Copies the survivors. Yields rows for the driver: Written, and content meant for the driver.

    `renumber`: the remaining messages of a batch are renumbered (keep_rows). Raises Corruption,
    MissingFile, DiskFailure, EntryTooLarge. The driver removes the whole folder with any unfinished
    files.
    """
    received = yield from _received(rows, segments)
    if received is None:
        return
    with LedgerOutput(output) as ledger:
        for segment, rows_left, changed in zip(segments, *received, strict=True):
            if segment.is_indexed:
                may_stay = not segment.is_merged and not _is_garbage(segment, output)
                if may_stay and not len(changed):
                    ledger.share(segment)
                    continue
                is_dead = dead_mask(segment)
                is_dead[changed] = True
                dead = np.flatnonzero(is_dead)
                vector = new_vector(segment, dead, output.garbage_max) if may_stay else None
                if vector is not None:
                    ledger.share(segment, vector)
                    continue
                rows_left = np.flatnonzero(~is_dead)
            elif not renumber and share_raw(segment, rows_left, ledger, output):
                continue
            if len(rows_left):
                _copy_segment(segment, rows_left, ledger, renumber)
        ledger.finish()
    for record in ledger.sealed:
        yield 0, Written(record.SerializeToString())
    for record in ledger.shared:
        yield 0, Written(record.SerializeToString(), record.size_bytes)
    yield 0, ledger.write_times


def _is_garbage(segment: InputSegment, output: Output) -> bool:
    """Returns whether too much of an old segment was dead before the run."""
    record = segment.record
    return record.dead.bytes > output.garbage_max * record.size_bytes


def _received(
    rows: Iterable[Row], segments: Sequence[InputSegment]
) -> Generator[Row, None, tuple[list[Integers], list[Integers]] | None]:
    """Returns the surviving and the dying rows of each segment; None after a Failure.

    The rows that they came in are released with this generator, before files are copied.
    """
    surviving: list[Integers] = [np.empty(0, np.int64)]
    dying: list[Integers] = [np.empty(0, np.int64)]
    for row in rows:
        match row[1]:
            case Positions() as positions:
                surviving.append(positions.values)
            case Dead(positions):
                dying.append(positions.values)
            case Failure():
                yield row
                return None
            case _:
                yield row
    return rows_by_segment(surviving, segments), rows_by_segment(dying, segments)


def rows_by_segment(
    several: Sequence[Integers], segments: Sequence[InputSegment]
) -> list[Integers]:
    """Returns the rows of each segment among these positions, ascending.

    `segments`: neighbours. Raises CompactionFailed if a position is not in one of them, as a
    user-defined strategy may return it.
    """
    positions = np.concatenate(several)
    first = segments[0].ordinal if segments else 0
    ordinals = (positions >> ROW_BITS) - first
    is_foreign = (ordinals < 0) | (ordinals >= len(segments))
    if is_foreign.any():
        raise _not_in_the_log(int(positions[is_foreign][0]))
    order, ends = grouped(ordinals, len(segments))
    found: list[Integers] = []
    for segment, (start, end) in zip(segments, pairwise((0, *ends)), strict=True):
        rows = ascending(positions[order[start:end]] & ROW_MASK)
        if len(rows) and rows[-1] >= segment.record.messages:
            raise _not_in_the_log((segment.ordinal << ROW_BITS) + int(rows[-1]))
        found.append(rows)
    return found


def _not_in_the_log(position: int) -> CompactionFailed:
    return CompactionFailed(
        "phase two", f"the strategy kept position {position}, which no message has"
    )


def _copy_segment(
    segment: InputSegment, rows: Integers, ledger: LedgerOutput, renumber: bool
) -> None:
    with SegmentMap(segment) as mapped:
        ordinal, first_row, start = segment.entries_before, 0, 0
        for block in mapped.blocks():
            ends = first_row + np.cumsum(block.column("message_count"))
            bounds = np.searchsorted(rows, ends)
            # Entries without survivors are skipped.
            for index in np.flatnonzero(np.diff(bounds, prepend=start)).tolist():
                end = int(bounds[index])
                header = header_at(block, index)
                row = int(ends[index]) - header.message_count
                entry = PlacedEntry(header, int(block.offsets[index]), row)
                raw = _rebuilt(mapped, entry, rows[start:end] - row, renumber)
                ledger.append(read_header(raw.header), raw, ordinal + index)
                start = end
            ordinal, first_row = ordinal + len(ends), int(ends[-1])


def _rebuilt(mapped: SegmentMap, entry: PlacedEntry, rows: Integers, renumber: bool) -> RawEntry:
    """Returns the entry with only these rows; unchanged if it has no others."""
    raw, header = mapped.raw(entry), entry.header
    try:
        if (
            len(rows) < header.message_count
            # A run of an older build, which did not count batch indexes, may have left an entry
            # that is too large.
            or header.size_bytes > ENTRY_BYTES_MAX
            or (renumber and _changes_ids(header, raw))
        ):
            keep = keep_pulsar_rows if header.codec == Codec.PULSAR else keep_rows
            return keep(header, raw, rows, mapped.path, renumber)
        return raw
    except InvalidRequest as error:
        raise Corruption(mapped.path, entry.offset, "an entry that decodes", str(error)) from error


def _changes_ids(header: EntryHeader, raw: RawEntry) -> bool:
    """Returns whether renumbering would change the ids of a whole entry."""
    if header.is_plain:
        return False
    if header.codec == Codec.PULSAR:
        return changes_ids(header, raw)
    return header.message_count == 1 or bool(parse_keys(raw.key_section).batch_indexes)


def share_raw(
    segment: InputSegment, rows_left: Integers, ledger: LedgerOutput, output: Output
) -> bool:
    """Shares a raw segment with the new ledger if enough of it survives; returns whether it could.

    A first run over keys that are all different would copy the whole topic. The file of a raw
    segment has the format of a compacted one, and a sealed file never changes; so the new ledger
    gets a link to it, a key index beside it, and a deletion vector if messages of it have died.
    Trimming the raw ledger removes its own name of the file only.

    A segment is shared if

    * the output gets key indexes: later runs look the segment up, and hide what dies;
    * all of it is in the run's range, and it has between half and twice the size of a full segment:
      smaller ones are copied, so that they become few; a raw one ends after it is full;
    * no more of it is dead than a deletion vector may hide, and everything dead has a key: the next
      run counts the keys of a segment by its index and its dead messages;
    * every entry can be opened (key_index.py).

    All of it is read and verified, as if it were copied: a damaged segment fails the run. Raises
    Corruption, MissingFile, DiskFailure.
    """
    if not _is_worth_it(segment, len(rows_left), output):
        return False
    index = _index_of(segment)
    if index.is_given_up:
        return False
    dead, vector = complement(segment.record.messages, rows_left), None
    if len(dead):
        if not index.has_key()[dead].all():
            return False
        vector = new_vector(segment, dead, output.garbage_max, index.places)
        if vector is None:
            return False
    ledger.share(segment, vector, index)
    return True


def _is_worth_it(segment: InputSegment, rows_left: int, output: Output) -> bool:
    record, full_bytes = segment.record, output.segment_bytes_max
    return (
        output.is_indexed
        and not segment.is_compacted
        and segment.after < position_of(record.first)
        and position_of(record.last) <= segment.up_to
        and full_bytes // 2 <= record.size_bytes <= 2 * full_bytes
        and rows_left >= (1 - output.garbage_max) * record.messages
    )


def _index_of(segment: InputSegment) -> KeyIndexBuilder:
    index = KeyIndexBuilder()
    with SegmentMap(segment) as mapped:
        for block in mapped.blocks():
            for at, offset in enumerate(block.offsets.tolist()):
                if index.is_given_up:
                    return index
                entry = PlacedEntry(header_at(block, at), offset, 0)
                mapped.value_section(entry)  # verifies it
                keys = mapped.key_section(entry)
                index.add(entry.header, keys, partial(mapped.value_section, entry))
    return index
