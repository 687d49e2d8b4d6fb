"""The validation of a plan, before a run touches anything.

A plan names a folder that the run creates, fills and, on failure, removes. So it is not trusted:
names must be those that a broker would write (storage/names.py), and the output folder must not be
one of the input folders.
"""

from __future__ import annotations

import os.path
from itertools import pairwise

from ledgerfold.compactor.positions import ROW_BITS
from ledgerfold.storage import crash_points
from ledgerfold.storage.entry import position_of
from ledgerfold.storage.errors import InvalidRequest, LimitExceeded
from ledgerfold.storage.limits import SEGMENT_BYTES_MAX, check_run_segments
from ledgerfold.storage.names import LEDGERS, parse_ledger_dir, parse_segment_name, segment_path
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import SegmentRecord


def check_plan(plan: CompactionPlan) -> None:
    """Raises InvalidRequest if the plan is invalid."""
    if plan.ledger_id <= 0:
        raise InvalidRequest(f"The plan names ledger {plan.ledger_id}; ids begin with 1.")
    if plan.crash_at not in ("", *crash_points.POINTS):
        raise InvalidRequest(f"The plan names {plan.crash_at[:200]!r}, which is not a crash point.")
    check_input(plan)
    if plan.segment_bytes_max > SEGMENT_BYTES_MAX:
        raise LimitExceeded(
            "The plan's size of segments",
            plan.segment_bytes_max,
            SEGMENT_BYTES_MAX,
            "Start the broker with a smaller --segment-size.",
        )
    for record in plan.segments:
        if parse_ledger_dir(record.path.partition("/")[0]) == plan.ledger_id:
            raise InvalidRequest(f"The plan reads {record.path} from its own output folder.")
        if not record.sealed:
            raise InvalidRequest(f"Segment {record.path} of the plan is not sealed.")


def check_input(plan: CompactionPlan) -> None:
    """Raises InvalidRequest if the input of a plan is invalid."""
    check_folder(plan.ledgers_dir)
    check_run_segments(len(plan.segments))
    if not 0 <= plan.compacted_segments <= len(plan.segments):
        raise InvalidRequest(
            f"The plan has {len(plan.segments)} segments, {plan.compacted_segments} of them "
            "compacted."
        )
    for record in plan.segments:
        check_name(record)
        check_rows(record)
    for number, (before, after) in enumerate(pairwise(plan.segments), 1):
        # A raw segment may begin below the horizon: only its entries above it belong to the run.
        is_boundary = number == plan.compacted_segments
        if position_of(before.last) >= position_of(after.last if is_boundary else after.first):
            raise InvalidRequest(
                f"The plan's segments {before.path} and {after.path} are not in order of id."
            )


def check_folder(path: str) -> None:
    is_plain = os.path.isabs(path) and os.path.normpath(path) == path
    if not is_plain or os.path.basename(path) != LEDGERS:
        raise InvalidRequest(
            f"The ledgers folder {path!r} must be an absolute path that ends with {LEDGERS!r}."
        )


def check_name(record: SegmentRecord) -> None:
    folder, _, name = record.path.partition("/")
    ledger_id, number = parse_ledger_dir(folder), parse_segment_name(name)
    if ledger_id is None or number is None or record.path != segment_path(ledger_id, number):
        raise InvalidRequest(f"The plan names {record.path!r}, which is not a segment.")


def check_rows(record: SegmentRecord) -> None:
    """Raises LimitExceeded if a position cannot number the messages of a segment."""
    if record.messages > 1 << ROW_BITS:
        raise LimitExceeded(
            f"Messages in segment {record.path}",
            record.messages,
            1 << ROW_BITS,
            "No file can have so many: run `ledgerfold verify`.",
        )
