"""The evaluator of the built-in message strategies, which uses their own explanations.

It asks the classes of a run (ledgerfold/strategies/ready_made.py), in the same order. It holds only
the current message and the next one with their values.

    >>> from ledgerfold.storage.decoded import StoredMessage
    >>> from ledgerfold.storage.entry import Position
    >>> from ledgerfold.storage.key_scan import KeyVersion
    >>> def read(found):
    ...     value = b"72"[found.position.entry_id :][:1]
    ...     return StoredMessage(-1, 1, b"k", False, value, False, {}, 0, 0, None)
    >>> evaluator = Strategic(RunParameters("numeric", {}, 0, read))
    >>> for entry_id in range(2):
    ...     found = KeyVersion(Position(1, entry_id), -1, 5, 0, 1, False)
    ...     for decision in evaluator.process(found):
    ...         print(decision.version.name, decision.why)
    1:1 numeric keeps 1:0: 2 is not larger than 7
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ledgerfold.broker.explain.strategies.evaluator import (
    Decision,
    RunParameters,
    applied,
    dropped,
    replaced,
)
from ledgerfold.storage.key_scan import KeyVersion
from ledgerfold.strategies.ready_made import READY_MADE
from ledgerfold.strategies.strategic import StrategicMessage
from ledgerfold.strategies.words import words_of
from ledgerfold.v1 import explain_pb2 as pb


class _Message(NamedTuple):
    event_time_ms: int
    publish_time_ms: int
    message_id: tuple[int, int, int]
    key: str = ""
    value: bytes = b""
    properties: dict[str, str] = {}  # noqa: RUF012 - never changed


class Strategic:
    """An evaluator with at most one current message."""

    def __init__(self, requested: RunParameters) -> None:
        self._name, self._read = requested.name, requested.read
        self._strategy = READY_MADE[requested.name](**requested.settings)
        self._current: tuple[KeyVersion, StrategicMessage] | None = None

    def process(self, version: KeyVersion) -> Iterator[Decision]:
        current = self._message(version)
        standing, previous = self._current or (None, None)
        if self._strategy.should_keep_left(previous, current):
            why = None if previous is None else words_of(self._strategy, previous, current)
            yield self._skipped(version, standing, why)
            return
        if standing is not None:
            why = words_of(self._strategy, previous, current)
            why = why or f"should_keep_left of {self._name} returned False"
            yield replaced(standing, version, f": {why}")
        if version.is_tombstone:
            yield applied(version)
        self._current = None if version.is_tombstone else (version, current)

    def keeps(self) -> Iterator[Decision]:
        if self._current is not None:
            why = f"chosen by {self._name}"
            stays = f"stays until {self._name} no longer keeps it when a newer message is compacted"
            yield Decision(self._current[0], True, pb.COMPACTION_RULE_CHOSEN, why, stays=stays)

    def _skipped(
        self, version: KeyVersion, current: KeyVersion | None, why: str | None
    ) -> Decision:
        verb = "skips it" if current is None else f"keeps {current.name}"
        reason = f"{self._name} {verb}: {why or 'should_keep_left returned True'}"
        return dropped(version, pb.COMPACTION_RULE_SKIPPED, reason, current)

    def _message(self, version: KeyVersion) -> _Message:
        message_id = (*version.position, version.batch_index)
        message = _Message(version.event_time_ms, version.publish_time_ms, message_id)
        if not self._strategy.reads:
            return message
        stored = self._read(version)
        key = (stored.key or b"").decode(errors="surrogateescape")
        return message._replace(key=key, value=stored.value, properties=stored.properties)
