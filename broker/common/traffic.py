"""The peer and the traffic of a stream, as shown in stats. Pure.

>>> Peer("127.0.0.1:45414", 1_700_000_000_000).stats()["address"]
'/127.0.0.1:45414'
>>> both = Traffic(messages=3, entries=1).plus(Traffic(messages=4, entries=2, last_sent_ms=9))
>>> both.messages, both.last_sent_ms
(7, 9)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

_MINUTE_MS = 60_000


def iso_time(time_ms: int) -> str:
    """Formats a time as in Pulsar; as a number if it is outside the calendar.

    >>> iso_time(1_795_245_390_612), iso_time(253_402_300_800_000)
    ('2026-11-21T07:16:30.612Z', '253402300800000 ms')
    """
    try:
        at = datetime.fromtimestamp(time_ms / 1000, UTC)
    except (ValueError, OverflowError):
        return f"{time_ms} ms"
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@dataclass(frozen=True, slots=True)
class Peer:
    """The client of a stream. `address`: host and port. `metadata`: as sent by the client."""

    address: str = ""
    connected_ms: int = 0
    metadata: Mapping[str, str] = field(default_factory=dict)
    # The version that a Pulsar client states when it connects.
    client_version: str = ""

    def stats(self) -> dict[str, Any]:
        """Returns the stats with Pulsar's field names."""
        version = {"clientVersion": self.client_version} if self.client_version else {}
        return {
            "address": f"/{self.address}",
            "connectedSince": iso_time(self.connected_ms),
            **version,
            "metadata": dict(self.metadata),
        }


class MessageRate:
    """A count of messages, and their rate over the last whole minute, as in Pulsar's stats.

    >>> dropped = MessageRate(now_ms=0)
    >>> dropped.count(120, now_ms=100)
    >>> dropped.per_second(59_000), dropped.per_second(60_000), dropped.per_second(120_000)
    (0.0, 2.0, 0.0)
    """

    def __init__(self, now_ms: int) -> None:
        self.total = 0
        self._since_ms, self._in_minute, self._rate = now_ms, 0, 0.0

    def count(self, messages: int, now_ms: int) -> None:
        self._end_minute(now_ms)
        self.total += messages
        self._in_minute += messages

    def per_second(self, now_ms: int) -> float:
        self._end_minute(now_ms)
        return self._rate

    def _end_minute(self, now_ms: int) -> None:
        passed_ms = now_ms - self._since_ms
        if passed_ms >= _MINUTE_MS:
            self._rate = self._in_minute * 1000 / passed_ms
            self._since_ms, self._in_minute = now_ms, 0


@dataclass(slots=True)
class Traffic:
    """The traffic to a consumer or a reader. Times in ms since the epoch; 0: never."""

    messages: int = 0
    entries: int = 0
    bytes: int = 0
    last_sent_ms: int = 0
    last_acked_ms: int = 0
    # When the client last requested messages.
    last_flow_ms: int = 0

    def plus(self, other: Traffic) -> Traffic:
        return Traffic(
            self.messages + other.messages,
            self.entries + other.entries,
            self.bytes + other.bytes,
            max(self.last_sent_ms, other.last_sent_ms),
            max(self.last_acked_ms, other.last_acked_ms),
            max(self.last_flow_ms, other.last_flow_ms),
        )

    def stats(self) -> dict[str, int]:
        """Returns the fields that consumers and subscriptions share, with Pulsar's names."""
        return {
            "msgOutCounter": self.messages,
            "bytesOutCounter": self.bytes,
            "lastConsumedTimestamp": self.last_sent_ms,
            "lastAckedTimestamp": self.last_acked_ms,
            "lastConsumedFlowTimestamp": self.last_flow_ms,
        }
