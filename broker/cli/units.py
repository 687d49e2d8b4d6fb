"""Sizes, times and counts as users write them, parsed as by pulsar-admin.

    >>> parse_size("100M"), parse_time_ms("2h")
    (104857600, 7200000)

Sizes: digits and an optional K, M, G or T, powers of 1024 (KB and KiB are the same). Times: digits
and ms, s, m, h, d, w or y (365 days); without a unit, seconds. Source: Pulsar's ByteUnitUtil,
RelativeTimeUtil. SIZE, TIME and so on are the settings of options with such values.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path

Settings = dict[str, Any]
INT32_MAX, INT64_MAX = 2**31 - 1, 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_SIZES = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_TIMES_MS = {
    "ms": 1,
    "": 1000,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
    "y": 31_536_000_000,
}


def parse_size(text: str) -> int:
    """Parses a size into bytes. Raises argparse's error."""
    match = re.fullmatch(r"([0-9]+)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size like 4096, 100K, 10M, 16G or 2T")
    return _checked(text, int(match[1]) * int(1024 ** _SIZES[match[2]]))


def parse_limit_size(text: str) -> int:
    """Parses a size, or -1 for no limit."""
    return -1 if text.strip() == "-1" else parse_size(text)


def parse_time_ms(text: str) -> int:
    """Parses a duration into ms. Raises argparse's error."""
    match = re.fullmatch(r"([0-9]+)\s*(ms|[smhdwy]?)", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a duration like 500ms, 10s, 5m, 2h, 3d, 1w or 1y"
        )
    return _checked(text, int(match[1]) * _TIMES_MS[match[2]])


def parse_moment_ms(text: str) -> int:
    """Parses ms since the epoch, or ISO 8601 (local time without a zone), into ms since the
    epoch.
    """
    moment = moment_ms(text)
    if moment is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a time like 2024-01-31T12:00:00Z, or ms since the epoch"
        )
    return _checked(text, moment)


def moment_ms(text: str) -> int | None:
    """Returns the time that `text` denotes, in ms since the epoch; None: it denotes none."""
    try:
        is_number = re.fullmatch(r"[0-9]+", text) is not None
        moment = int(text) if is_number else _ms_of(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        return None
    return moment if moment >= 0 else None


def _ms_of(time: datetime) -> int:
    # NOTE: A float has no room for all milliseconds.
    return (time.astimezone(UTC) - _EPOCH) // timedelta(milliseconds=1)


def parse_limit_ms(text: str) -> int:
    """Parses a duration, or -1 for no limit."""
    return -1 if text.strip() == "-1" else parse_time_ms(text)


def parse_count(text: str) -> int:
    """Parses an integer of 0 or more. Raises argparse's error."""
    if re.fullmatch(r"[0-9]+", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of 0 or more")
    return _checked(text, int(text))


def parse_int32(text: str) -> int:
    """Parses an integer of 0 or more that has at most 31 bits. Raises argparse's error."""
    return _checked(text, parse_count(text), INT32_MAX)


def parse_positive(text: str) -> int:
    """Parses an integer of 1 or more. Raises argparse's error."""
    count = parse_count(text)
    if count == 0:
        raise argparse.ArgumentTypeError("must be 1 or more")
    return count


def parse_probability(text: str) -> float:
    """Parses a number above 0 and at most 1. Raises argparse's error."""
    with suppress(ValueError):
        if 0 < (number := float(text)) <= 1:
            return number
    raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0 and at most 1, like 0.1")


SIZE: Settings = {"type": parse_size, "metavar": "SIZE"}
LIMIT_SIZE: Settings = {"type": parse_limit_size, "metavar": "SIZE|-1"}
TIME: Settings = {"type": parse_time_ms, "metavar": "TIME"}
LIMIT_TIME: Settings = {"type": parse_limit_ms, "metavar": "TIME|-1"}
MOMENT: Settings = {"type": parse_moment_ms, "metavar": "TIME"}
COUNT: Settings = {"type": parse_count, "metavar": "N"}
DIR: Settings = {"type": absolute_path, "metavar": "DIR"}
FILE: Settings = {"type": absolute_path, "metavar": "FILE"}
POSITIVE: Settings = {"type": parse_positive, "metavar": "N"}
PROBABILITY: Settings = {"type": parse_probability, "metavar": "P"}


def _checked(text: str, number: int, most: int = INT64_MAX) -> int:
    if number > most:
        raise argparse.ArgumentTypeError(f"{text!r} is too large")
    return number


def settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """Parses "FIELD=VALUE" settings. Raises InvalidRequest.

    >>> settings_of(["property=a=b"])
    {'property': 'a=b'}
    """
    wrong, twice = "{!r} is not a setting: expected FIELD=VALUE.", "Setting {!r} is given twice."
    return parse_pairs(pairs, wrong, twice)


def kafka_settings_of(pairs: Iterable[str]) -> dict[str, str]:
    """Parses settings by Kafka's names, without spaces around them. Raises InvalidRequest.

    >>> kafka_settings_of(["segment.ms = 1000"])
    {'segment.ms': '1000'}
    """
    wrong = "{!r}: expected NAME=VALUE, like segment.ms=60000."
    stripped = ("=".join(map(str.strip, pair.split("=", 1))) for pair in pairs)
    return parse_pairs(stripped, wrong, "{} is set twice.")


def parse_pairs(texts: Iterable[str], wrong: str, twice: str) -> dict[str, str]:
    """Parses texts with an equals sign. Raises InvalidRequest with `wrong` or `twice`, into which
    it inserts the text or the repeated name.
    """
    pairs: dict[str, str] = {}
    for each in texts:
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise InvalidRequest(wrong.format(each))
        if name in pairs:
            raise InvalidRequest(twice.format(name))
        pairs[name] = value
    return pairs
