"""Which raw ledgers may go. Pure.

Rules (Pulsar: ManagedLedgerImpl.internalTrimLedgers; docs/PROFILES.md, rule 15.4):
1. Only closed ledgers, oldest first, up to the first that must stay.
2. Every durable cursor, and the compaction horizon where compaction is on, has passed its last
   entry. Where there is neither, all stays or all may go, as the profile wants.
3. Retention allows it: what was passed stays until it is older than the time limit or the passed
   ledgers exceed the size limit. -1 is no limit; 0 and 0 keep nothing.
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
    upto: Position = LATEST,
    held: Iterable[int] = (),
) -> list[int]:
    """Ids of the ledgers to delete. `passed`: up to where each cursor and the horizon have gone.

    `without_cursor`: also where nothing holds them back because there is no cursor. What has an
    entry behind `upto` stays; so do the ledgers that are `held`, and all behind the first of them.
    However many stay, only those that go are looked at.
    """
    if not passed and not without_cursor:
        return []
    may_go = ledgers.passed_by(min((*passed, upto)))
    may_go = min([may_go, *(ledgers.count_before(each) for each in held if each in ledgers)])
    # The newest one always stays.
    may_go = max(0, min(may_go, len(ledgers.ids) - 1))
    kept_bytes = ledgers.bytes_of_oldest(may_go)
    deletable = []
    for record in islice(ledgers.closed(), may_go):
        if not _may_go(record, kept_bytes, policies, now_ms):
            break
        deletable.append(record.ledger_id)
        kept_bytes -= size_bytes(record)
    return deletable


def has_limit(policies: Policies) -> bool:
    """Whether a ledger that goes does so because a limit says so, not because all have read it."""
    return policies.retention_ms > 0 or policies.retention_bytes > 0


def _may_go(record: LedgerRecord, kept_bytes: int, policies: Policies, now_ms: int) -> bool:
    age_limit_ms, size_limit = policies.retention_ms, policies.retention_bytes
    too_old = age_limit_ms >= 0 and now_ms - record.closed_ms >= age_limit_ms
    too_much = size_limit >= 0 and kept_bytes > size_limit
    # A limit of 0 beside a positive one would delete everything at once: the positive one rules.
    if age_limit_ms == 0 and size_limit > 0:
        return too_much
    if size_limit == 0 and age_limit_ms > 0:
        return too_old
    return too_old or too_much
