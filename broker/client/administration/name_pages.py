"""Lists of names and runs, from their pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ledgerfold.v1.admin_pb2 import (
    ListPartitionedTopicsRequest,
    ListRunsRequest,
    ListTopicsRequest,
    RunPlace,
)
from ledgerfold.v1.records_pb2 import RunRecord


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


def all_runs(call: Callable[[Any], Any], request: ListRunsRequest) -> list[RunRecord]:
    """Returns the runs of all pages, newest first, at most `request.limit`."""
    request.in_pages = True
    page = call(request)
    runs = list[RunRecord](page.runs)
    while page.has_more:
        last = runs[-1]
        place = RunPlace(topic=last.topic, number=last.number, queued_ms=last.queued_ms)
        request.after.CopyFrom(place)
        if request.limit:
            request.limit -= len(page.runs)
        page = call(request)
        runs += page.runs
    return runs
