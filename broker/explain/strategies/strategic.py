"""The ready-made strategies that decide message by message, told: in the words of their classes.

The same classes as in a run (ledgerfold/strategies/ready_made.py) are asked, in the same order. One
message stands at a time, and only that one and the next are held with their values.

    >>> from ledgerfold.storage.decoded import StoredMessage
    >>> from ledgerfold.storage.entry import Position
    >>> from ledgerfold.storage.key_scan import KeyVersion
    >>> def read(found):
    ...     value = b"72"[found.position.entry_id :][:1]
    ...     return StoredMessage(-1, 1, b"k", False, value, False, {}, 0, 0, None)
    >>> judge = Strategic(Asked("numeric", {}, 0, read))
    >>> for entry_id in range(2):
    ...     found = Found(KeyVersion(Position(1, entry_id), -1, 5, 0, 1, False))
    ...     for verdict in judge.meet(found):
    ...         print(verdict.found.name, verdict.why)
    1:1 numeric keeps 1:0: 2 is no larger than 7
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from ledgerfold.broker.explain.strategies.judge import Asked, Verdict, dropped, gone, rule_of
from ledgerfold.broker.explain.versions import Found
from ledgerfold.strategies.ready_made import HeaderVersion, KeepFirst, Newest, Numeric
from ledgerfold.strategies.strategic import StrategicMessage
from ledgerfold.strategies.words import words_of
from ledgerfold.v1 import explain_pb2 as pb

ReadyMade = HeaderVersion | KeepFirst | Newest | Numeric
_CLASSES: Final[dict[str, Callable[..., ReadyMade]]] = {
    "newest": Newest,
    "numeric": Numeric,
    "keep-first": KeepFirst,
    "header-version": HeaderVersion,
}


class _Message(NamedTuple):
    key: str
    value: bytes
    properties: dict[str, str]
    event_time_ms: int
    publish_time_ms: int
    message_id: tuple[int, int, int]


class Strategic:
    """One message stands, or none."""

    def __init__(self, asked: Asked) -> None:
        self._name, self._read = asked.name, asked.read
        self._strategy = _CLASSES[asked.name](**asked.settings)
        self._standing: tuple[Found, StrategicMessage] | None = None

    def meet(self, version: Found) -> Iterator[Verdict]:
        current = self._message(version)
        found, previous = self._standing or (None, None)
        if self._strategy.should_keep_left(previous, current):
            why = None if previous is None else words_of(self._strategy, previous, current)
            yield self._skipped(version, found, why)
            return
        if found is not None:
            verb = "deleted" if version.is_tombstone else "superseded"
            why = words_of(self._strategy, previous, current)
            why = f"{verb} by {version.name}: {why or f'should_keep_left of {self._name} said no'}"
            yield dropped(found, rule_of(version), why, version)
        if version.is_tombstone:
            yield gone(version)
        self._standing = None if version.is_tombstone else (version, current)

    def keeps(self) -> Iterator[Verdict]:
        if self._standing is not None:
            why = f"chosen by {self._name}"
            stays = f"stays until {self._name} no longer keeps it when a newer message is compacted"
            yield Verdict(self._standing[0], True, pb.COMPACTION_RULE_CHOSEN, why, stays=stays)

    def _skipped(self, version: Found, standing: Found | None, why: str | None) -> Verdict:
        keeps = "what stands, which is nothing" if standing is None else standing.name
        said = f"{self._name} keeps {keeps}: {why or 'should_keep_left said so'}"
        return dropped(version, pb.COMPACTION_RULE_SKIPPED, said, standing)

    def _message(self, version: Found) -> _Message:
        if not self._strategy.reads:
            return _Message("", b"", {}, *_times_and_id(version))
        stored = self._read(version)
        return _Message(
            (stored.key or b"").decode(errors="surrogateescape"),
            stored.value,
            stored.properties,
            *_times_and_id(version),
        )


def _times_and_id(found: Found) -> tuple[int, int, tuple[int, int, int]]:
    version = found.version
    message_id = (*version.position, version.batch_index)
    return version.event_time_ms, version.publish_time_ms, message_id
