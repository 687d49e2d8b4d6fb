"""The selection of raw ledgers to trim. Pure.

Rules (Pulsar: ManagedLedgerImpl.internalTrimLedgers; docs/PROFILES.md, rule 15.4):

1. Only closed ledgers, oldest first, up to the first that must stay.
2. Every durable cursor, and the compaction horizon if compaction is on, has passed its last entry.
   If there is neither, the profile decides whether all stay or all may be deleted.
3. Retention allows it: passed ledgers stay until they are older than the time limit or exceed the
   size limit. -1 is no limit; 0 and 0 keep nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from ledgerfold.broker.log.ledger_record import size_bytes
from ledgerfold.broker.log.raw_ledgers import RawLedgers
from ledgerfold.storage.entry import LATEST, Position
from ledgerfold.v1.records_pb2 import LedgerRecord, Policies


def ledgers_to_trim(
    ledgers: RawLedgers,
    passed: Sequence[Position],
    policies: Policies,
    now_ms: int,
    *,
    without_cursor: bool = False,
    through: Position = LATEST,
    held: Iterable[int] = (),
) -> list[int]:
    """Returns the ids of the ledgers to delete. `passed`: the positions of cursors and the horizon.

    `without_cursor`: also if no cursor exists. Ledgers with an entry after `through` stay; so do
    the `held` ledgers, and all ledgers after the first of them. The cost depends on the number of
    deleted ledgers, not of kept ones.
    """
    if not passed and not without_cursor:
        return []
    deletable_max = ledgers.passed_by(min((*passed, through)))
    deletable_max = min(
        [deletable_max, *(ledgers.count_before(each) for each in held if each in ledgers)]
    )
    # The newest one always stays.
    deletable_max = max(0, min(deletable_max, len(ledgers.ids) - 1))
    kept_bytes = ledgers.bytes_of_oldest(deletable_max)
    deletable = []
    for record in islice(ledgers.closed(), deletable_max):
        if not _is_deletable(record, kept_bytes, policies, now_ms):
            break
        deletable.append(record.ledger_id)
        kept_bytes -= size_bytes(record)
    return deletable


def has_limit(policies: Policies) -> bool:
    """Returns whether ledgers are deleted by a limit, not as soon as all cursors passed them."""
    return policies.retention_ms > 0 or policies.retention_bytes > 0


def _is_deletable(record: LedgerRecord, kept_bytes: int, policies: Policies, now_ms: int) -> bool:
    age_limit_ms, size_limit = policies.retention_ms, policies.retention_bytes
    too_old = age_limit_ms >= 0 and now_ms - record.closed_ms >= age_limit_ms
    too_much = size_limit >= 0 and kept_bytes > size_limit
    # A limit of 0 with a positive one would delete everything at once: the positive limit wins.
    if age_limit_ms == 0 and size_limit > 0:
        return too_much
    if size_limit == 0 and age_limit_ms > 0:
        return too_old
    return too_old or too_much
