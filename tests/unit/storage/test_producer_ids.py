"""Kafka producer ids: allocated once, and never those of other clusters' batches.

Until these tests every producer of a test had an id that the test chose, so none met an id that the
broker had assigned.
"""

from __future__ import annotations

import pytest

from ledgerfold.storage.errors import LimitExceeded
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.limits import PRODUCER_IDS_MAX
from ledgerfold.storage.metadata import MetadataStore


def test_an_id_is_not_allocated_again_after_a_start() -> None:
    pairs = MemoryKeyValue()
    assert [MetadataStore(pairs).producer_ids.allocate() for _ in range(3)] == [0, 1000, 2000]


@pytest.mark.parametrize(("skipped", "following"), [(0, 2), (7, 8), (998, 999), (999, 1000)])
def test_lower_ids_of_the_present_block_are_skipped(skipped: int, following: int) -> None:
    ids = MetadataStore(MemoryKeyValue()).producer_ids
    assert (ids.allocate(), ids.allocate()) == (0, 1)
    ids.skip(skipped)
    assert ids.allocate() == following


def test_a_skip_is_durable() -> None:
    pairs = MemoryKeyValue()
    MetadataStore(pairs).producer_ids.skip(4321)
    assert MetadataStore(pairs).producer_ids.allocate() == 5000


def test_only_ids_that_may_be_allocated_are_skipped() -> None:
    ids = MetadataStore(MemoryKeyValue()).producer_ids
    ids.skip(7)
    found = [ids.may_allocate(each) for each in (-1, 7, 8, PRODUCER_IDS_MAX - 1, PRODUCER_IDS_MAX)]
    assert found == [False, False, True, True, False]


def test_the_largest_ids_take_no_others_with_them() -> None:
    """They fit into no record of the next id."""
    ids = MetadataStore(MemoryKeyValue()).producer_ids
    for each in (PRODUCER_IDS_MAX, 2**63 - 1000, 2**63 - 1):
        ids.skip(each)
    assert ids.allocate() == 0


def test_the_last_ids_are_refused_when_they_are_used_up() -> None:
    ids = MetadataStore(MemoryKeyValue()).producer_ids
    ids.skip(PRODUCER_IDS_MAX - 1)
    with pytest.raises(LimitExceeded, match="Kafka producer ids"):
        ids.allocate()
