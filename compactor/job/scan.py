"""Phase one for a strategy over columns: tasks that scan segments, and tasks that merge buckets.

A scan task reads the headers and key sections of entries, verifies their checksums, and collects
columns until a chunk is full. It reads no value section, except those of batches of Pulsar's
clients, which have the keys. It then processes the chunk at once: it joins the columns into one
Arrow array (so that an entry costs a few appends, however few messages it has), and hashes and
numbers the keys. The strategy folds the history of each key into one fragment. Fragments are
assigned to buckets by key hash, one row for each bucket. If hardly any key of the chunk repeats,
each message is a fragment of its own.

    chunk: keys a b a c -> codes 0 1 0 2 -> fragments a..2 b..1 c..3 -> bucket 0: a c, bucket 1: b

A merge task joins its bucket's fragments into the surviving positions, by the same fold over
fragments instead of messages. The survivors then go to the copy tasks that own their segments.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ledgerfold.compactor.job.arrow_integers import to_arrow
from ledgerfold.compactor.job.distinct import HashedKeys, NumberedKeys
from ledgerfold.compactor.job.joined_keys import joined_keys
from ledgerfold.compactor.job.key_columns import KeyColumns, Place
from ledgerfold.compactor.job.lookup import old_fragments
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.job.rows import Counts, Dead, Failure, Fragments, Positions, Row
from ledgerfold.compactor.job.segment_map import SegmentMap
from ledgerfold.compactor.job.single_messages import single_messages
from ledgerfold.compactor.positions import ROW_BITS, Integers, grouped
from ledgerfold.compactor.strategies.strategy import FragmentColumns, Strategy

# Bounds of a chunk, and so of a task's memory: about 100 bytes per message and three times the
# keys; while event times are folded, about 80 bytes per message more.
CHUNK_ROWS_MAX = 2_000_000
CHUNK_KEY_BYTES_MAX = 64 * 1024 * 1024


def scan(
    segments: Sequence[InputSegment], strategy: Strategy, buckets: int, retain_null_key: bool
) -> Iterator[Row]:
    """Yields rows for the merge tasks: Fragments, Positions (retained messages without a key),
    Counts.

    Raises Corruption, MissingFile, IncompatibleFormat, DiskFailure.
    """
    columns = KeyColumns(strategy.reads_event_times)
    for segment in segments:
        with SegmentMap(segment) as mapped:
            for add in _additions(mapped, strategy):
                add(columns)
                if columns.rows >= CHUNK_ROWS_MAX or columns.key_bytes >= CHUNK_KEY_BYTES_MAX:
                    reduced = reduce_chunk(columns, strategy, buckets, retain_null_key)
                    # The chunk's only owner is the generator, which releases it early.
                    columns = KeyColumns(strategy.reads_event_times)
                    yield from reduced
    if columns.rows:
        reduced = reduce_chunk(columns, strategy, buckets, retain_null_key)
        del columns
        yield from reduced


def _additions(mapped: SegmentMap, strategy: Strategy) -> Iterator[Callable[[KeyColumns], object]]:
    """Yields functions that add the entries in the run's range."""
    row = 0
    for block in mapped.blocks():
        singles = None
        if not strategy.reads_event_times and mapped.has_all(block):
            singles = single_messages(mapped, block)
        if singles is None:
            for entry in mapped.in_block(block, row):
                yield partial(KeyColumns.add, segment=mapped, entry=entry)
        else:
            location = Place(mapped.path, int(block.keys_at[0]))
            size_bytes = block.end - int(block.offsets[0])
            position = mapped.first_position + row
            yield partial(
                KeyColumns.add_singles,
                location=location,
                position=position,
                section=singles,
                size_bytes=size_bytes,
            )
        row += int(block.column("message_count").sum())


def reduce_chunk(
    columns: KeyColumns, strategy: Strategy, buckets: int, retain_null_key: bool
) -> Iterator[Row]:
    """Yields the rows that represent these messages."""
    columns.check()
    facts, has_key, keys = columns.facts(), columns.has_key(), columns.keys()
    if len(passing := columns.passing()):
        yield 0, Positions.of(facts.positions[passing])
    is_live = columns.is_live()
    if is_live is not None:
        rows = np.flatnonzero(is_live)
        facts, has_key, keys = facts.where(rows), has_key[rows], keys.take(to_arrow(rows))
    keyless = len(has_key) - int(np.count_nonzero(has_key))
    if keyless:
        if retain_null_key:
            positions = facts.positions[~has_key]
            # Any bucket may have them; each gets a share.
            yield int(positions[0] >> ROW_BITS) % buckets, Positions.of(positions)
        keys = keys.take(to_arrow(np.flatnonzero(has_key)))
        facts = facts.where(has_key)
    counts = Counts(
        messages_in=columns.messages,
        entries_in=columns.entries,
        bytes_in=columns.size_bytes,
        tombstones=facts.tombstones,
        null_keys=keyless,
    )
    # They take as much memory as the fragments.
    del columns, has_key, is_live
    numbered = _numbered(keys, strategy)
    del keys
    folded = strategy.begin(numbered.codes, facts, len(numbered.keys))
    del facts
    if folded.codes is not None:
        numbered = numbered.take(folded.codes)
    removed_events = folded.removed_events + (0 if retain_null_key else keyless)
    fragments = in_buckets(numbered.keys, folded.fragments, buckets, numbered.hashes)
    del numbered, folded
    yield from fragments
    yield 0, counts._replace(removed_events=removed_events)


def _numbered(keys: pa.BinaryArray, strategy: Strategy) -> NumberedKeys:
    """Numbers keys; the rows, if hardly any key repeats."""
    hashed = HashedKeys.of(keys)
    # Grouping these would cost more than it saves: the merge groups them all. By event times, the
    # count of removed events would depend on it (compactor/strategies/event_time.py).
    if not strategy.reads_event_times and hashed.are_mostly_distinct:
        return NumberedKeys(keys, hashed.hashes, np.arange(len(keys)))
    return hashed.numbered()


def in_buckets(
    keys: pa.BinaryArray,
    fragments: FragmentColumns,
    buckets: int,
    hashes: NDArray[np.uint64],
) -> Iterator[tuple[int, Fragments]]:
    """Splits fragments by the hashes of their keys, which all tasks of a run compute alike."""
    if buckets == 1:
        yield 0, Fragments.of(keys, fragments)
        return
    order, ends = grouped(hashes % buckets, buckets)
    keys, fragments = keys.take(to_arrow(order)), tuple(each[order] for each in fragments)
    for bucket, (start, end) in enumerate(pairwise((0, *ends))):
        if start < end:
            part = tuple(each[start:end] for each in fragments)
            yield bucket, Fragments.of(keys.slice(start, end - start), part)


def merge(
    rows: Iterable[Row],
    strategy: Strategy,
    first_ordinals: Sequence[int],
    indexed: Sequence[InputSegment] = (),
) -> Iterator[Row]:
    """Yields rows for the copy tasks: Positions, in any order, and Counts.

    `first_ordinals`: the first segment of each copy task. `indexed`: the segments in which old
    messages of the keys are looked up; yields Dead rows for those that do not survive.
    """
    received = yield from _received(rows, first_ordinals)
    if received is not None:
        merged = _merged(*received, strategy, first_ordinals, indexed)
        # The keys are released once they are joined.
        del received
        yield from merged


def _received(
    rows: Iterable[Row], first_ordinals: Sequence[int]
) -> Generator[Row, None, tuple[Iterator[pa.BinaryArray], FragmentColumns] | None]:
    """Returns the keys and fragments of these rows, and passes others on; None without any."""
    keys: list[pa.BinaryArray] = []
    fragments: list[FragmentColumns] = []
    for row in rows:
        match row[1]:
            case Fragments() as content:
                key_column, fragment_columns = content.columns
                keys.append(key_column)
                fragments.append(fragment_columns)
            case Positions() as content:
                yield from to_copy_tasks(content.values, first_ordinals)
            case Failure() as content:
                for task in range(len(first_ordinals)):
                    yield task, content
                return None
            case Counts() as content:
                yield 0, content
    if not keys:
        return None
    return iter(keys), tuple(map(np.concatenate, zip(*fragments, strict=True)))


def _merged(
    keys: Iterator[pa.BinaryArray],
    fragments: FragmentColumns,
    strategy: Strategy,
    first_ordinals: Sequence[int],
    indexed: Sequence[InputSegment],
) -> Iterator[Row]:
    joined = joined_keys(keys)
    codes, count = joined.codes, len(joined)
    old = old_fragments(indexed, joined.keys, strategy) if indexed else None
    del joined
    if old is not None:
        codes = np.concatenate([codes, old.codes])
        fragments = tuple(map(np.concatenate, zip(fragments, old.fragments, strict=True)))
    folded = strategy.join(codes, fragments, count)
    positions = strategy.survivors(folded.fragments)
    counts = Counts(removed_events=folded.removed_events, keys=count)
    if old is not None:
        dead = np.setdiff1d(old.positions, positions, assume_unique=True)
        positions = np.setdiff1d(positions, old.positions, assume_unique=True)
        for task, row in to_copy_tasks(dead, first_ordinals):
            yield task, Dead(row)
        # The indexed segments' keys are counted as a whole.
        removed_events = counts.removed_events + old.removed_events
        counts = counts._replace(keys=count - old.keys, removed_events=removed_events)
    yield from to_copy_tasks(positions, first_ordinals)
    yield 0, counts


def to_copy_tasks(
    positions: Integers, first_ordinals: Sequence[int]
) -> Iterator[tuple[int, Positions]]:
    """Sends each of the `positions` to the task that copies it."""
    firsts = np.array(first_ordinals, np.int64) << ROW_BITS
    # A task refuses positions that are not of its segments.
    tasks = np.maximum(np.searchsorted(firsts, positions, "right") - 1, 0)
    order, ends = grouped(tasks, len(firsts))
    for task, (start, end) in enumerate(pairwise((0, *ends))):
        if start < end:
            yield task, Positions.of(positions[order[start:end]])
