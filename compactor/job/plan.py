"""A validated compaction plan, split into tasks. Pure.

The broker's CompactionPlan names sealed segments in order of id. Each gets an **ordinal**, its
index in that list; with a row number it forms the position of a message within the run, an integer
in order of id. Tasks take contiguous runs of segments, so that the output of each task precedes
that of the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from ledgerfold.compactor.job.plan_check import check_plan
from ledgerfold.compactor.strategies.registry import AnyStrategy, strategy_of
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.compactor.strategies.strategy import Strategy
from ledgerfold.compactor.user_strategies.own import Own
from ledgerfold.storage.entry import EARLIEST, Position, position_of
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import Position as PositionRecord
from ledgerfold.v1.records_pb2 import SegmentRecord

# The approximate bytes of key sections that one task reads, and of segments that one task copies.
SCAN_TASK_KEY_BYTES = 24 * 1024 * 1024
COPY_TASK_BYTES = 128 * 1024 * 1024
# The approximate maximum that one merge task holds in memory, plus eight bytes per message for each
# column of the strategy's fragments.
BUCKET_KEY_BYTES = 32 * 1024 * 1024
# For a message strategy, which gets whole messages: the bytes that a scan task reads of segments,
# and the input of a merge task. (merge_messages.py describes how much of it is in memory.)
MESSAGE_TASK_BYTES = 64 * 1024 * 1024
BUCKET_BYTES = 32 * 1024 * 1024
BUCKET_MESSAGES = 250_000
# A plan within all three limits is one task without a shuffle, which would cost more than the work.
SOLO_KEY_BYTES = 8 * 1024 * 1024
SOLO_BYTES = 64 * 1024 * 1024
SOLO_ENTRIES = 20_000
# Old messages are looked up if at most this share of the keys is scanned, and at most this many
# bytes of them: each merge task reads the entries that may hold its keys.
SCANNED_SHARE_MAX = 0.1
SCANNED_KEY_BYTES_MAX = 2 * BUCKET_KEY_BYTES
# The work of phase two on a segment that is shared, not copied: this share of copying it.
SHARED_WORK = 1 / 16
# The number of neighbouring small segments that are merged.
MERGED_COUNT = 8


@dataclass(frozen=True)
class InputSegment:
    """A segment to read. Its entries p with after < p <= up_to belong to the range."""

    ordinal: int
    path: str
    record: SegmentRecord
    is_compacted: bool
    after: Position
    up_to: Position
    # The number of entries in the segments before it: numbers the files that begin in it.
    entries_before: int
    # Whether it is looked up, not scanned; and if so, whether it is rewritten although unchanged,
    # to merge small segments.
    is_indexed: bool = False
    is_merged: bool = False
    # Whether an empty message that does not state its size counts as a value.
    unsized_empties_survive: bool = False


@dataclass(frozen=True)
class Output:
    """The destination of a run."""

    ledgers_dir: str
    ledger_id: int
    segment_bytes_max: int
    # Whether segments get key indexes.
    is_indexed: bool = False
    # The dead part of an old segment above which it is rewritten.
    garbage_max: float = 0

    @property
    def folder(self) -> Path:
        return Path(self.ledgers_dir) / str(self.ledger_id)


@dataclass(frozen=True)
class TaskPlan:
    """The tasks of a run. Keys are assigned to buckets by their hash."""

    scans: tuple[tuple[InputSegment, ...], ...]
    buckets: int
    copies: tuple[tuple[InputSegment, ...], ...]
    strategy: AnyStrategy
    retain_null_key: bool
    output: Output
    renumber_batches: bool = False
    # The segments whose messages are looked up.
    indexed: tuple[InputSegment, ...] = ()
    # A point at which the process of a task is to kill itself.
    crash_at: str = ""

    @property
    def segments(self) -> tuple[InputSegment, ...]:
        return tuple(chain.from_iterable(self.copies))


def _before(record: PositionRecord) -> Position:
    """Returns the position before the first position that is possible."""
    return Position(record.ledger_id, record.entry_id - 1)


def input_segments(
    plan: CompactionPlan, check: Callable[[CompactionPlan], None] = check_plan
) -> tuple[InputSegment, ...]:
    """Returns the plan's segments with their ranges. Raises InvalidRequest if they are
    inconsistent.
    """
    check(plan)
    previous = position_of(plan.horizon_previous) if plan.compacted_segments else EARLIEST
    if plan.HasField("horizon_previous"):
        previous = position_of(plan.horizon_previous)
    horizon = position_of(plan.horizon)
    floor = _before(plan.retention_floor) if plan.HasField("retention_floor") else EARLIEST
    segments: list[InputSegment] = []
    entries = 0
    for ordinal, record in enumerate(plan.segments):
        is_compacted = ordinal < plan.compacted_segments
        segments.append(
            InputSegment(
                ordinal=ordinal,
                path=str(Path(plan.ledgers_dir) / record.path),
                record=record,
                is_compacted=is_compacted,
                after=floor if is_compacted else previous,
                up_to=previous if is_compacted else horizon,
                entries_before=entries,
                unsized_empties_survive=plan.unsized_empties_survive,
            )
        )
        entries += record.entries
    return tuple(segments)


def cut(plan: CompactionPlan, cores: int, own: Own | None = None) -> TaskPlan:
    """Splits a plan into tasks for `cores` cores. Raises InvalidRequest, UnknownStrategy.

    `own`: the plan's strategy, if it is user-defined.
    """
    strategy = strategy_of(plan) if own is None else own.strategy
    segments = with_indexed(input_segments(plan), plan, strategy)
    indexed = tuple(segment for segment in segments if segment.is_indexed)
    tasks = cut_segments(segments, cores, (strategy,))
    is_indexed = tasks.is_large and is_incremental(strategy)
    if indexed:
        tasks, is_indexed = cut_incremental(segments, cores, plan.segment_garbage_max), True
    return TaskPlan(
        tasks.scans,
        tasks.buckets,
        tasks.copies,
        strategy,
        plan.retain_null_key,
        Output(
            plan.ledgers_dir,
            plan.ledger_id,
            plan.segment_bytes_max,
            is_indexed,
            plan.segment_garbage_max,
        ),
        renumber_batches=plan.renumber_batches and isinstance(strategy, MessageStrategy),
        indexed=indexed,
        crash_at=plan.crash_at,
    )


class Cut(NamedTuple):
    """The segments that each task reads: scans, buckets, copies (TaskPlan)."""

    scans: tuple[tuple[InputSegment, ...], ...]
    buckets: int
    copies: tuple[tuple[InputSegment, ...], ...]

    @property
    def is_large(self) -> bool:
        """Returns whether it has several tasks."""
        return len(self.scans) > 1 or self.buckets > 1 or len(self.copies) > 1


def is_incremental(strategy: AnyStrategy) -> bool:
    """Returns whether messages without a newer one of their key survive again."""
    return isinstance(strategy, Strategy) and strategy.is_incremental


def with_indexed(
    segments: tuple[InputSegment, ...], plan: CompactionPlan, strategy: AnyStrategy
) -> tuple[InputSegment, ...]:
    """Marks the segments to look up: none if a full run may keep less, or costs less."""
    if not (plan.keeps_segments and is_incremental(strategy)):
        return segments
    marked = [
        replace(segment, is_indexed=True)
        if segment.is_compacted
        and segment.record.HasField("key_index")
        and segment.after < position_of(segment.record.first)
        else segment
        for segment in segments
    ]
    scanned = sum(key_bytes_of(each) for each in marked if not each.is_indexed)
    share = SCANNED_SHARE_MAX * sum(map(key_bytes_of, segments))
    if scanned > min(share, SCANNED_KEY_BYTES_MAX):
        return segments
    merged = to_merge([each.record.size_bytes for each in marked], plan.segment_bytes_max)
    return tuple(
        replace(each, is_merged=each.is_indexed and at in merged) for at, each in enumerate(marked)
    )


def to_merge(sizes: Sequence[int], bytes_max: int) -> set[int]:
    """Returns which segments, of these sizes in bytes, are merged into one.

    Merges MERGED_COUNT neighbours that fit into one segment, if none is larger than the others
    together. So a byte is merged a logarithmic number of times, and few small segments remain
    between two large ones.

        >>> sorted(to_merge([900, 1, 1, 1, 1, 1, 1, 1, 1], 1000))
        [1, 2, 3, 4, 5, 6, 7, 8]
    """
    merged: set[int] = set()
    at = 0
    while at + MERGED_COUNT <= len(sizes):
        window = sizes[at : at + MERGED_COUNT]
        if sum(window) <= bytes_max and 2 * max(window) <= sum(window):
            merged.update(range(at, at + MERGED_COUNT))
            at += MERGED_COUNT
        else:
            at += 1
    return merged


def cut_incremental(segments: tuple[InputSegment, ...], cores: int, garbage_max: float) -> Cut:
    """Splits a run that looks up indexed segments."""
    scanned = tuple(each for each in segments if not each.is_indexed)
    key_bytes = sum(map(key_bytes_of, scanned))
    tasks = 1 if key_bytes <= SOLO_KEY_BYTES else task_count(key_bytes, SCAN_TASK_KEY_BYTES, cores)
    buckets = 1 if tasks == 1 else task_count(key_bytes, BUCKET_KEY_BYTES, cores)
    messages = sum(each.record.messages for each in scanned)
    work = partial(copy_bytes_of, messages=messages, garbage_max=garbage_max)
    # Each new message may change one segment.
    changed = sum(sorted(map(work, segments))[-messages:]) if messages else 0
    copies = 1 if changed <= COPY_TASK_BYTES else task_count(changed, COPY_TASK_BYTES, cores)
    return Cut(
        contiguous(scanned, tasks, key_bytes_of) or ((),),
        buckets,
        contiguous(segments, copies, work),
    )


def copy_bytes_of(segment: InputSegment, messages: int, garbage_max: float) -> int:
    """Returns the bytes that phase two copies of a segment at most; for one that is shared, the
    bytes whose copy takes as long.

    `messages`: the number of new messages. If each removes one of this segment, of average size,
    and no more than `garbage_max` of it is dead then, it is shared.
    """
    record = segment.record
    is_shared = (
        segment.is_indexed
        and not segment.is_merged
        and record.dead.messages + messages <= garbage_max * record.messages
    )
    return int(record.size_bytes * SHARED_WORK) if is_shared else record.size_bytes


def cut_segments(
    segments: tuple[InputSegment, ...], cores: int, strategies: Sequence[AnyStrategy] = ()
) -> Cut:
    """Splits segments into tasks for `cores` cores that serve all `strategies` at once.

    Without strategies, splits them as for one over columns.
    """
    by_message = [each for each in strategies if isinstance(each, MessageStrategy)]
    if segments and _is_one_task(segments, by_message):
        return Cut((segments,), 1, (segments,))
    size_bytes = sum(map(size_bytes_of, segments))
    return Cut(
        *_phase_one(segments, by_message, cores),
        contiguous(segments, task_count(size_bytes, COPY_TASK_BYTES, cores), size_bytes_of),
    )


def _is_one_task(segments: Sequence[InputSegment], by_message: Sequence[MessageStrategy]) -> bool:
    """Returns whether the input is small, or indivisible."""
    records = [segment.record for segment in segments]
    key_bytes = sum(record.key_bytes for record in records)
    if by_message:
        if sum(record.messages for record in records) > BUCKET_MESSAGES:
            return False
    elif len(segments) == 1 and key_bytes <= BUCKET_KEY_BYTES:
        return True
    return (
        key_bytes <= SOLO_KEY_BYTES
        and sum(record.size_bytes for record in records) <= SOLO_BYTES
        and sum(record.entries for record in records) <= SOLO_ENTRIES
    )


def _phase_one(
    segments: Sequence[InputSegment], by_message: Sequence[MessageStrategy], cores: int
) -> tuple[tuple[tuple[InputSegment, ...], ...], int]:
    """Returns the runs of segments to scan, and the number of buckets."""
    read, task_bytes, bucket_bytes = key_bytes_of, SCAN_TASK_KEY_BYTES, BUCKET_KEY_BYTES
    messages = 0
    if by_message:
        messages = sum(segment.record.messages for segment in segments)
        if any(each.reads_value_sections for each in by_message):
            read, task_bytes, bucket_bytes = size_bytes_of, MESSAGE_TASK_BYTES, BUCKET_BYTES
    total = sum(map(read, segments))
    buckets = max(
        task_count(total, bucket_bytes, cores), task_count(messages, BUCKET_MESSAGES, cores)
    )
    return contiguous(segments, task_count(total, task_bytes, cores), read), buckets


def key_bytes_of(segment: InputSegment) -> int:
    return segment.record.key_bytes


def size_bytes_of(segment: InputSegment) -> int:
    return segment.record.size_bytes


def task_count(total: int, per_task: int, cores: int) -> int:
    """Returns the number of tasks of size `per_task`, rounded up to a multiple of the cores."""
    rounds = -(-total // (per_task * cores))
    return cores * max(rounds, 1)


def contiguous(
    segments: Sequence[InputSegment], tasks: int, weight: Callable[[InputSegment], int]
) -> tuple[tuple[InputSegment, ...], ...]:
    """Splits segments into at most `tasks` contiguous, non-empty runs of about equal weight."""
    total = sum(weight(segment) for segment in segments) or 1
    runs: list[list[InputSegment]] = [[] for _ in range(tasks)]
    before = 0
    for segment in segments:
        middle = before + weight(segment) // 2
        runs[min(middle * tasks // total, tasks - 1)].append(segment)
        before += weight(segment)
    return tuple(tuple(run) for run in runs if run)
