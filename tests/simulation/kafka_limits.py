"""The oracle's own rule of retention of a Kafka log, computed from its files.

After Kafka's documentation of cleanup.policy, retention.bytes and retention.ms: whole segments are
deleted, from the oldest on; those below the log's start always; with `delete`, also those without
which the log still has retention.bytes, and those whose records are all older than retention.ms.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from typing import NamedTuple

from ledgerfold.storage.entry import HEADER_BYTES
from ledgerfold.storage.kafka.batch import read_batch_header
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaSegment
from tests.simulation.storedlog import Stored

WEEK_MS = 7 * 24 * 3_600_000
Entries = Callable[[int], Iterable[Stored]]


class Facts(NamedTuple):
    """The facts of a segment. `largest_ms`: the time of its youngest record, or of its file if no
    record has one; None: it is empty.
    """

    base_offset: int
    size_bytes: int
    largest_ms: int | None


class KafkaLimits(NamedTuple):
    """-1: none."""

    size_bytes: int
    age_ms: int

    @classmethod
    def of(cls, config: Mapping[str, str]) -> KafkaLimits:
        if "delete" not in config.get("cleanup.policy", "delete").split(","):
            return cls(-1, -1)
        return cls(
            int(config.get("retention.bytes", "-1")),
            int(config.get("retention.ms", str(WEEK_MS))),
        )


def facts_of(segment: KafkaSegment, entries: Entries) -> Facts:
    if segment.is_cleaned:
        figures = segment.figures
        largest = figures.largest_timestamp_ms
        return Facts(
            segment.base_offset,
            figures.size_bytes,
            largest if largest >= 0 else figures.modified_ms,
        )
    size_bytes, largest_ms = 0, None
    for ledger_id in segment.ledger_ids:
        for entry in entries(ledger_id):
            size_bytes += entry.header.size_bytes - HEADER_BYTES
            time_ms = read_batch_header(entry.data, entry.header.header_bytes).max_timestamp_ms
            largest_ms = time_ms if largest_ms is None else max(largest_ms, time_ms)
    return Facts(segment.base_offset, size_bytes, largest_ms)


def deletable(
    log: KafkaLog, entries: Entries, now_ms: int, config: Mapping[str, str], slack_bytes: int = 0
) -> int:
    """Returns how many of the oldest segments may be deleted. `slack_bytes`: bytes that may not be
    in files.

    Never the last one here: the caller decides whether it may be deleted, too.
    """
    segments = [facts_of(each, entries) for each in log.segments]
    limits, count = KafkaLimits.of(config), 0
    left = sum(each.size_bytes for each in segments) + slack_bytes
    for segment, behind in pairwise(segments):
        is_below = behind.base_offset <= log.log_start_offset
        is_much = 0 <= limits.size_bytes <= left - segment.size_bytes
        largest_ms = segment.largest_ms
        is_old = largest_ms is not None and 0 <= limits.age_ms < now_ms - largest_ms
        if not (is_below or is_much or is_old):
            break
        left -= segment.size_bytes
        count += 1
    return count
