"""Sizes, times and counts as people write them."""

from __future__ import annotations

import argparse
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.cli.units import (
    moment_ms,
    parse_count,
    parse_int32,
    parse_limit_ms,
    parse_limit_size,
    parse_positive,
    parse_size,
    parse_time_ms,
)
from ledgerfold.broker.common.sizes import format_size

INT64_MAX = 2**63 - 1


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("0", 0),
        ("4096", 4096),
        ("1k", 1024),
        ("1K", 1024),
        ("10M", 10 * 1024**2),
        ("16G", 16 * 1024**3),
        ("2T", 2 * 1024**4),
        ("3KiB", 3072),
        ("3kb", 3072),
        ("7B", 7),
        (" 5 MiB ", 5 * 1024**2),
        (str(INT64_MAX), INT64_MAX),
    ],
)
def test_sizes(text: str, size_bytes: int) -> None:
    """Powers of 1024 in any case, as pulsar-admin parses them."""
    assert parse_size(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "time_ms"),
    [
        ("10", 10_000),
        ("500ms", 500),
        ("10s", 10_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("3d", 259_200_000),
        ("1w", 604_800_000),
        ("1Y", 31_536_000_000),
        ("0", 0),
    ],
)
def test_times(text: str, time_ms: int) -> None:
    """No unit is seconds, as in pulsar-admin; a minute is m."""
    assert parse_time_ms(text) == time_ms


@pytest.mark.parametrize("parse", [parse_limit_size, parse_limit_ms])
def test_minus_one_is_no_limit(parse: Callable[[str], int]) -> None:
    """Only where a limit is meant."""
    assert parse("-1") == parse(" -1 ") == -1
    assert parse("0") == 0


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2038-01-19T03:14:08.002Z", 2**31 * 1000 + 2),
        ("2004-01-10T14:37:04.001999+01:00", 2**30 * 1000 + 1),
        ("1969-12-31T23:59:59.999Z", None),
    ],
)
def test_moments_are_exact(text: str, moment: int | None) -> None:
    """A test with times of which floats have no milliseconds had been missing."""
    assert moment_ms(text) == moment


@pytest.mark.parametrize("parse", [parse_size, parse_time_ms, parse_count, parse_positive])
@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "-1",
        "+1",
        "1.5",
        "x",
        "1x",
        "K",
        "1 2",
        "1e3",
        "\u0663",
        "\u00b2",
        str(INT64_MAX + 1),
    ],
)
def test_invalid_numbers(parse: Callable[[str], int], text: str) -> None:
    """argparse's error quotes the argument."""
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse(text)
    assert repr(text) in str(caught.value)


def test_a_number_whose_unit_exceeds_64_bits_is_refused() -> None:
    """Nothing larger reaches the wire."""
    with pytest.raises(argparse.ArgumentTypeError, match="too large"):
        parse_size("9000000T")
    with pytest.raises(argparse.ArgumentTypeError, match="too large"):
        parse_time_ms("9999999999y")


def test_counts() -> None:
    """From 0, or from 1, on."""
    assert parse_count("0") == 0
    assert parse_positive("1") == 1
    with pytest.raises(argparse.ArgumentTypeError, match="must be 1 or more"):
        parse_positive("0")


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (5 * 1024**2, "5.0 MiB"),
        (3 * 1024**3, "3.0 GiB"),
        (5000 * 1024**4, "5000.0 TiB"),
    ],
)
def test_sizes_are_shown_with_one_decimal(size_bytes: int, text: str) -> None:
    assert format_size(size_bytes) == text


@given(st.integers(0, INT64_MAX))
def test_every_printed_number_of_bytes_and_ms_can_be_parsed(number: int) -> None:
    """Also without a unit, or with the smallest."""
    assert parse_size(f"{number}") == parse_time_ms(f"{number}ms") == number


def test_a_32_bit_number_has_a_limit() -> None:
    """A larger one ended a command with a traceback."""
    assert parse_int32("2147483647") == 2**31 - 1
    with pytest.raises(argparse.ArgumentTypeError, match="too large"):
        parse_int32("2147483648")
