"""Message ids in text form: allowed numbers."""

from __future__ import annotations

import pytest

from ledgerfold.storage.message_ids import id_text, parsed_id

INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1


def test_the_largest_id_is_parsed() -> None:
    """Only errors had been tested at these limits, and no test was in this room."""
    largest = (INT64_MAX, INT64_MAX, INT32_MAX, INT32_MAX)
    assert parsed_id(id_text(*largest)) == largest


@pytest.mark.parametrize("at", range(4))
def test_a_number_out_of_range_is_no_id(at: int) -> None:
    numbers = [0, 0, 0, 0]
    numbers[at] = (INT64_MAX if at < 2 else INT32_MAX) + 1
    assert parsed_id(":".join(map(str, numbers))) is None
