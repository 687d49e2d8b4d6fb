"""docs/SCALING.md: the counts in its table are those of the code."""

from __future__ import annotations

import re

import pytest

from ledgerfold.compactor.job.plan import InputSegment, cut_segments
from ledgerfold.storage.entry import EARLIEST, LATEST
from ledgerfold.v1.records_pb2 import SegmentRecord
from tests.tidy import ROOT

PAGE = (ROOT / "docs" / "SCALING.md").read_text()
SEGMENT_BYTES = 64 * 1024 * 1024
ROWS = re.findall(r"^\| (\d+) ([GT])B \| (.*) \|$", PAGE, re.MULTILINE)


def numbers(cells: str) -> list[str]:
    return [each.strip() for each in cells.split("|")]


@pytest.mark.parametrize(("size", "unit", "cells"), ROWS, ids=lambda value: str(value)[:6])
def test_the_page_states_the_counts_of_a_run(size: str, unit: str, cells: str) -> None:
    """100 bytes a message, of which 25 are in the key section; two cores."""
    total = int(size) * {"G": 10**9, "T": 10**12}[unit]
    count = -(-total // SEGMENT_BYTES)
    record = SegmentRecord(
        size_bytes=total // count,
        key_bytes=total // 4 // count,
        messages=total // 100 // count,
        entries=700,
    )
    segments = tuple(
        InputSegment(number, "", record, False, EARLIEST, LATEST, 0) for number in range(count)
    )
    scans, buckets, copies = cut_segments(segments, 2)
    found = numbers(cells)
    assert found[1] == f"{count:,}"
    assert found[3] == f"{len(scans):,}"
    assert found[4] == f"{buckets:,}"
    assert found[6] == f"{len(copies):,}"


def test_the_page_has_counts() -> None:
    """A canary."""
    assert len(ROWS) == 5
