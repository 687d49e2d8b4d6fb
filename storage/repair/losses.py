"""The entries that a repair gives up, and their number of messages, if known. Pure.

The number is known for an entry with a good header, and for a sealed segment as a whole: its record
has the total, from which the messages of good entries are subtracted.

    >>> Loss("4 to 6", None).entries
    '4 to 6'
"""

from __future__ import annotations

from typing import NamedTuple

from ledgerfold.storage.repair.ledger_check import LedgerCheck
from ledgerfold.storage.segment_findings import SegmentCheck


class Loss(NamedTuple):
    """A loss. `entries`: ids for people. `messages`: None if unknown."""

    entries: str
    messages: int | None


def new_losses(check: LedgerCheck) -> list[Loss]:
    """Returns a raw ledger's losses that are not recorded yet."""
    recorded = {(each.first_entry_id, each.last_entry_id) for each in check.record.lost}
    return [
        Loss(_range(first, last), _messages(check, first, last))
        for first, last in check.lost_ranges()
        if (first, last) not in recorded
    ]


def messages_after(check: LedgerCheck) -> int:
    """Returns the least number of messages lost after a raw ledger's last good entry, one per
    entry.
    """
    end = max((each.last.entry_id for each in check.extents()), default=-1)
    following = [(first, last) for first, last in check.lost_ranges() if first > end]
    return sum(
        max(last - first + 1, _messages(check, first, last) or 0) for first, last in following
    )


def _range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _messages(check: LedgerCheck, first: int, last: int) -> int | None:
    known = {
        damage.entry.entry_id: damage.messages
        for each in check.segments
        for damage in each.damages
        if damage.messages is not None and first <= damage.entry.entry_id <= last
    }
    if len(known) == last - first + 1:
        return sum(known.values())
    touched = [each for each in check.segments if _touches(each, first, last)]
    covered = sum(each.segment.last.entry_id - each.segment.first.entry_id + 1 for each in touched)
    good = sum(extent.record.entries for each in touched for extent in each.extents)
    if not touched or covered - good != last - first + 1:
        # Open, never recorded, or lost in several places at once.
        return None
    return sum(map(_missing, touched))


def _touches(check: SegmentCheck, first: int, last: int) -> bool:
    segment = check.segment
    if not segment.sealed or not segment.entries:
        return False
    return segment.first.entry_id <= last and segment.last.entry_id >= first


def _missing(check: SegmentCheck) -> int:
    return check.segment.messages - check.good_messages


def compacted_losses(check: LedgerCheck) -> list[Loss]:
    """Returns a compacted ledger's losses by segment, as ranges between remaining entries."""
    losses = []
    for each in check.segments:
        segment, good = each.segment, sum(extent.record.entries for extent in each.extents)
        if not each.is_whole and segment.entries != good:
            ids = (segment.first, segment.last)
            first, last = (f"{at.ledger_id}:{at.entry_id}" for at in ids)
            count = segment.entries - good
            losses.append(Loss(f"{count} between {first} and {last}", _missing(each)))
    return losses
