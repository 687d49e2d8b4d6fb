"""Checks that raw ledgers are trimmed only when unneeded and not kept by a limit.

This part of the oracle (tests/simulation/oracle.py) observes ledgers that leave a topic.
"""

from __future__ import annotations

from math import inf

from ledgerfold.storage.entry import EARLIEST, LATEST, Position
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.v1.records_pb2 import CursorRecord, LedgerRecord, TopicRecord
from tests.simulation.life import Attempt, Topic, position_of, short_name
from tests.simulation.limits import let_go, unneeded
from tests.simulation.subscriptions import covers
from tests.simulation.told import Told


class TrimmedChecks(Told):
    """Compares trimmed ledgers with cursors, producers' records and retention."""

    def _remember_ledger(self, topic: Topic, ledger_id: int, store: MemoryKeyValue) -> None:
        """Remembers what its record names: repeating such an entry gets an answer as a
        duplicate.
        """
        value = store.get(f"ledger/{ledger_id:020d}".encode())
        if value is None:
            return
        ends = [position_of(each.last) for each in LedgerRecord.FromString(value[1:]).segments]
        for position, entry in self.entries(ledger_id).items():
            attempt = self.attempt_of(topic, entry)
            if attempt is not None and position <= max(ends, default=EARLIEST):
                self.stored(topic, position, attempt)
                if topic.acked.get(attempt, position) is None:
                    topic.acked[attempt] = position

    def _on_gone(
        self, topic: Topic, record: TopicRecord, gone: list[int], store: MemoryKeyValue
    ) -> None:
        """Checks (a): raw ledgers leave only after all cursors have passed them, or on request."""
        for ledger_id in gone:
            self._remember_ledger(topic, ledger_id, store)
        self.note(f"{short_name(topic.name)}: raw ledgers {gone} go")
        topic.removed.update(gone)
        places = [at for at in topic.at if at.ledger_id in gone and at not in topic.excused]
        if not places:
            return
        is_order = self._is_truncated(topic)
        passed = topic.horizon or EARLIEST
        if record.HasField("truncated_upto"):
            passed = max(passed, position_of(record.truncated_upto))
        if record.HasField("retention_floor"):
            topic.takings += 1
        for position in sorted(places):
            what = f"{topic.at[position]} at {position} is trimmed"
            if not (is_order or self.is_damaged or self.is_told(topic, topic.at[position])):
                self.fail(f"{what}, and no record tells that it was stored")
            if record.compaction_cursor and position > passed and not is_order:
                self.fail(f"{what}; the horizon is {passed}")
            is_shown = topic.horizon is not None and position <= topic.horizon
            if is_order or not (record.compaction_cursor and is_shown):
                topic.lost.add(position)
                topic.takings += 1
        if not is_order:
            self._check_cursors(topic, places)
            self._check_retention(topic, record, gone)
        nobody = not (record.compaction_cursor or topic.name in self.subscribed or is_order)
        if nobody and self.profile != "pulsar-4":
            self.fail(f"raw ledgers {gone} are trimmed though nobody has a cursor")

    def _is_truncated(self, topic: Topic) -> bool:
        """Returns whether an administrator may be truncating now."""
        if self.is_settling:
            return topic.name in self.ever_truncated
        return self.truncating[topic.name] > 0

    def _check_retention(self, topic: Topic, record: TopicRecord, gone: list[int]) -> None:
        """Checks that no limit keeps the ledger. The oracle never underestimates the unneeded
        entries.
        """
        known = [self.ledger(each) for each in topic.record.ledger_ids]
        records = [each for each in known if each is not None]
        # A subscription requested or moved back after the choice starts with the rest.
        decided_ms = min(map(self.decided_ms, gone))
        needed = self.needed_from(topic, record.compaction_cursor, decided_ms)
        free = unneeded(records, needed)
        for limits in topic.limits:
            may_go = let_go(free, limits, self.asked_ms())
            if set(gone) <= set(may_go):
                return
        told = ", ".join(f"{each.age_ms} ms, {each.size_bytes} bytes" for each in topic.limits)
        self.fail(f"raw ledgers {gone} go, and retention keeps them: {told}")

    def may_go(self, topic: Topic) -> list[int]:
        """Returns the raw ledgers that a trim removes now, without readers and after every
        change.
        """
        known = [self.ledger(each) for each in topic.record.ledger_ids]
        records = [each for each in known if each is not None]
        told_upto = [position_of(each.position) for each in topic.producers.values()]
        needed = min([self.needed_from(topic, topic.record.compaction_cursor), *told_upto])
        return let_go(unneeded(records, needed), topic.limits[-1], self.now_ms())

    def needed_from(self, topic: Topic, has_cursor: bool, before_ms: float = inf) -> Position:
        """Returns the first entry that some cursor or age needs, as far as records show.
        `has_cursor`: compaction has a cursor, too.
        """
        begun_ms, known = topic.begun_ms, topic.cursors.items()
        cursors = [each for name, each in known if begun_ms.get(name, 0) < before_ms]
        if not (cursors or has_cursor):
            # All are this young, so one of the same millisecond was the last: without any, none may
            # be trimmed.
            cursors = list(topic.cursors.values())
        passed = [_passed(topic, each, before_ms) for each in cursors]
        record = topic.record
        if has_cursor:
            compacted = topic.horizon or EARLIEST
            if record.HasField("truncated_upto"):
                compacted = max(compacted, position_of(record.truncated_upto))
            passed.append(compacted)
        if not passed and self.profile != "pulsar-4":
            return EARLIEST
        return min(passed, default=LATEST)

    def is_told(self, topic: Topic, attempt: Attempt) -> bool:
        """Returns whether a record states that it was stored; otherwise, its header must."""
        record = topic.producers.get(attempt.producer)
        is_known = record is not None and attempt.sequence_id <= record.last_sequence_id
        return is_known or attempt.producer in topic.forgotten

    def _check_cursors(self, topic: Topic, places: list[Position]) -> None:
        """Checks that messages not acknowledged by a durable subscription are kept."""
        for name, record in topic.cursors.items():
            sub = topic.subscriptions.get(name)
            seeks = topic.seeks.get(name, [])
            begun_ms = max([topic.begun_ms.get(name, 0), *(each.time_ms for each in seeks)])
            decided_ms = min(self.decided_ms(each.ledger_id) for each in places)
            if sub is None or sub.is_moving or begun_ms >= decided_ms:
                continue
            upto = topic.horizon if sub.has_compacted and topic.horizon is not None else EARLIEST
            for position in places:
                is_due = sub.is_due(position, topic.at[position].step)
                if position > upto and is_due and not covers(record, position):
                    self.fail(f"{position} is trimmed, and {name} has not acknowledged it")


def _passed(topic: Topic, cursor: CursorRecord, before_ms: float) -> Position:
    """Returns the position up to which a subscription needed nothing at that time, or later."""
    seeks = topic.seeks.get(cursor.subscription, [])
    before = [each.before for each in seeks if each.time_ms >= before_ms]
    return max([position_of(cursor.mark_delete), *before])
