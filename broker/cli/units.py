"""Sizes, times and counts as people write them, as pulsar-admin reads them.

    >>> parse_size("100M"), parse_time_ms("2h"), format_size(1536)
    (104857600, 7200000, '1.5 KiB')

Sizes: digits and an optional K, M, G or T, powers of 1024 (KiB and the like are the same). Times:
digits and ms, s, m, h, d, w or y (365 days); no unit is seconds. Source: Pulsar's ByteUnitUtil,
RelativeTimeUtil.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from datetime import datetime

from ledgerfold.storage.errors import InvalidRequest

_INT64_MAX = 2**63 - 1
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
    """Bytes. Raises argparse's error."""
    match = re.fullmatch(r"([0-9]+)\s*([kmgt]?)(?:i?b)?", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: write 4096, 100K, 10M, 16G or 2T")
    return _checked(text, int(match[1]) * int(1024 ** _SIZES[match[2]]))


def parse_limit_size(text: str) -> int:
    """A size, or -1 for no limit."""
    return -1 if text.strip() == "-1" else parse_size(text)


def parse_time_ms(text: str) -> int:
    """ms. Raises argparse's error."""
    match = re.fullmatch(r"([0-9]+)\s*(ms|[smhdwy]?)", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write 500ms, 10s, 5m, 2h, 3d, 1w or 1y"
        )
    return _checked(text, int(match[1]) * _TIMES_MS[match[2]])


def parse_moment_ms(text: str) -> int:
    """ms since the epoch, written so or as ISO 8601 (local time when it names no zone)."""
    try:
        is_number = re.fullmatch(r"[0-9]+", text) is not None
        moment = int(text) if is_number else int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        moment = -1
    if moment < 0:
        raise argparse.ArgumentTypeError(
            f"{text!r} is no time: write 2024-01-31T12:00:00Z, or ms since the epoch"
        )
    return _checked(text, moment)


def parse_limit_ms(text: str) -> int:
    """A time, or -1 for no limit."""
    return -1 if text.strip() == "-1" else parse_time_ms(text)


def parse_count(text: str) -> int:
    """A whole number from 0 on. Raises argparse's error."""
    if re.fullmatch(r"[0-9]+", text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from 0 on")
    return _checked(text, int(text))


def parse_positive(text: str) -> int:
    """A whole number from 1 on. Raises argparse's error."""
    count = parse_count(text)
    if count == 0:
        raise argparse.ArgumentTypeError("1 is the least")
    return count


def _checked(text: str, number: int) -> int:
    if number > _INT64_MAX:
        raise argparse.ArgumentTypeError(f"{text!r} is too large")
    return number


def format_size(size_bytes: float) -> str:
    """With one decimal from KiB on."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size_bytes) < 1024:
            return f"{size_bytes:.0f} B" if unit == "B" else f"{size_bytes:.1f} {unit}"
        size_bytes /= 1024
    return f"{size_bytes:.1f} TiB"


def settings_of(given: Iterable[str]) -> dict[str, str]:
    """From "FIELD=VALUE" each. Raises InvalidRequest.

    >>> settings_of(["property=a=b"])
    {'property': 'a=b'}
    """
    settings: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise InvalidRequest(f"{each!r} is no setting: write it as FIELD=VALUE.")
        if name in settings:
            raise InvalidRequest(f"Setting {name!r} is given twice.")
        settings[name] = value
    return settings
