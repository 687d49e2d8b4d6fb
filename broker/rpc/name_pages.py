"""Pages of a list of names, for clients that ask for them.

A page has at most PAGE_BYTES, and begins after the last name of the previous page, so that topics
that are created or deleted in between do not shift it.

>>> page_of(["b", "a", "c"], in_pages=True, after="a")
(['b', 'c'], False)
>>> page_of(["b", "a"], in_pages=False)
(['a', 'b'], False)
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable

PAGE_BYTES = 8 * 1024 * 1024
# Of a name in the answer, besides its text.
_NAME_BYTES = 4


def page_of(names: Iterable[str], *, in_pages: bool, after: str = "") -> tuple[list[str], bool]:
    """Returns a page of the names in order, and whether there are more; or all of them."""
    ordered = sorted(names)
    if not in_pages:
        return ordered, False
    start, size_bytes = bisect_right(ordered, after), 0
    for at in range(start, len(ordered)):
        size_bytes += len(ordered[at].encode()) + _NAME_BYTES
        if size_bytes > PAGE_BYTES:
            return ordered[start:at], True
    return ordered[start:], False
