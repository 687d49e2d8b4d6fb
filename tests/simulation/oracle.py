"""What must hold, whatever happens: a plain memory of what was sent, promised and shown.

It hears of each receipt and delivery when the broker sends it, and of each metadata write when it
takes effect, the one moment at which durable state changes. It looks at files with a reader of its
own (tests/simulation/storedlog.py). Letters are the invariants of docs/ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from ledgerfold.broker.ground.names import partition_name
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.strategies.catalogue import DEFAULT
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    RUN_STATE_SUCCESS,
    CursorRecord,
    LedgerRecord,
    PartitionedTopicRecord,
    ProducerRecord,
    RunRecord,
    TopicRecord,
)
from tests.model.choice_model import is_strategic, left_by
from tests.simulation.kafka_life import KafkaLife
from tests.simulation.life import Topic, position_of, short_name
from tests.simulation.storedlog import Row, numbered_anew, rows_of
from tests.simulation.subscriptions import Subscription
from tests.simulation.told import Told


class Oracle(Told):
    """All of it: told of each metadata write, too."""

    # Metadata

    def on_write(
        self, puts: Mapping[bytes, bytes], deletes: tuple[bytes, ...], store: MemoryKeyValue
    ) -> None:
        """Called right before the write takes effect."""
        for key, value in puts.items():
            if key.startswith(b"producer/"):
                producer = ProducerRecord.FromString(value[1:])
                self._numbers.setdefault(producer.topic, {})[producer.number] = producer.name
        for key, value in puts.items():
            if key.startswith(b"ledger/"):
                self._on_ledger(key, LedgerRecord.FromString(value[1:]), store)
        for key, value in puts.items():
            if key.startswith(b"partitioned/"):
                record = PartitionedTopicRecord.FromString(value[1:])
                self._on_partitioned(record, puts, store)
            elif key.startswith(b"topic/"):
                topic_record = TopicRecord.FromString(value[1:])
                if topic_record.HasField("kafka"):
                    self._on_kafka_topic(topic_record)
                else:
                    self._on_topic(topic_record, puts, store)
            elif key.startswith(b"cursor/"):
                cursor = CursorRecord.FromString(value[1:])
                if cursor.topic in self.topics:
                    self.topics[cursor.topic].cursors[cursor.subscription] = cursor
            elif key.startswith(b"run/"):
                self._on_run(RunRecord.FromString(value[1:]), puts)
        for key in deletes:
            if key.startswith(b"partitioned/"):
                self.partitions.pop(key[12:].decode(), None)
            elif key.startswith(b"topic/"):
                name = key[6:].decode()
                self.kafka.pop(name, None)
                topic = self.topics.pop(name, None)
                self._numbers.pop(name, None)
                if topic is not None:
                    topic.removed.update(topic.record.ledger_ids)
                    topic.takings += 1
                    self.note(f"{short_name(name)} is deleted")
            elif key.startswith(b"cursor/"):
                name, _, subscription = key[7:].decode().partition("\0")
                if name in self.topics:
                    self.topics[name].cursors.pop(subscription, None)
                    self.topics[name].subscriptions.pop(subscription, None)

    def _on_kafka_topic(self, record: TopicRecord) -> None:
        life = self.kafka.get(record.name)
        if life is None:
            life = self.kafka[record.name] = KafkaLife(record.name, self.fail)
            self.note(f"{short_name(record.name)} comes into being")
        life.on_record(record)

    def _on_ledger(self, key: bytes, record: LedgerRecord, store: MemoryKeyValue) -> None:
        """(h): what a record calls sealed is on the disk as it says."""
        if record.state == LEDGER_STATE_DELETING:
            return
        before = store.get(key)
        known = (
            set()
            if before is None
            else {
                (each.path, each.size_bytes)
                for each in LedgerRecord.FromString(before[1:]).segments
                if each.sealed
            }
        )
        for segment in record.segments:
            if segment.sealed and (segment.path, segment.size_bytes) not in known:
                path = self._ledgers / segment.path
                if not self._disk.is_durable(path, segment.size_bytes):
                    self.fail(
                        f"{segment.path} is recorded as sealed with {segment.size_bytes} bytes, "
                        "and is not on the disk (h)"
                    )

    def _on_topic(
        self, record: TopicRecord, puts: Mapping[bytes, bytes], store: MemoryKeyValue
    ) -> None:
        topic = self.topics.get(record.name)
        if topic is None:
            topic = self.topics[record.name] = Topic(record.name, TopicRecord(name=record.name))
            topic.numbers = self._numbers.setdefault(record.name, {})
            self.note(f"{short_name(record.name)} comes into being")
        before, view_before = topic.record, topic.view
        for ledger_id in record.ledger_ids:
            self._of_ledger[ledger_id] = topic
        is_new = record.compacted != before.compacted
        if record.HasField("compacted") and is_new:
            self._on_commit(topic, record, puts, store)
        gone = [each for each in before.ledger_ids if each not in record.ledger_ids]
        if gone:
            self._on_gone(topic, record, gone, store)
        if before.HasField("compacted") and not record.HasField("compacted"):
            self.note(f"{short_name(record.name)}: the compacted view is dropped")
            topic.takings += 1
            topic.rows, topic.horizon = [], None
            topic.lost.update(at for at in topic.at if at.ledger_id in topic.removed)
        topic.views = {
            before.compacted.run_number: view_before,
            record.compacted.run_number: topic.view,
        }
        if len(record.ledger_ids) > 1 and record.ledger_ids[-1] not in before.ledger_ids:
            self.note(f"{short_name(record.name)}: ledger {record.ledger_ids[-1]} begins")
        end, topic.record = topic.end, record
        if topic.floor != topic.floors[-1]:
            topic.floors.append(topic.floor)
        if end is not None and topic.end != end:
            self.fail(f"{record.name} was terminated at {end}, and now {topic.end}")
        if end is None and topic.end is not None:
            self.note(f"{short_name(record.name)} is terminated at {topic.end}")
            self.terminated.add(record.name)

    def _on_partitioned(
        self, record: PartitionedTopicRecord, puts: Mapping[bytes, bytes], store: MemoryKeyValue
    ) -> None:
        """(a): partitions come with it, and with the first one's subscriptions, from EARLIEST."""
        name, before = record.name, self.partitions.get(record.name, 0)
        self.partitions[name] = record.partitions
        if record.partitions < before:
            self.fail(f"{name} had {before} partitions, and has {record.partitions}")
        first = self.topics.get(partition_name(name, 0))
        # One that is being created, and of which nobody was told, may come or not.
        told = first.cursors.keys() & first.subscriptions.keys() if first is not None else set()
        for index in range(record.partitions):
            partition = partition_name(name, index)
            key = f"topic/{partition}".encode()
            if store.get(key) is not None or (index < before and key not in puts):
                continue
            if key not in puts:
                self.fail(f"{partition} does not come with {name}")
            prefix = f"cursor/{partition}\0".encode()
            found = [CursorRecord.FromString(puts[k][1:]) for k in puts if k.startswith(prefix)]
            from_earliest = [
                each.subscription for each in found if position_of(each.mark_delete) == EARLIEST
            ]
            if missing := told - set(from_earliest):
                self.fail(f"{partition} comes without {sorted(missing)}, from the beginning")
            self._new_partition(partition, from_earliest)

    def _new_partition(self, partition: str, subscriptions: list[str]) -> None:
        topic = self.topics[partition] = Topic(partition, TopicRecord(name=partition))
        topic.numbers = self._numbers.setdefault(partition, {})
        self.note(f"{short_name(partition)} comes into being as a partition")
        self.subscribed.add(partition)
        for name in subscriptions:
            topic.subscriptions[name] = Subscription(name, from_earliest=True, step=0)

    def _remember_ledger(self, topic: Topic, ledger_id: int, store: MemoryKeyValue) -> None:
        """All that its record names: who sends such an entry again is told that it is stored."""
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
        """(a): raw ledgers go only when all who need them have passed them, or by an order."""
        for ledger_id in gone:
            self._remember_ledger(topic, ledger_id, store)
        self.note(f"{short_name(topic.name)}: raw ledgers {gone} go")
        topic.removed.update(gone)
        places = [at for at in topic.at if at.ledger_id in gone and at not in topic.excused]
        if not places:
            return
        is_order = topic.name in self.truncated
        passed = topic.horizon or EARLIEST
        if record.HasField("truncated_upto"):
            passed = max(passed, position_of(record.truncated_upto))
        if record.HasField("retention_floor"):
            topic.takings += 1
        for position in sorted(places):
            is_compacted = record.compaction_cursor and position <= passed
            if is_order or not record.compaction_cursor:
                topic.lost.add(position)
                topic.takings += 1
            elif not is_compacted:
                self.fail(f"{topic.at[position]} at {position} is trimmed; the horizon is {passed}")
        if not is_order:
            self._check_cursors(topic, places)
        nobody = not (record.compaction_cursor or topic.name in self.subscribed or is_order)
        if nobody and self.profile != "pulsar-4":
            self.fail(f"raw ledgers {gone} are trimmed though nobody has a cursor")

    def _check_cursors(self, topic: Topic, places: list[Position]) -> None:
        """What a durable subscription has not acknowledged stays."""
        for name in topic.cursors:
            sub = topic.subscriptions.get(name)
            if sub is None or self.is_vague(topic, sub):
                continue
            upto = topic.horizon if sub.has_compacted and topic.horizon is not None else EARLIEST
            for position in places:
                if position > upto and sub.is_due(position, topic.at[position].step):
                    self.fail(f"{position} is trimmed, and {name} has not acknowledged it")

    def _on_run(self, run: RunRecord, puts: Mapping[bytes, bytes]) -> None:
        """(i), (j): a run that ends well is published by the same write."""
        topic = self.topics.get(run.topic)
        if topic is None:
            return
        topic.runs[run.number] = run
        if run.state == RUN_STATE_SUCCESS and run.ledger_id >= 0:
            value = puts.get(f"topic/{run.topic}".encode())
            record = TopicRecord() if value is None else TopicRecord.FromString(value[1:])
            if record.compacted.run_number != run.number:
                self.fail(f"run {run.number} is recorded as a success in a write of its own")

    # Compaction

    def _on_commit(
        self, topic: Topic, record: TopicRecord, puts: Mapping[bytes, bytes], store: MemoryKeyValue
    ) -> None:
        """(d), (i), (j): the new view is what the model leaves, published in one write."""
        compacted, horizon = record.compacted, position_of(record.compacted.horizon)
        self.note(
            f"{short_name(topic.name)}: run {compacted.run_number} commits, horizon {horizon}"
        )
        run = puts.get(f"run/{topic.name}\0{compacted.run_number:020d}".encode())
        ledger = puts.get(f"ledger/{compacted.ledger_id:020d}".encode())
        if run is None or ledger is None:
            self.fail(f"the commit of run {compacted.run_number} is not one write")
            return
        previous = topic.record.compacted
        if topic.record.HasField("compacted"):
            old = puts.get(f"ledger/{previous.ledger_id:020d}".encode())
            is_old = store.get(f"ledger/{previous.ledger_id:020d}".encode()) is not None
            if is_old and (
                old is None or LedgerRecord.FromString(old[1:]).state != LEDGER_STATE_DELETING
            ):
                self.fail(
                    f"the commit of run {compacted.run_number} leaves ledger {previous.ledger_id}"
                )
            if previous.run_number >= compacted.run_number:
                self.fail(f"run {compacted.run_number} commits after run {previous.run_number}")
        done = RunRecord.FromString(run[1:])
        rows = self._expected(topic, horizon, done)
        found = self.rows_of_ledger(compacted.ledger_id)
        messages = sum(each.messages for each in LedgerRecord.FromString(ledger[1:]).segments)
        if self.is_damaged and len(found) < messages:
            # It was verified, and damaged since.
            found = rows
        # Whether what counts as torn by now is in it nobody can say.
        torn = {row.key for at in topic.excused if at in topic.at for row in topic.at[at].rows}
        rows = [row for row in rows if row.key not in torn]
        shown = [row for row in found if row.key not in torn]
        if shown != rows:
            self.fail(
                f"the view of run {compacted.run_number} at {horizon} is not strategy(log): "
                f"{_difference(rows, shown)} (d)"
            )
        topic.rows, topic.horizon, topic.floors = found, horizon, [topic.floor]
        if done.strategy != DEFAULT:
            topic.leave_out()

    def _expected(self, topic: Topic, horizon: Position, run: RunRecord) -> list[Row]:
        self.learn(topic)
        after = topic.horizon or EARLIEST
        raw = {
            position: rows_of(entry)
            for ledger_id in topic.record.ledger_ids
            for position, entry in self.entries(ledger_id).items()
            if after < position <= horizon
        }
        for position, attempt in topic.at.items():
            is_due = after < position <= horizon and not topic.is_gone(position)
            if is_due and position not in raw:
                # Damaged: the run may have read it before.
                raw[position] = attempt.rows_at(position)
                if not self.is_damaged:
                    self.fail(f"the horizon passes {attempt} at {position}, which cannot be read")
        floor = position_of(run.retention_floor) if run.HasField("retention_floor") else EARLIEST
        if floor not in topic.floors:
            floors = ", ".join(map(str, topic.floors))
            self.fail(f"run {run.number} went by the floor {floor}, not by one of {floors}")
        held = [row for row in topic.rows if row.position >= floor]
        rows = [*held, *(row for _, each in sorted(raw.items()) for row in each)]
        plan = CompactionPlan(
            strategy=run.strategy,
            strategy_settings=run.strategy_settings,
            retain_null_key=run.retain_null_key,
            time_ms=run.plan_time_ms,
        )
        left = left_by(plan, [(row, row.message) for row in rows])
        expected = [rows[index] for index in left.rows]
        is_anew = self.profile == "pulsar-4" and is_strategic(plan)
        return numbered_anew(expected) if is_anew else expected

    def rows_of_ledger(self, ledger_id: int) -> list[Row]:
        return [row for entry in self.entries(ledger_id).values() for row in rows_of(entry)]


def _difference(expected: list[Row], found: list[Row]) -> str:
    missing = [row for row in expected if row not in found]
    extra = [row for row in found if row not in expected]
    return f"missing {_some(missing)}, too many {_some(extra)}"


def _some(rows: list[Row]) -> str:
    shown = [f"{row.position}/{row.message.batch_index} {row.key!r}" for row in rows[:4]]
    return f"{len(rows)} [{', '.join(shown)}]"
