"""The limits of settings and counts in the formats, beyond the widths of single fields.

docs/FORMATS.md, "Limits", lists all limits, with the reason for each. A number is checked before it
is written. A number above its limit raises LimitExceeded, which says what to do.
"""

from __future__ import annotations

from ledgerfold.storage.errors import LimitExceeded

# A segment file: below 2**31 bytes with its last entry or group, so that the columns of one file
# fit into Arrow's arrays, and the rows of one task into a row of Spark's shuffle.
SEGMENT_BYTES_MAX = 1 << 30
# Of a raw ledger, whose record is rewritten with each segment: a ledger with this many segments
# rolls.
LEDGER_SEGMENTS_MAX = 10_000
# The header of an entry counts durable entries in 32 bits.
LEDGER_ENTRIES_MAX = 2**32 - 1
# The segments that a run reads, and those that it writes: a position has 20 bits for the segment,
# and the plan is one message of at most 256 MiB, with at most 200 bytes for each.
RUN_SEGMENTS_MAX = 1 << 20
# The numbers of a topic's producers, which are not used again.
PRODUCERS_MAX = 2**31 - 1
# Kafka producer ids that are allocated. Those of imported logs may be larger, and skip no others.
PRODUCER_IDS_MAX = 2**62
# The value of a metadata record: the record of a ledger with RUN_SEGMENTS_MAX segments is smaller.
RECORD_BYTES_MAX = 256 * 1024 * 1024
# A ledger's label, which has that record in base64.
LABEL_BYTES_MAX = 384 * 1024 * 1024
# Strings that Arrow holds in one column: their offsets have 31 bits.
COLUMN_BYTES_MAX = 2**31 - 2


def check_run_segments(count: int) -> None:
    """Raises LimitExceeded if a run reads, or has written, too many segments."""
    if count > RUN_SEGMENTS_MAX:
        raise LimitExceeded(
            "Segments of a compaction",
            count,
            RUN_SEGMENTS_MAX,
            "Set a retention that deletes old ledgers, or publish to a partitioned topic. For "
            "fewer segments, restart the broker with a larger --segment-size and --ledger-entries.",
        )
