"""Only names that the broker would give are taken for a segment or a ledger's folder."""

from __future__ import annotations

import pytest

from ledgerfold.storage.names import (
    parse_ledger_dir,
    parse_segment_name,
    segment_name,
    segment_number,
)


@pytest.mark.parametrize("number", [0, 7, 10**19, 2**63 - 1])
def test_a_segments_name_contains_its_number(number: int) -> None:
    assert parse_segment_name(segment_name(number)) == number
    assert segment_number(f"12/{segment_name(number)}") == number
    assert segment_number(f"12/{segment_name(number)}.kept") == number


@pytest.mark.parametrize(
    "name",
    [
        "7.log",
        "0000000000000000007.log",
        "000000000000000000007.log",
        "00000000000000000007",
        "00000000000000000007.index",
        "0000000000000000000x.log",
        "+0000000000000000007.log",
        ".log",
    ],
)
def test_invalid_names_are_no_segments(name: str) -> None:
    """Files with numbers of another length are not Ledgerfold's."""
    assert parse_segment_name(name) is None
    assert segment_number(f"12/{name}") is None


def test_a_ledgers_folder_is_a_number() -> None:
    assert parse_ledger_dir("12") == 12
    assert [parse_ledger_dir(name) for name in ("", "12x", "-1", "reserve")] == [None] * 4
