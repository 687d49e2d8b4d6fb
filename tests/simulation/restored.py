"""Follows a snapshot of the broker: after a restore, the state of its save is in force again.

The part of the oracle (tests/simulation/oracle.py) that gets the write of a restore. Topics are
lives of their own afterwards, as deleted and recreated ones are; but each begins as its life was at
the save. Sent entries that came later are forgotten, and may be stored again. Cursors have new
incarnations: acknowledgements that clients keep are not of the restored state.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.v1.records_pb2 import CursorRecord, SnapshotRecords, TopicRecord
from tests.simulation.kafka_life import KafkaLife
from tests.simulation.life import Topic, short_name
from tests.simulation.told import Told

_TOPIC = b"topic/"
_CURSOR = b"cursor/"


class Saved(NamedTuple):
    """The records of a snapshot, and the lives of its topics at that time."""

    name: str
    pairs: dict[bytes, bytes]
    topics: dict[str, Topic]
    kafka: dict[str, KafkaLife]


class RestoredChecks(Told):
    """Remembers snapshots, and goes back to one."""

    def saving(self, records: SnapshotRecords) -> None:
        """A snapshot is being saved: no topic is loaded, and nothing changes meanwhile."""
        self.note(f"snapshot {records.name} is being saved")
        for topic in self.topics.values():
            self.learn(topic)
        self._saved.append(
            Saved(
                records.name,
                {pair.key: pair.value for pair in records.pairs},
                {name: each.copied() for name, each in self.topics.items()},
                {name: each.copied() for name, each in self.kafka.items()},
            )
        )

    def _restored_by(
        self, puts: Mapping[bytes, bytes], deletes: tuple[bytes, ...], store: MemoryKeyValue
    ) -> Saved | None:
        """Returns the snapshot whose records this write makes those of the store, if any."""
        before, written = {key for key, _ in store.scan(_TOPIC)}, _without_incarnations(puts)
        left = (before | {key for key in puts if key.startswith(_TOPIC)}) - {*deletes}
        fitting = (
            each
            for each in self._saved
            if left <= each.pairs.keys()
            and _without_incarnations(each.pairs).items() <= written.items()
        )
        return max(fitting, key=lambda each: len(each.pairs), default=None)

    def _on_restored(self, saved: Saved, puts: Mapping[bytes, bytes]) -> None:
        self.note(f"snapshot {saved.name} is restored")
        for topic in self.topics.values():
            topic.removed.update(topic.record.ledger_ids)
            topic.takings += 1
        self.topics.clear()
        self.kafka.clear()
        self._numbers.clear()
        for name, life in saved.topics.items():
            self.topics[name] = topic = life.copied()
            self._numbers[name] = topic.numbers
            topic.record = TopicRecord.FromString(saved.pairs[_TOPIC + name.encode()][1:])
            topic.orders += self.orders.get(name, ())
            for ledger_id in topic.record.ledger_ids:
                self._of_ledger[ledger_id] = topic
            for sub in topic.subscriptions.values():
                for move in self.moves.get((name, sub.name), ()):
                    move.may_find(sub)
            for cursor in list(topic.cursors.values()):
                self._on_restored_cursor(topic, cursor, _cursor(puts[_key(cursor)]))
            self.note(f"{short_name(name)} is back, with ledgers {[*topic.record.ledger_ids]}")
        for name, log in saved.kafka.items():
            self.kafka[name] = log.copied()

    def _on_restored_cursor(self, topic: Topic, before: CursorRecord, record: CursorRecord) -> None:
        if record.incarnation == before.incarnation:
            self.fail(f"{record.subscription} is restored with the incarnation that it had")
        topic.cursors[record.subscription] = record
        sub = topic.subscriptions.get(record.subscription)
        if sub is not None:
            sub.incarnation = record.incarnation


def _key(record: CursorRecord) -> bytes:
    return _CURSOR + f"{record.topic}\0{record.subscription}".encode()


def _cursor(value: bytes) -> CursorRecord:
    return CursorRecord.FromString(value[1:])


def _without_incarnations(pairs: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Returns the pairs; cursors are records without their incarnations."""
    return {
        key: _without_incarnation(value) if key.startswith(_CURSOR) else value
        for key, value in pairs.items()
    }


def _without_incarnation(value: bytes) -> bytes:
    record = _cursor(value)
    record.ClearField("incarnation")
    return record.SerializeToString(deterministic=True)
