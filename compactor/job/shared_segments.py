"""Raw segments that the new ledger shares: linked, not copied, if enough of them survives.

A first run over keys that are all different would copy the whole topic. The file of a raw segment
has the format of a compacted one, and a sealed file never changes; so the new ledger gets a link to
it, a key index beside it, and a deletion vector if messages of it have died. Trimming the raw
ledger removes its own name of the file only.

A segment is shared if

* the output gets key indexes: later runs look the segment up, and hide what dies;
* all of it is in the run's range, and it has between half and twice the size of a full segment:
  smaller ones are copied, so that they become few; a raw one ends after it is full;
* no more of it is dead than a deletion vector may hide, and everything dead has a key: the next run
  counts the keys of a segment by its index and its dead messages;
* every entry can be opened (key_index.py).

All of it is read and verified, as if it were copied: a damaged segment fails the run.
"""

from __future__ import annotations

from functools import partial

from ledgerfold.compactor.job.dead_rows import new_vector
from ledgerfold.compactor.job.header_blocks import header_at
from ledgerfold.compactor.job.key_index import KeyIndexBuilder, complement
from ledgerfold.compactor.job.output import LedgerOutput
from ledgerfold.compactor.job.plan import InputSegment, Output, position_of
from ledgerfold.compactor.job.segment_map import PlacedEntry, SegmentMap
from ledgerfold.compactor.positions import Integers


def share_raw(
    segment: InputSegment, rows_left: Integers, ledger: LedgerOutput, output: Output
) -> bool:
    """Shares a raw segment with the new ledger; returns whether it could.

    Raises Corruption, MissingFile, DiskFailure.
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
