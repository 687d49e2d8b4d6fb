"""Lists of names, from their pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledgerfold.v1.admin_pb2 import ListPartitionedTopicsRequest, ListTopicsRequest


def all_names(
    call: Callable[[Any], Any], request: ListTopicsRequest | ListPartitionedTopicsRequest
) -> list[str]:
    """Returns the names of all pages, in order."""
    request.in_pages = True
    page = call(request)
    names = list[str](page.topics)
    while page.has_more:
        request.after = names[-1]
        page = call(request)
        names += page.topics
    return names
