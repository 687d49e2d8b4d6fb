"""Checks that a durable cursor covers nothing without a reason.

The part of the oracle (tests/simulation/oracle.py) that gets each write of a cursor.
"""

from __future__ import annotations

from collections.abc import Mapping

from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.storage.entry import Position
from ledgerfold.v1.records_pb2 import (
    CursorRecord,
)
from tests.simulation.life import Attempt, Seek, Topic, position_of
from tests.simulation.subscriptions import Subscription, covers
from tests.simulation.told import Told


class PassedChecks(Told):
    """Compares each cursor's record with what was acknowledged, sought and expired."""

    def _on_cursor(self, record: CursorRecord) -> None:
        """Checks that the cursor covers nothing without a reason (subscriptions.py)."""
        topic = self.topics.get(record.topic)
        if topic is None:
            return
        name, before = record.subscription, topic.cursors.get(record.subscription)
        topic.cursors[name] = record
        if before is None:
            topic.begun_ms[name] = self.asked_ms()
        sub = topic.subscriptions.get(name)
        if before is None or sub is None:
            if not self.begins_early.get((record.topic, name), False):
                topic.births.setdefault(name, record)
            if sub is not None:
                sub.incarnation = record.incarnation
            return
        if sub.incarnation is None:
            sub.incarnation = before.incarnation
        if record.incarnation != sub.incarnation:
            sub.incarnation = record.incarnation
            seek = Seek(self.now_ms(), position_of(before.mark_delete))
            topic.seeks.setdefault(name, []).append(seek)
            self._on_moved(topic, sub, record)
        self.examine(topic, sub)

    def examine(self, topic: Topic, sub: Subscription) -> None:
        """Returns why its record covers entries that were not examined yet."""
        record = topic.cursors.get(sub.name)
        if record is None:
            return
        for position, attempt in topic.at.items():
            if position in sub.examined or topic.is_gone(position):
                continue
            if covers(record, position):
                sub.examined.add(position)
                if not sub.is_passed(position):
                    self._on_passed(topic, sub, position, attempt)

    def _on_passed(
        self, topic: Topic, sub: Subscription, position: Position, attempt: Attempt
    ) -> None:
        """Passed durably, although no consumer has acknowledged it."""
        birth = topic.births.get(sub.name)
        if birth is not None and not sub.has_moved and covers(birth, position):
            return
        if sub.begins_behind(position) or self._is_left_out(topic, sub, position):
            return
        if not (self.may_be_passed(topic, sub.name, position) or self.is_damaged):
            self.fail(f"{sub.name} passes {attempt} at {position}, and nobody acknowledged it")

    def expired(self, topic: Topic, before_ms: int) -> list[tuple[CursorRecord, Position]]:
        """Returns the messages published before then, up to the first later one, with the cursor
        of each existing subscription: it has passed them, once it got the request.
        """
        there = [at for each in topic.record.ledger_ids for at in self.entries(each)]
        old: list[Position] = []
        acked = set(topic.acked.values())
        for position in sorted(there):
            attempt = topic.at.get(position)
            if attempt is None or attempt.publish_time_ms >= before_ms or position not in acked:
                break
            old.append(position)
        return [(record, each) for record in topic.cursors.values() for each in old]

    def check_expired(
        self, topic: Topic, old: list[tuple[CursorRecord, Position]], cursors: Mapping[str, Cursor]
    ) -> None:
        for record, position in old:
            name = record.subscription
            sub, cursor = topic.subscriptions.get(name), cursors.get(name)
            if sub is None or cursor is None or sub.is_moving or self.is_damaged:
                continue
            if cursor.incarnation != record.incarnation:
                # A seek ended meanwhile: it may have come after the expiry.
                continue
            if not (cursor.is_acknowledged(position) or topic.is_gone(position)):
                self.fail(f"{name} keeps {position}, which has expired")

    def _is_left_out(self, topic: Topic, sub: Subscription, position: Position) -> bool:
        """Returns whether a reader of the view skips entries that compaction removed."""
        if not sub.has_compacted or topic.furthest is None or position > topic.furthest:
            return False
        is_shown = any(row.position == position for row in topic.rows)
        return not is_shown or position < topic.floor or topic.takings > 0

    def _on_moved(self, topic: Topic, sub: Subscription, record: CursorRecord) -> None:
        """Moved by one of the requested seeks: to before the first entry from there on."""
        mark_delete = position_of(record.mark_delete)
        there = [each for each in topic.at if not topic.is_gone(each)]
        for number, to in enumerate(sub.moves_to):
            early = [each for each in there if mark_delete < each < to]
            late = [each for each in there if to <= each <= mark_delete]
            late = [each for each in late if not self._is_left_out(topic, sub, each)]
            # One write may have the move, and a later request's effect. (examine() counts.)
            if early or not self.may_all_be_passed(topic, sub.name, late):
                continue
            others = sub.moves_to[number + 1 :]
            sub.moved(to)
            sub.moves_to = others
            return
        if not self.is_damaged:
            asked = ", ".join(map(str, sub.moves_to)) or "anywhere"
            self.fail(f"{sub.name} was to be moved to {asked}, and stands at {mark_delete}")
