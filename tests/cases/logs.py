"""Compares a stored Kafka log with the text that describes it (log_lines.py).

>>> kept = LogRecord(b"b", None, 1, 500)
>>> stored = LogBatch((kept,), 0, 2, pid=7, horizon_ms=NO_HORIZON, codec="none")
>>> print(stored.shown_as())
0..2[1:b=∅]
>>> stored.is_as(LogBatch((LogRecord(b"b", None),), 0, 2, pid=8))
False
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from tests.cases.writing import NO_KEY, NULL, SHORT, bytes_word

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
ORIGINS = {"follow": "replication", "coordinator": "coordinator"}
_ORIGIN_WORDS = {origin: word for word, origin in ORIGINS.items()}
NO_HORIZON = -(2**63)


class LogRecord(NamedTuple):
    """Times are ms since the case began. None in an expected record: not compared."""

    key: bytes | None
    value: bytes | None
    offset: int | None = None
    timestamp_ms: int | None = None

    def __str__(self) -> str:
        at = "" if self.offset is None else f"{self.offset}:"
        key = NO_KEY if self.key is None else bytes_word(self.key, SHORT)
        value = NULL if self.value is None else bytes_word(self.value, SHORT)
        return f"{at}{key}={value}" + ("" if self.timestamp_ms is None else f"@{self.timestamp_ms}")


@dataclass(frozen=True)
class LogBatch:
    """`marker`: "commit" or "abort". `origin`: "client", or one of ORIGINS. `md5`: of a stored
    batch.
    """

    records: tuple[LogRecord, ...] = ()
    base: int | None = None
    last: int | None = None
    marker: str | None = None
    pid: int | None = None
    epoch: int | None = None
    sequence: int | None = None
    is_transactional: bool | None = None
    codec: str | None = None
    horizon_ms: int | None = None
    origin: str = "client"
    md5: str | None = None

    def is_as(self, wanted: LogBatch) -> bool:
        """Returns whether this stored part matches the written one."""
        pairs = (
            (getattr(self, name), getattr(wanted, name))
            for name in ("base", "last", "marker", "pid", "epoch", "sequence", "is_transactional")
        )
        return (
            all(there is None or here == there for here, there in pairs)
            and wanted.codec in (None, self.codec)
            and wanted.horizon_ms in (None, self.horizon_ms)
            and (self.marker is None) == (wanted.marker is None)
            and len(self.records) == len(wanted.records)
            and all(map(_is_record, self.records, wanted.records))
        )

    def shown_as(self, wanted: Iterable[LogBatch] = ()) -> LogBatch:
        """Returns it with only the parts that are written for batches of its kind."""
        like = [each for each in wanted if (each.marker is None) == (self.marker is None)]
        hidden: dict[str, Any] = {
            name: None
            for name in ("pid", "epoch", "sequence", "is_transactional", "codec")
            if all(getattr(each, name) is None for each in like)
        }
        records = self.records
        if all(record.timestamp_ms is None for each in like for record in each.records):
            records = tuple(each._replace(timestamp_ms=None) for each in records)
        if self.horizon_ms == NO_HORIZON and all(each.horizon_ms is None for each in like):
            hidden["horizon_ms"] = None
        return replace(self, records=records, md5=None, **hidden)

    def __str__(self) -> str:
        text = self._text()
        if self.horizon_ms is None:
            return text
        return f"{text} ~{'none' if self.horizon_ms == NO_HORIZON else self.horizon_ms}"

    def _text(self) -> str:
        if self.marker is not None:
            at = "" if self.last is None else f"{self.last}:"
            return f"{at}{self.marker.upper()}{'' if self.pid is None else self.pid}"
        span = str(self.last) if self.base == self.last else f"{self.base}..{self.last}"
        if not self.records:
            return f"{span}:{{}}"
        said = " ".join([*self._said(), *map(str, self.records)])
        is_whole = (self.records[0].offset, self.records[-1].offset) == (self.base, self.last)
        if self.base is not None and not is_whole:
            return f"{span}[{said}]"
        return said if said == str(self.records[0]) else f"[{said}]"

    def _said(self) -> Iterable[str]:
        if self.origin != "client":
            yield _ORIGIN_WORDS[self.origin]
        if self.pid is not None:
            yield f"{'txn' if self.is_transactional else 'pid'}{self.pid}"
        for name, value in (("epoch", self.epoch), ("seq", self.sequence), ("codec", self.codec)):
            if value is not None:
                yield f"{name}:{value}"


class Bar(NamedTuple):
    """A segment ends here."""

    is_active: bool = False

    def __str__(self) -> str:
        return "|*" if self.is_active else "|"


@dataclass(frozen=True)
class LogText:
    """A log, written or stored; batches and bars in order."""

    items: tuple[LogBatch | Bar, ...]

    @property
    def batches(self) -> list[LogBatch]:
        return [each for each in self.items if isinstance(each, LogBatch)]

    @property
    def has_bars(self) -> bool:
        return any(isinstance(each, Bar) for each in self.items)

    def is_as(self, wanted: LogText) -> bool:
        """Returns whether this stored log matches the written one; bars are compared if there are
        any.
        """
        here = self.items if wanted.has_bars else tuple(self.batches)
        return len(here) == len(wanted.items) and all(map(_is_item, here, wanted.items))

    def shown_as(self, wanted: LogText | None) -> LogText:
        """Returns the relevant part of the stored log for a comparison."""
        items = self.items if wanted is None or wanted.has_bars else tuple(self.batches)
        like = wanted.batches if wanted else []
        return LogText(
            tuple(each if isinstance(each, Bar) else each.shown_as(like) for each in items)
        )

    def __str__(self) -> str:
        return " ".join(map(str, self.items)) or "nothing"


def _is_item(stored: LogBatch | Bar, wanted: LogBatch | Bar) -> bool:
    if isinstance(stored, LogBatch) and isinstance(wanted, LogBatch):
        return stored.is_as(wanted)
    return stored == wanted


def _is_record(stored: LogRecord, wanted: LogRecord) -> bool:
    return (
        stored[:2] == wanted[:2]
        and wanted.offset in (None, stored.offset)
        and wanted.timestamp_ms in (None, stored.timestamp_ms)
    )
