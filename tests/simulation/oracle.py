"""The invariants: a plain memory of what was sent, acknowledged and read.

It gets each receipt and delivery when the broker sends it, and each metadata write when it takes
effect, the only moment at which durable state changes. It reads files with a separate reader
(tests/simulation/storedlog.py). Letters are the invariants of docs/ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.names import deletion_vector_path
from ledgerfold.storage.partition_names import parse_partition, partition_name
from ledgerfold.v1.compactor_pb2 import CleanPlan
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    RUN_STATE_SUCCESS,
    CursorRecord,
    LedgerRecord,
    PartitionedTopicRecord,
    Policies,
    ProducerRecord,
    RunRecord,
    TopicRecord,
)
from tests.simulation.committed import CommittedChecks
from tests.simulation.kafka_life import KafkaLife
from tests.simulation.kafka_limits import deletable
from tests.simulation.life import Topic, position_of, short_name
from tests.simulation.limits import AWAY_MS, Limits
from tests.simulation.passed import PassedChecks
from tests.simulation.restored import RestoredChecks
from tests.simulation.storedlog import Stored
from tests.simulation.subscriptions import Order, Subscription
from tests.simulation.trimmed import TrimmedChecks

# The worker's description of a topic here.
KAFKA_LABEL = "{}-0"


class Oracle(PassedChecks, TrimmedChecks, CommittedChecks, RestoredChecks):
    """All checks; it gets each metadata write, too."""

    # Metadata

    def on_write(
        self, puts: Mapping[bytes, bytes], deletes: tuple[bytes, ...], store: MemoryKeyValue
    ) -> None:
        """Called right before the write takes effect."""
        restored = self._restored_by(puts, deletes, store) if self._saved else None
        if restored is not None:
            self._check_ledgers(puts, store)
            self._on_restored(restored, puts)
            return
        if self.foreign:
            puts = {key: value for key, value in puts.items() if not self._is_foreign(key)}
            deletes = tuple(key for key in deletes if not self._is_foreign(key))
        for key, value in puts.items():
            if key.startswith(b"producer/"):
                self._on_producer(ProducerRecord.FromString(value[1:]))
        self._check_ledgers(puts, store)
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
                self._on_cursor(CursorRecord.FromString(value[1:]))
            elif key.startswith(b"run/"):
                self._on_run(RunRecord.FromString(value[1:]), puts)
        for key in deletes:
            if key.startswith(b"partitioned/"):
                self.partitions.pop(key[12:].decode(), None)
                self.parents.pop(key[12:].decode(), None)
            elif key.startswith(b"topic/"):
                name = key[6:].decode()
                self.kafka.pop(name, None)
                topic = self.topics.pop(name, None)
                self._numbers.pop(name, None)
                if topic is not None:
                    topic.removed.update(topic.record.ledger_ids)
                    topic.takings += 1
                    self.note(f"{short_name(name)} is deleted")
            elif key.startswith(b"producer/"):
                name, _, producer = key[9:].decode().partition("\0")
                if f"topic/{name}".encode() not in deletes:
                    self._on_forgotten(name, producer)
            elif key.startswith(b"cursor/"):
                name, _, subscription = key[7:].decode().partition("\0")
                if name in self.topics:
                    self.topics[name].cursors.pop(subscription, None)
                    self.topics[name].births.pop(subscription, None)
                    self.topics[name].subscriptions.pop(subscription, None)

    def _on_kafka_topic(self, record: TopicRecord) -> None:
        life = self.kafka.get(record.name)
        if life is None:
            life = self.kafka[record.name] = KafkaLife(record.name, self.fail)
            self.note(f"{short_name(record.name)} comes into being")
        before, now_ms = life.record.kafka, self.asked_ms()

        def may_start_at(record: TopicRecord) -> bool:
            start, configs = record.kafka.log_start_offset, [before.config, record.kafka.config]
            bases = [each.base_offset for each in before.segments]
            for config in configs:
                count = deletable(before, self._stored, now_ms, config, life.in_flight_bytes)
                # All of them: an empty one has replaced the last.
                may_be = count + 1 >= len(bases) or start <= bases[count]
                if count and may_be:
                    return True
            return False

        life.on_record(record, may_start_at)

    def may_retain(self, life: KafkaLife) -> int:
        """Returns how many of the oldest segments retention may delete now."""
        log = life.record.kafka
        return deletable(log, self._stored, self.now_ms(), log.config)

    def _stored(self, ledger_id: int) -> Iterable[Stored]:
        return self.entries(ledger_id).values()

    def planned(self, plan: CleanPlan) -> None:
        """Returns the worker's plan."""
        for life in self.kafka.values():
            if plan.topic == KAFKA_LABEL.format(short_name(life.name)) and not plan.dry_run:
                life.on_plan(plan)

    def _is_foreign(self, key: bytes) -> bool:
        """Returns whether it is the key of a record of a topic that no client uses here."""
        return key.partition(b"/")[2].partition(b"\0")[0].decode() in self.foreign

    def _check_ledgers(self, puts: Mapping[bytes, bytes], store: MemoryKeyValue) -> None:
        for key, value in puts.items():
            if key.startswith(b"ledger/"):
                self._on_ledger(key, LedgerRecord.FromString(value[1:]), store)

    def _on_ledger(self, key: bytes, record: LedgerRecord, store: MemoryKeyValue) -> None:
        """(h): a segment recorded as sealed is on the disk as recorded."""
        if record.state == LEDGER_STATE_DELETING:
            return
        value = store.get(key)
        before = LedgerRecord() if value is None else LedgerRecord.FromString(value[1:])
        # One that was being made or deleted may have lacked its files.
        is_live = before.state != LEDGER_STATE_DELETING
        known = {
            (each.path, each.size_bytes) for each in before.segments if each.sealed and is_live
        }
        for segment in record.segments:
            if segment.sealed and (segment.path, segment.size_bytes) not in known:
                path = self._ledgers / segment.path
                if not self._disk.is_durable(path, segment.size_bytes):
                    self.fail(
                        f"{segment.path} is recorded as sealed with {segment.size_bytes} bytes, "
                        "and is not on the disk (h)"
                    )
                beside = self._ledgers / deletion_vector_path(segment.path)
                size_bytes = segment.dead.size_bytes
                if size_bytes and not self._disk.is_durable(beside, size_bytes):
                    self.fail(f"{beside.name} is recorded, and is not on the disk (h)")

    def _on_topic(
        self, record: TopicRecord, puts: Mapping[bytes, bytes], store: MemoryKeyValue
    ) -> None:
        topic = self.topics.get(record.name)
        if topic is None:
            topic = self.topics[record.name] = Topic(record.name, TopicRecord(name=record.name))
            topic.numbers = self._numbers.setdefault(record.name, {})
            topic.orders += self.orders.get(record.name, ())
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
        if record.epoch != before.epoch:
            topic.loaded_ms = self.asked_ms()
        end, topic.record = topic.end, record
        self._see_policies(topic)
        if topic.floor != topic.floors[-1]:
            topic.floors.append(topic.floor)
        if end is not None and topic.end != end:
            self.fail(f"{record.name} was terminated at {end}, and now {topic.end}")
        if end is None and topic.end is not None:
            self.note(f"{short_name(record.name)} is terminated at {topic.end}")
            self.terminated.add(record.name)

    def policies_of(self, topic: Topic) -> Policies:
        """Returns its own policies, or those of the partitioned topic that it belongs to."""
        partition = parse_partition(topic.name)
        parent = None if partition is None else self.parents.get(partition.topic)
        return topic.record.policies if parent is None else parent

    def _see_policies(self, topic: Topic) -> None:
        """Records the present policies. A trim uses those in force when it decided."""
        policies = self.policies_of(topic)
        limits = Limits.of(policies)
        if not topic.limits or topic.limits[-1] != limits:
            topic.limits = [*topic.limits[-1:], limits]
        ttl, ttl_ms = topic.ttl, policies.message_ttl_ms
        if (ttl.limit_ms if ttl is not None else 0) == ttl_ms:
            return
        if ttl is not None:
            self.end_order(topic, ttl)
        topic.ttl = Order(limit_ms=ttl_ms) if ttl_ms > 0 else None
        if topic.ttl is not None:
            topic.orders.append(topic.ttl)

    def _on_partitioned(
        self, record: PartitionedTopicRecord, puts: Mapping[bytes, bytes], store: MemoryKeyValue
    ) -> None:
        """(a): partitions are created with it, and with the first one's subscriptions, from
        EARLIEST.
        """
        name, before = record.name, self.partitions.get(record.name, 0)
        self.partitions[name], self.parents[name] = record.partitions, record.policies
        if record.partitions < before:
            self.fail(f"{name} had {before} partitions, and has {record.partitions}")
        first = self.topics.get(partition_name(name, 0))
        # A subscription that was unreported at the time of the call may or may not be copied.
        asked = min(self.growing.values(), default=0 if self.is_settling else None)
        known = first.subscriptions.values() if first is not None else ()
        told = {each.name for each in known if asked is None or each.made_step < asked}
        told &= first.cursors.keys() if first is not None else set()
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
        for topic in self.topics.values():
            partition_of = parse_partition(topic.name)
            if partition_of is not None and partition_of.topic == name:
                self._see_policies(topic)

    def _new_partition(self, partition: str, subscriptions: list[str]) -> None:
        topic = self.topics[partition] = Topic(partition, TopicRecord(name=partition))
        topic.numbers = self._numbers.setdefault(partition, {})
        self.note(f"{short_name(partition)} comes into being as a partition")
        self.subscribed.add(partition)
        for name in subscriptions:
            topic.subscriptions[name] = Subscription(name, from_earliest=True, step=0)

    def _on_run(self, run: RunRecord, puts: Mapping[bytes, bytes]) -> None:
        """(i), (j): a successful run is published by the same write."""
        topic = self.topics.get(run.topic)
        if topic is None:
            return
        topic.runs[run.number] = run
        if run.state == RUN_STATE_SUCCESS and run.ledger_id >= 0:
            value = puts.get(f"topic/{run.topic}".encode())
            record = TopicRecord() if value is None else TopicRecord.FromString(value[1:])
            if record.compacted.run_number != run.number:
                self.fail(f"run {run.number} is recorded as a success in a write of its own")

    # Producers

    def _on_producer(self, record: ProducerRecord) -> None:
        """Checks that the entries that the record counts as stored are stored: a load trusts it."""
        self._numbers.setdefault(record.topic, {})[record.number] = record.name
        topic = self.topics.get(record.topic)
        if topic is not None:
            topic.producers[record.name] = record

    def _on_forgotten(self, name: str, producer: str) -> None:
        """Only a producer that was disconnected for long; what it sends again is new."""
        topic = self.topics.get(name)
        if topic is None:
            return
        topic.producers.pop(producer, None)
        now_ms, seen_ms = self.asked_ms(), topic.seen_ms.get(producer, 0)
        connection = topic.connected.get(producer)
        away_ms = topic.away_ms.get(producer, seen_ms)
        if connection is not None:
            away_ms = now_ms if connection.served_until_ms is None else connection.served_until_ms
        if now_ms - max(away_ms, topic.loaded_ms) <= AWAY_MS:
            self.fail(f"{producer} is forgotten {now_ms - seen_ms} ms after it was there")
        self.note(f"{short_name(name)}: {producer} is forgotten")
        topic.forgotten.add(producer)
        for attempt in [each for each in topic.place if each.producer == producer]:
            del topic.place[attempt]
