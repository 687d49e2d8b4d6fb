"""The ready-made message strategies: what each keeps, also with ties and invalid input."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.strategies import HeaderVersion, KeepFirst, Newest, Numeric
from ledgerfold.strategies.catalogue import LISTED
from ledgerfold.strategies.ready_made import number
from tests.model.strategic_model import Said


def keeps_left(strategy: Any, previous: Said | None, current: Said) -> bool:
    answer = strategy.should_keep_left(previous, current)
    assert isinstance(answer, bool)
    return answer


@pytest.mark.parametrize(
    ("previous", "current", "left"),
    [
        (b"1", b"2", False),  # STR-01
        (b"2", b"1", True),  # STR-01
        (b"2", b"2", True),
        (b"2", b"2.0", True),
        (b"9", b"10", False),
        (b"-1.5", b" -1.4\n", False),
        (b"9007199254740993", b"9007199254740992", True),  # as floats they are the same
        (b"9" * 30, b"1e30", False),
        (None, b"1", False),
        (b"1", b"", False),
        (None, b"", False),
        (b"1", b"two", True),
        (b"one", b"2", False),
        (b"one", b"two", True),
        (None, b"two", False),
        (b"1", b"inf", True),
        (b"1", b"\xff", True),
    ],
)
def test_numeric(previous: bytes | None, current: bytes, left: bool) -> None:
    """The larger number wins, of equal ones the first; other values rank below all; ∅ removes."""
    standing = None if previous is None else Said("k", previous)
    assert keeps_left(Numeric(), standing, Said("k", current)) is left


@given(
    *[
        st.text("0123456789.+-e_ n\u0665", min_size=1, max_size=6)
        | st.integers(-(2**60), 2**60).map(str)
        | st.decimals(-10, 10, places=2).map(str)
        | st.sampled_from([f"{2**53}", f"{2**53 + 1}", "-0", "0.0", "9" * 400, "8" * 400])
    ]
    * 2
)
def test_numeric_compares_exactly(previous: str, current: str) -> None:
    """Tests any shortcut."""
    old, new = number(previous.encode()), number(current.encode())
    left = new is None or (old is not None and old >= new)
    said = [Said("k", text.encode()) for text in (previous, current)]
    assert keeps_left(Numeric(), *said) is left


@pytest.mark.parametrize(
    ("previous", "current", "left"),
    [
        ("1", "2", False),
        ("2", "1", True),
        ("2", "2", False),
        ("10", "9", True),
        ("1", None, True),
        (None, "1", False),
        (None, None, False),
        ("1", "latest", True),
        ("latest", "1", False),
    ],
)
def test_header_version(previous: str | None, current: str | None, left: bool) -> None:
    """The larger number in the property, of equal ones the last; without one it loses to any."""

    def said(version: str | None) -> Said:
        return Said("k", b"", {"other": "5"} if version is None else {"v": version})

    assert keeps_left(HeaderVersion("v"), said(previous), said(current)) is left
    assert not keeps_left(HeaderVersion("v"), None, said(current))


def test_newest_first_and_keep_first() -> None:
    value, tombstone = Said("k", b"1"), Said("k", b"")
    assert not keeps_left(Newest(), value, value)
    assert not keeps_left(Newest(), value, tombstone)
    assert not keeps_left(KeepFirst(), None, value)
    assert keeps_left(KeepFirst(), value, value)
    assert keeps_left(KeepFirst(), value, tombstone)


@pytest.mark.parametrize("text", ["", " ", "+", "1 2", "0x10", "1_000", "1e", "NaN", "-inf", "²"])
def test_invalid_numbers(text: str) -> None:
    assert number(text) is None
    assert number(text.encode()) is None


def test_numbers_of_any_size_are_compared() -> None:
    """Beyond the digits that Python reads as an int, and exponents that it can hold."""
    large, larger = number("9" * 5000), number("1e5000")
    assert large is not None
    assert larger is not None
    assert large < larger
    assert number("1e" + "9" * 30) is None


def test_a_long_text_that_is_no_number_takes_linear_time() -> None:
    """Backtracking took hours, in which one message stopped explain, and with it the broker. Tests
    had only short texts.
    """
    assert number(b"1" * 2_000_000 + b"x") is None


def test_settings_equal_those_of_the_catalogue() -> None:
    """A class is made with them by name."""
    (setting,) = LISTED["header-version"].settings
    assert HeaderVersion(**{setting.name: "v"})
