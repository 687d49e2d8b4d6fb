"""A check that a compaction's segments contain every entry of its range. Pure.

Everything at or below the horizon is always read from the compacted ledger, and passed raw ledgers
may be deleted: so an entry that a run did not see, for whatever reason, would be lost. The snapshot
checks before a run begins, the commit checks again before anything changes.

  >>> from ledgerfold.storage.entry import EARLIEST
  >>> segment = SegmentRecord(last={"ledger_id": 1, "entry_id": 4})
  >>> segment.first.ledger_id = 1
  >>> log = [LedgerRecord(ledger_id=1, segments=[segment])]
  >>> check_coverage(log, [segment], after=EARLIEST, through=Position(1, 4))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from ledgerfold.broker.log.ledger_record import last_entry
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import CompactionFailed
from ledgerfold.storage.segment import record_position
from ledgerfold.v1.records_pb2 import LedgerRecord, SegmentRecord


def check_coverage(
    ledgers: Iterable[LedgerRecord],
    segments: Sequence[SegmentRecord],
    *,
    after: Position,
    through: Position,
) -> None:
    """Raises CompactionFailed unless sealed `segments` contain each entry p, after < p <= through.

    Entries that a repair gave up (`lost` in the ledger's record) are not required.
    """
    for ledger in ledgers:
        last = last_entry(ledger)
        if last is None or last <= after or ledger.ledger_id > through.ledger_id:
            continue
        first = max(Position(ledger.ledger_id, 0), after.next)
        missing = _first_missing(first, min(last, through), _held(ledger, segments))
        if missing is not None:
            raise CompactionFailed(
                "snapshot",
                f"entry {missing} is in the range through {through}, but in no sealed segment of "
                "the run. Nothing was changed; compact again.",
            )


def _held(ledger: LedgerRecord, segments: Sequence[SegmentRecord]) -> list[tuple[int, int]]:
    """Returns the first and last entry id of each contained or given-up range, in order."""
    sealed = (
        (segment.first.entry_id, segment.last.entry_id)
        for segment in segments
        if segment.sealed and record_position(segment, last=True).ledger_id == ledger.ledger_id
    )
    lost = ((each.first_entry_id, each.last_entry_id) for each in ledger.lost)
    return sorted(chain(sealed, lost))


def _first_missing(
    first: Position, last: Position, held: Sequence[tuple[int, int]]
) -> Position | None:
    wanted = first.entry_id
    for low, high in held:
        if low > wanted:
            break
        wanted = max(wanted, high + 1)
    return None if wanted > last.entry_id else Position(first.ledger_id, wanted)
