"""Entries that are built together are those that are built one by one."""

from __future__ import annotations

import random

import pytest

from ledgerfold.storage.entry_check import check_entry
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.plain_entries import plain_entries

KEYS: list[str | bytes] = [
    "",
    "a",
    "k\u00e4y",
    "\u9375",
    "no-text-\udcff",
    b"bytes",
    "z" * 127,
    "z" * 128,
    "q" * 20_000,
]
SIZES = [0, 1, 100, 127, 128, 16_383, 16_384, 20_000]


@pytest.mark.parametrize("producer", ["", "p", "n" * 200])
def test_entries_built_together_equal_those_of_the_builder(producer: str) -> None:
    """Tests every size at which a length takes one byte more."""
    chance = random.Random(11)
    keys = [chance.choice(KEYS) for _ in range(300)]
    values = [b"v" * chance.choice(SIZES) for _ in keys]
    built = plain_entries(keys, values, 5, 1_700_000_000_000, producer)
    for number, (entry, key, value) in enumerate(zip(built, keys, values, strict=True)):
        builder = NativeBatchBuilder(producer)
        raw = key if isinstance(key, bytes) else key.encode(errors="surrogateescape")
        builder.add(value, raw)
        assert entry == builder.build(
            sequence_id=5 + number, publish_time_ms=1_700_000_000_000, plain=True
        )
        assert check_entry(entry).sequence_id == 5 + number


def test_no_messages_give_no_entries() -> None:
    assert plain_entries([], [], 0, 1, "p") == []
