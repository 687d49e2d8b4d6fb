"""Entries of one message read together equal those read one by one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import Buffer, Compression, EntryFields, build_entry, stamp
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.plain_entries import PlainRows, plain_rows


def entry(value: bytes | None, key: bytes | None = b"k", **options: object) -> bytes:
    """Returns the entry as stored."""
    builder = NativeBatchBuilder("p")
    build = {name: options.pop(name) for name in ("compression", "plain") if name in options}
    builder.add(value, key, **options)  # type: ignore[arg-type]
    built = builder.build(
        sequence_id=1,
        publish_time_ms=2,
        **{"plain": True} | build,  # type: ignore[arg-type]
    )
    return stamp(built, 7, 8, 9, 10)


USUAL = [
    entry(b"v"),
    entry(b""),
    entry(None),
    entry(b"v", None),
    entry(b"v", b""),
    entry(b"v" * 20_000, b"k" * 300),
    entry(b"v", key_is_base64=True),
    entry(b"v", properties={"a": "b"}),
]
OTHERS = [
    entry(b"v", ordering_key=b"o"),
    entry(b"v", event_time_ms=5),
    entry(b"v" * 1000, compression=Compression.ZSTD),
    entry(b"v", plain=False),
    stamp(build_entry(b"", b"", EntryFields(message_count=1, flags=1)), 7, 8, 9, 10),
    stamp(build_entry(b"x" * 40, b"y" * 9, EntryFields(message_count=1, flags=1)), 7, 8, 9, 10),
    b"",
    b"short",
]


def grouped(entries: Sequence[Buffer], rows_max: int = 100) -> list[list[bytes] | Buffer]:
    return [
        each.entries if isinstance(each, PlainRows) else each
        for each in plain_rows(entries, rows_max)
    ]


def test_usual_entries_are_read_as_by_the_codec() -> None:
    """With and without key and value; other parts are left to the codec."""
    (rows,) = plain_rows(USUAL, 100)
    assert isinstance(rows, PlainRows)
    messages = [next(iter(decode(each).messages())) for each in USUAL]
    assert rows.keys == [each.key for each in messages]
    assert rows.values == [each.value for each in messages]
    assert rows.entries == USUAL
    assert rows.last == (7, 8)


@pytest.mark.parametrize("other", OTHERS, ids=range(len(OTHERS)))
def test_other_forms_are_skipped(other: bytes) -> None:
    """In their places between the others."""
    first, second = USUAL[:2]
    assert grouped([first, other, second]) == [[first], other, [second]]


@pytest.mark.parametrize("usual", USUAL[:6], ids=range(6))
def test_damage_is_left_to_the_caller(usual: bytes) -> None:
    """Whichever byte it is in: nothing is made of it."""
    step = max(1, len(usual) // 200)
    for at in range(0, len(usual), step):
        damaged = bytearray(usual)
        damaged[at] ^= 0x41
        assert grouped([bytes(damaged)]) == [bytes(damaged)]
    for size in range(0, len(usual), step):
        assert grouped([usual[:size]]) == [usual[:size]]
    assert grouped([usual + b"\0"]) == [usual + b"\0"]


def test_the_size_of_a_run_is_limited() -> None:
    first, second, third = USUAL[:3]
    assert grouped([first, second, third], rows_max=2) == [[first, second], [third]]
    assert grouped([]) == []
