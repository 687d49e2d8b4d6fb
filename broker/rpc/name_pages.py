"""Pages of a list of names or runs, for clients that ask for them.

A page has at most PAGE_BYTES, and begins after the last item of the previous page, so that topics
and runs that are created or deleted in between do not shift it.

>>> page_of(["b", "a", "c"], in_pages=True, after="a")
(['b', 'c'], False)
>>> page_of(["b", "a"], in_pages=False)
(['a', 'b'], False)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import accumulate, islice, takewhile

from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.records_pb2 import RunRecord

PAGE_BYTES = 8 * 1024 * 1024
# Of an item in the answer, besides its text or fields: its tag and length.
_ITEM_BYTES = 4


def page_of(names: Iterable[str], *, in_pages: bool, after: str = "") -> tuple[list[str], bool]:
    """Returns a page of the names in order, and whether there are more; or all of them."""
    ordered = sorted(names)
    if not in_pages:
        return ordered, False
    start = bisect_right(ordered, after)
    sizes = (len(each.encode()) + _ITEM_BYTES for each in islice(ordered, start, None))
    end = start + _fitting(sizes)
    return ordered[start:end], end < len(ordered)


def page_of_runs(
    runs: Iterable[RunRecord], request: admin_pb2.ListRunsRequest
) -> admin_pb2.ListRunsResponse:
    """Returns a page of the runs, newest first; or all of them, if that is not requested."""
    ordered = sorted(runs, key=_place)
    if request.HasField("after"):
        ordered = ordered[bisect_right(ordered, _place(request.after), key=_place) :]
    found = ordered[: request.limit or None]
    if not request.in_pages:
        return admin_pb2.ListRunsResponse(runs=found)
    count = _fitting(each.ByteSize() + _ITEM_BYTES for each in found)
    return admin_pb2.ListRunsResponse(runs=found[:count], has_more=count < len(found))


def _place(run: RunRecord | admin_pb2.RunPlace) -> tuple[int, int, str]:
    return -run.queued_ms, -run.number, run.topic


def _fitting(sizes_bytes: Iterable[int]) -> int:
    """Returns how many items with these sizes fit on a page."""
    fits = takewhile(lambda total: total <= PAGE_BYTES, accumulate(sizes_bytes))
    return sum(1 for _ in fits)
