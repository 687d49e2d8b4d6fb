"""The evaluator of `event-time`, which keeps the message with the latest event time.

Rules (Pulsar's EventTimeOrderCompactor): a message replaces the current one if there is none, if
its event time is later, or, when published alone, if it is equal; in a batch the earlier one stays.
A tombstone replaces the current message as a value does, and leaves none, and no time either: the
next message is accepted however old it is. A tombstone older than the current message does nothing.
A missing event time counts as 0.

    >>> from ledgerfold.storage.entry import Position
    >>> from ledgerfold.storage.key_scan import KeyVersion
    >>> evaluator = EventTime()
    >>> for entry_id, (event_ms, value_bytes) in enumerate([(5, 1), (3, 1), (4, 0)]):
    ...     found = Found(KeyVersion(Position(1, entry_id), -1, 9, event_ms, value_bytes, False))
    ...     for decision in evaluator.meet(found):
    ...         print(decision.found.name, decision.why)
    1:1 older by event time than the current 1:0
    1:2 a tombstone older by event time than the current 1:0: ignored
    >>> [(decision.found.name, decision.why) for decision in evaluator.keeps()]
    [('1:0', 'latest by event time')]
"""

from __future__ import annotations

from collections.abc import Iterator

from ledgerfold.broker.common.clock import LAST_MS
from ledgerfold.broker.common.traffic import iso_time
from ledgerfold.broker.explain.strategies.evaluator import Decision, applied, dropped, rule_of
from ledgerfold.broker.explain.versions import Found
from ledgerfold.v1 import explain_pb2 as pb


class EventTime:
    """An evaluator with at most one current value."""

    def __init__(self) -> None:
        self._standing: Found | None = None
        # The tombstone that removed the current value, if nothing has followed it.
        self._tombstone: Found | None = None
        self._why = ""

    def meet(self, version: Found) -> Iterator[Decision]:
        standing = self._standing
        if standing is not None and not _takes_over(version, standing):
            why = _ignored(version, standing)
            yield dropped(version, pb.COMPACTION_RULE_EARLIER_EVENT, why, standing)
            return
        if standing is not None:
            yield dropped(standing, rule_of(version), _superseded(standing, version), version)
        if version.is_tombstone:
            yield applied(version)
            self._standing, self._tombstone = None, version
        else:
            self._why, self._standing, self._tombstone = self._accepted(version), version, None

    def keeps(self) -> Iterator[Decision]:
        if self._standing is not None:
            stays = "stays until a message of its key that is not older by event time is compacted"
            yield Decision(
                self._standing, True, pb.COMPACTION_RULE_LATEST_EVENT, self._why, stays=stays
            )

    def _accepted(self, version: Found) -> str:
        tombstone = self._tombstone
        if tombstone is None or not _is_later(tombstone, version):
            return "latest by event time"
        return (
            f"older by event time than the tombstone {tombstone.name}, which was removed with its "
            "time; latest by event time since then"
        )


def _takes_over(version: Found, standing: Found) -> bool:
    if version.is_alone:
        return not _is_later(standing, version)
    return _is_later(version, standing)


def _is_later(version: Found, other: Found) -> bool:
    return version.version.event_time_ms > other.version.event_time_ms


def _superseded(standing: Found, by: Found) -> str:
    verb = "deleted" if by.is_tombstone else "superseded"
    if _is_later(by, standing):
        return f"{verb} by {by.name}, whose event time {_time(by)} is later"
    return f"{verb} by {by.name}, published later with the same event time"


def _ignored(version: Found, standing: Found) -> str:
    kind = "a tombstone " if version.is_tombstone else ""
    end = ": ignored" if version.is_tombstone else ""
    if _is_later(standing, version):
        return f"{kind}older by event time than the current {standing.name}{end}"
    return f"{kind}in a batch, with the same event time as the current {standing.name}{end}"


def _time(found: Found) -> str:
    time_ms = found.version.event_time_ms
    return iso_time(time_ms) if 0 <= time_ms <= LAST_MS else f"{time_ms} ms"
