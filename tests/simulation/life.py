"""The oracle's memory of one life of a topic: the sent entries, and their fate."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.v1.records_pb2 import (
    CursorRecord,
    ProducerRecord,
    RunRecord,
    TopicRecord,
)
from tests.simulation.limits import Limits
from tests.simulation.storedlog import Row
from tests.simulation.subscriptions import Order, Subscription

if TYPE_CHECKING:
    from tests.simulation.connections import Connection


class Violation(AssertionError):
    """An invariant is violated."""


class Seek(NamedTuple):
    """`before`: the position through which the subscription had acknowledged everything."""

    time_ms: int
    before: Position


@dataclass(frozen=True, eq=False)
class Attempt:
    """An entry that a publisher sends repeatedly until it is acknowledged."""

    producer: str
    sequence_id: int
    rows: tuple[StoredMessage, ...]
    publish_time_ms: int
    # The loop's time when it was first sent.
    step: int = 0

    def __str__(self) -> str:
        return f"{self.producer}#{self.sequence_id}"

    def rows_at(self, position: Position) -> list[Row]:
        return [Row(position, self.publish_time_ms, row) for row in self.rows]

    @property
    def is_batch(self) -> bool:
        return self.rows[0].batch_index >= 0

    def holds(self, messages: Sequence[StoredMessage], *, is_part: bool, is_anew: bool) -> bool:
        """Returns whether these are all of it; or, with `is_part`, some rows, each in its place.

        `is_anew`: runs may have renumbered their survivors; sequence ids identify the rows.
        """
        if not is_part:
            return messages == list(self.rows)
        rows = {row.sequence_id: row for row in self.rows}
        is_rising = all(
            before.sequence_id < after.sequence_id and before.batch_index < after.batch_index
            for before, after in pairwise(messages)
        )
        are_same = all(_is_same(rows.get(each.sequence_id), each, is_anew) for each in messages)
        return bool(messages) and is_rising and are_same


def _is_same(row: StoredMessage | None, found: StoredMessage, is_anew: bool) -> bool:
    if row is None or not is_anew:
        return row == found
    is_before = found.batch_index <= row.batch_index and found.batch_size <= row.batch_size
    placed = row._replace(batch_index=found.batch_index, batch_size=found.batch_size)
    return is_before and placed == found


class View(NamedTuple):
    """The compacted view up to `horizon`; None: no run has succeeded yet."""

    rows: list[Row]
    horizon: Position | None

    def leaves_out(self, position: Position) -> bool:
        is_covered = self.horizon is not None and position <= self.horizon
        return is_covered and all(row.position != position for row in self.rows)


@dataclass(eq=False)
class Topic:
    """One life of a topic: a deleted and recreated topic is another one.

    `at`, `place`: the positions of reported entries; `acked`: those that were acknowledged to
    producers, with their position, None if the answer was "duplicate". `lost`: removed by rule, and
    in no compacted view. `rows`: the compacted view, `horizon` its end.
    """

    name: str
    record: TopicRecord
    at: dict[Position, Attempt] = field(default_factory=dict)
    place: dict[Attempt, Position] = field(default_factory=dict)
    acked: dict[Attempt, Position | None] = field(default_factory=dict)
    lost: set[Position] = field(default_factory=set)
    removed: set[int] = field(default_factory=set)
    rows: list[Row] = field(default_factory=list)
    horizon: Position | None = None
    # The start of the view by retention, since the last commit.
    floors: list[Position] = field(default_factory=lambda: [EARLIEST])
    # By run: the view of the record, and that of the record that the last write replaced. Readers
    # see the older one until the broker knows that the write is done.
    views: dict[int, View] = field(default_factory=lambda: {0: View([], None)})
    numbers: dict[int, str] = field(default_factory=dict)
    cursors: dict[str, CursorRecord] = field(default_factory=dict)
    # The first record of each.
    births: dict[str, CursorRecord] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    # For each subscription: when its first record was to be written, and the seeks in its records.
    begun_ms: dict[str, int] = field(default_factory=dict)
    seeks: dict[str, list[Seek]] = field(default_factory=dict)
    # Of message TTL, if set; the limits of retention, and those before the last change.
    ttl: Order | None = None
    limits: list[Limits] = field(default_factory=list)
    # The highest horizon so far.
    furthest: Position | None = None
    # For each producer: its record; when it was last connected. Those that the broker has forgotten
    # since.
    producers: dict[str, ProducerRecord] = field(default_factory=dict)
    seen_ms: dict[str, int] = field(default_factory=dict)
    # Since when the broker may have considered it disconnected.
    away_ms: dict[str, int] = field(default_factory=dict)
    loaded_ms: int = 0
    forgotten: set[str] = field(default_factory=set)
    # The connections that producers use; the broker may have ended one, unnoticed by its client.
    connected: dict[str, Connection] = field(default_factory=dict)
    # Requests to pass entries over; for message TTL, one for each time at which it was set.
    orders: list[Order] = field(default_factory=list)
    runs: dict[int, RunRecord] = field(default_factory=dict)
    # What runs of strategies other than publishing-order kept up to their horizons: other entries
    # are never promised again, even if they are a key's last message.
    kept: list[tuple[Position, frozenset[tuple[Position, bytes | None]]]] = field(
        default_factory=list
    )
    # Readers of compacted data may miss entries from here on, which were deleted by rule.
    takings: int = 0

    # In an open ledger's last group, and damaged: such damage cannot be distinguished from a torn
    # tail.
    excused: set[Position] = field(default_factory=set)

    def copied(self) -> Topic:
        """Returns a copy that lives on by itself. No producer is connected to it."""
        life = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, dict | set | list):
                setattr(life, name, copy(value))
        ttl = self.ttl
        life.ttl = None if ttl is None else replace(ttl)
        life.orders = [
            life.ttl if each is ttl and life.ttl is not None else replace(each)
            for each in self.orders
        ]
        life.seeks = {name: list(each) for name, each in self.seeks.items()}
        life.subscriptions = {name: each.copied() for name, each in self.subscriptions.items()}
        life.connected = {}
        life.takings += 1
        return life

    def leave_out(self) -> None:
        """After a run: entries that are not in its view are never promised again."""
        if self.horizon is not None:
            kept = frozenset((row.position, row.key) for row in self.rows)
            self.kept.append((self.horizon, kept))

    def is_left_out(self, position: Position, key: bytes) -> bool:
        return any(
            position <= horizon and (position, key) not in kept for horizon, kept in self.kept
        )

    def is_gone(self, position: Position) -> bool:
        """Returns whether no reader may expect that raw entry any more."""
        return position.ledger_id in self.removed or position in self.excused

    @property
    def view(self) -> View:
        return View(self.rows, self.horizon)

    @property
    def end(self) -> Position | None:
        """Returns the end of a terminated topic, after which nothing follows."""
        record = self.record
        return position_of(record.terminated_at) if record.HasField("terminated_at") else None

    @property
    def floor(self) -> Position:
        return (
            position_of(self.record.retention_floor)
            if self.record.HasField("retention_floor")
            else EARLIEST
        )


def position_of(record: Any) -> Position:
    return Position(record.ledger_id, record.entry_id)


def short_name(name: str) -> str:
    return name.rsplit("/", 1)[-1]
