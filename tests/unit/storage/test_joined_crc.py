"""The joined checksum of two pieces is that of their concatenation, for all lengths."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.storage.entry import crc32c
from ledgerfold.storage.joined_crc import LENGTHS_MAX, JoinedCrcs


@given(st.binary(max_size=300), st.lists(st.binary(max_size=40), min_size=1, max_size=20))
def test_the_joined_checksum_is_that_of_both_parts(first: bytes, seconds: list[bytes]) -> None:
    crcs = JoinedCrcs()
    for second in seconds * 3:
        assert crcs.joined(crc32c(first), second, crc32c(second)) == crc32c(first + second)


def test_a_repeated_length_uses_the_cached_value() -> None:
    crcs, second = JoinedCrcs(), bytes(100_000)
    told = crc32c(second)
    joined = [crcs.joined(5, second, told) for _ in range(2)]
    # Other bytes under the same checksum tell that it is not looked at them.
    assert crcs.joined(5, b"x" * 100_000, told) == joined[0] == joined[1]


def test_cached_values_are_bounded() -> None:
    crcs = JoinedCrcs()
    for length in range(2 * LENGTHS_MAX):
        for _ in range(2):
            crcs.joined(1, bytes(length), crc32c(bytes(length)))
    assert len(crcs._tables) == LENGTHS_MAX
