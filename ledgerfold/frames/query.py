"""The arguments of a read: what is read, which rows, and which columns.

    >>> query = Query.of("prices", data="copy", keys=["p3"], start=(12, 0))
    >>> query.topic, query.keys, query.start
    ('persistent://public/default/prices', frozenset({b'p3'}), Position(ledger_id=12, entry_id=0))

Ranges are half-open: `start` and `start_time` are included, `end` and `end_time` are not.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from ledgerfold.broker.client.streams.credentials import credentials_of
from ledgerfold.broker.common.names import persistent_topic
from ledgerfold.frames.schema import NAMES
from ledgerfold.storage.entry import EARLIEST, LATEST, EntryHeader, Position
from ledgerfold.storage.errors import InvalidRequest, NotAllowed

# A message id without its partition and index, or the offset of a record in a Kafka log.
Place = tuple[int, int] | int
Time = datetime | int
_MAX = 2**63 - 1
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
ISOLATIONS = ("read_uncommitted", "read_committed")


@dataclass(frozen=True)
class Query:
    """A checked read. Positions of a Kafka topic are (0, offset)."""

    topic: str
    url: str | None = None
    data: Path | None = None
    compacted: bool = False
    read_committed: bool = False
    columns: tuple[str, ...] = NAMES
    # None: all messages, also those without a key.
    keys: frozenset[bytes] | None = None
    start_ms: int = 0
    end_ms: int = _MAX
    start: Position = EARLIEST
    end: Position = LATEST
    # The client's arguments about TLS and authentication.
    credentials: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def of(
        cls,
        topic: str,
        *,
        url: str | None = None,
        data: str | os.PathLike[str] | None = None,
        compacted: bool = False,
        isolation: str = "read_uncommitted",
        columns: Sequence[str] | None = None,
        keys: Iterable[str | bytes] | None = None,
        start_time: Time | None = None,
        end_time: Time | None = None,
        start: Place | None = None,
        end: Place | None = None,
        **credentials: Any,
    ) -> Query:
        """Checks the arguments of `ledgerfold.frames.read`. Raises InvalidRequest, NotAllowed."""
        credentials_of("read", Query.of, credentials)
        if (url is None) == (data is None):
            raise InvalidRequest(
                "Pass either url, the address of a running broker, or data, the path of a data "
                "directory that no broker serves, or of a snapshot."
            )
        if isolation not in ISOLATIONS:
            raise InvalidRequest(f"isolation must be {' or '.join(ISOLATIONS)}, not {isolation!r}.")
        if isolation != ISOLATIONS[0] and data is not None:
            raise NotAllowed(
                "Only a broker knows which transactions are committed: pass url, not data, for "
                "isolation='read_committed'."
            )
        names = NAMES if columns is None else tuple(columns)
        unknown = [each for each in names if each not in NAMES]
        if unknown or not names:
            raise InvalidRequest(f"Unknown columns {unknown}; known columns: {', '.join(NAMES)}.")
        return cls(
            topic=persistent_topic(topic, "read"),
            url=url,
            data=None if data is None else Path(data).absolute(),
            compacted=compacted,
            read_committed=isolation != ISOLATIONS[0],
            columns=names,
            keys=None if keys is None else frozenset(map(_key, _several(keys))),
            start_ms=0 if start_time is None else _ms(start_time),
            end_ms=_MAX if end_time is None else _ms(end_time),
            start=EARLIEST if start is None else position(start),
            end=LATEST if end is None else position(end),
            credentials=credentials,
        )

    def wants(self, *names: str) -> bool:
        """Returns whether one of these columns is needed."""
        return not set(names).isdisjoint(self.columns)

    def takes(self, header: EntryHeader) -> bool:
        """Returns whether an entry is in the range of times."""
        return self.start_ms <= header.publish_time_ms < self.end_ms

    def check_log(self, topic: str) -> None:
        """Raises NotAllowed if a Kafka topic is to be read compacted."""
        if self.compacted:
            raise NotAllowed(
                f"{topic} is a Kafka topic: it has no separate compacted view, because cleaned "
                "records are removed for every reader. Read it as it is."
            )


def _several(keys: Iterable[str | bytes]) -> Iterable[str | bytes]:
    if isinstance(keys, str | bytes):
        raise InvalidRequest(f"keys must be a list of keys, not {keys!r}.")
    return keys


def _key(key: object) -> bytes:
    if isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode(errors="surrogateescape")
    raise InvalidRequest(f"A key is text or bytes, not {key!r}.")


def _ms(time: object) -> int:
    """Returns ms since the epoch, rounded up: a bound within a millisecond is after it.

    >>> _ms(datetime(1970, 1, 1, 0, 0, 1, 500, tzinfo=UTC))
    1001
    """
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise InvalidRequest(
                f"A time must have a time zone, or be in ms since the epoch: {time!r}."
            )
        # NOTE: A float has no room for all milliseconds.
        return -((_EPOCH - time) // timedelta(milliseconds=1))
    if isinstance(time, int) and not isinstance(time, bool) and 0 <= time <= _MAX:
        return time
    raise InvalidRequest(f"A time must be a datetime, or ms since the epoch, not {time!r}.")


def position(place: object) -> Position:
    """Returns the position of a place. Raises InvalidRequest.

    >>> position(7), position((12, 3))
    (Position(ledger_id=0, entry_id=7), Position(ledger_id=12, entry_id=3))
    """
    parts = (0, place) if isinstance(place, int) else place
    if (
        isinstance(parts, tuple)
        and len(parts) == 2
        and all(isinstance(each, int) and -1 <= each <= _MAX for each in parts)
    ):
        return Position(*parts)
    raise InvalidRequest(
        f"A position is (ledger id, entry id), or the offset of a record of a Kafka topic, not "
        f"{place!r}."
    )
