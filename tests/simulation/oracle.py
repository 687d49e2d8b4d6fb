"""The invariants: a plain memory of what was sent, acknowledged and read.

It hears of each receipt and delivery when the broker sends it, and of each metadata write when it
takes effect, the one moment at which durable state changes. It looks at files with a reader of its
own (tests/simulation/storedlog.py). Letters are the invariants of docs/ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import inf

from ledgerfold.broker.subscriptions.cursor import Cursor
from ledgerfold.storage.entry import EARLIEST, LATEST, Position
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.names import deletion_vector_path
from ledgerfold.storage.partition_names import parse_partition, partition_name
from ledgerfold.storage.segment import live_messages
from ledgerfold.strategies.catalogue import DEFAULT
from ledgerfold.v1.compactor_pb2 import CleanPlan, CompactionPlan
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
from tests.model.choice_model import is_strategic, left_by
from tests.simulation.kafka_life import KafkaLife
from tests.simulation.kafka_limits import deletable
from tests.simulation.life import Attempt, Topic, position_of, short_name
from tests.simulation.limits import AWAY_MS, Limits, let_go, unneeded
from tests.simulation.storedlog import Row, Stored, difference, live_rows, numbered_anew, rows_of
from tests.simulation.subscriptions import Order, Subscription, covers
from tests.simulation.told import Told

# What a worker is told that a topic here is.
KAFKA_LABEL = "{}-0"


class Oracle(Told):
    """All of it: told of each metadata write, too."""

    # Metadata

    def on_write(
        self, puts: Mapping[bytes, bytes], deletes: tuple[bytes, ...], store: MemoryKeyValue
    ) -> None:
        """Called right before the write takes effect."""
        for key, value in puts.items():
            if key.startswith(b"producer/"):
                self._on_producer(ProducerRecord.FromString(value[1:]))
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
                # All of them: an empty one has taken the place of the last.
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
        """Records the present policies. A trim uses those in force when it chose."""
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
        """(a): partitions come with it, and with the first one's subscriptions, from EARLIEST."""
        name, before = record.name, self.partitions.get(record.name, 0)
        self.partitions[name], self.parents[name] = record.partitions, record.policies
        if record.partitions < before:
            self.fail(f"{name} had {before} partitions, and has {record.partitions}")
        first = self.topics.get(partition_name(name, 0))
        # One of which nobody was told when the call was made may come or not.
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
        """Returns whether an administrator may be taking ledgers now."""
        if self.is_settling:
            return topic.name in self.ever_truncated
        return self.truncating[topic.name] > 0

    def _check_retention(self, topic: Topic, record: TopicRecord, gone: list[int]) -> None:
        """None that a limit keeps. Of what nobody needs the oracle knows no less than there is."""
        known = [self.ledger(each) for each in topic.record.ledger_ids]
        records = [each for each in known if each is not None]
        # One that was asked for, or moved back, after the choice goes on with what is left.
        needed = self.needed_from(topic, record.compaction_cursor, self.decided_ms())
        free = unneeded(records, needed)
        for limits in topic.limits:
            may_go = let_go(free, limits, self.asked_ms())
            if set(gone) <= set(may_go):
                return
        told = ", ".join(f"{each.age_ms} ms, {each.size_bytes} bytes" for each in topic.limits)
        self.fail(f"raw ledgers {gone} go, and retention keeps them: {told}")

    def may_go(self, topic: Topic) -> list[int]:
        """The raw ledgers that a trim takes now: while nobody reads, and after every change."""
        known = [self.ledger(each) for each in topic.record.ledger_ids]
        records = [each for each in known if each is not None]
        told_upto = [position_of(each.position) for each in topic.producers.values()]
        needed = min([self.needed_from(topic, topic.record.compaction_cursor), *told_upto])
        return let_go(unneeded(records, needed), topic.limits[-1], self.now_ms())

    def needed_from(self, topic: Topic, has_cursor: bool, before_ms: float = inf) -> Position:
        """The last entry that no cursor needs any more that is as old, as far as records tell.
        `has_cursor`: compaction has one, too.
        """
        moved, known = topic.moved_ms, topic.cursors.items()
        cursors = [c for name, c in known if max(c.created_ms, moved.get(name, 0)) < before_ms]
        # If all are as young, one of the same millisecond was there: without any nothing may go.
        cursors = cursors or list(topic.cursors.values())
        passed = [position_of(each.mark_delete) for each in cursors]
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
        """Returns whether a record says that it was stored; otherwise, its header must."""
        record = topic.producers.get(attempt.producer)
        is_known = record is not None and attempt.sequence_id <= record.last_sequence_id
        return is_known or attempt.producer in topic.forgotten

    def _check_cursors(self, topic: Topic, places: list[Position]) -> None:
        """Checks that messages not acknowledged by a durable subscription are kept."""
        for name, record in topic.cursors.items():
            sub = topic.subscriptions.get(name)
            begun_ms = max(record.created_ms, topic.moved_ms.get(name, 0))
            if sub is None or sub.is_moving or begun_ms >= self.decided_ms():
                continue
            upto = topic.horizon if sub.has_compacted and topic.horizon is not None else EARLIEST
            for position in places:
                is_due = sub.is_due(position, topic.at[position].step)
                if position > upto and is_due and not covers(record, position):
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

    # Producers

    def _on_producer(self, record: ProducerRecord) -> None:
        """Checks that what the record calls stored is stored: a load trusts it without looking."""
        self._numbers.setdefault(record.topic, {})[record.number] = record.name
        topic = self.topics.get(record.topic)
        if topic is not None:
            topic.producers[record.name] = record

    def _on_forgotten(self, name: str, producer: str) -> None:
        """Only one that was away for long; what it sends again is new."""
        topic = self.topics.get(name)
        if topic is None:
            return
        topic.producers.pop(producer, None)
        now_ms, seen_ms = self.asked_ms(), topic.seen_ms.get(producer, 0)
        away_ms = max(topic.away_ms.get(producer, seen_ms), topic.loaded_ms)
        if producer in topic.connected or now_ms - away_ms <= AWAY_MS:
            self.fail(f"{producer} is forgotten {now_ms - seen_ms} ms after it was there")
        self.note(f"{short_name(name)}: {producer} is forgotten")
        topic.forgotten.add(producer)
        for attempt in [each for each in topic.place if each.producer == producer]:
            del topic.place[attempt]

    # Cursors

    def _on_cursor(self, record: CursorRecord) -> None:
        """Checks that the cursor covers nothing without a reason (subscriptions.py)."""
        topic = self.topics.get(record.topic)
        if topic is None:
            return
        name, before = record.subscription, topic.cursors.get(record.subscription)
        topic.cursors[name] = record
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
            sub.incarnation, topic.moved_ms[name] = record.incarnation, self.now_ms()
            self._on_moved(topic, sub, record)
        self.examine(topic, sub)

    def examine(self, topic: Topic, sub: Subscription) -> None:
        """Why its record covers what nobody has looked at yet."""
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
        """Durably, and no consumer has acknowledged it."""
        birth = topic.births.get(sub.name)
        if birth is not None and not sub.has_moved and covers(birth, position):
            return
        if sub.begins_behind(position) or self._is_left_out(topic, sub, position):
            return
        if not (self.may_be_passed(topic, sub.name, position) or self.is_damaged):
            self.fail(f"{sub.name} passes {attempt} at {position}, and nobody acknowledged it")

    def expired(self, topic: Topic, before_ms: int) -> list[tuple[str, Position]]:
        """Returns the messages published before then, up to the first that was not: every existing
        subscription has passed them, once it was told to.
        """
        there = [at for each in topic.record.ledger_ids for at in self.entries(each)]
        old: list[Position] = []
        acked = set(topic.acked.values())
        for position in sorted(there):
            attempt = topic.at.get(position)
            if attempt is None or attempt.publish_time_ms >= before_ms or position not in acked:
                break
            old.append(position)
        return [(name, each) for name in topic.cursors for each in old]

    def check_expired(
        self, topic: Topic, old: list[tuple[str, Position]], cursors: Mapping[str, Cursor]
    ) -> None:
        for name, position in old:
            sub, cursor = topic.subscriptions.get(name), cursors.get(name)
            if sub is None or cursor is None or sub.is_moving or self.is_damaged:
                continue
            if not (cursor.is_acknowledged(position) or topic.is_gone(position)):
                self.fail(f"{name} keeps {position}, which has expired")

    def _is_left_out(self, topic: Topic, sub: Subscription, position: Position) -> bool:
        """Returns whether a reader of the view skips what compaction removed."""
        if not sub.has_compacted or topic.furthest is None or position > topic.furthest:
            return False
        is_shown = any(row.position == position for row in topic.rows)
        return not is_shown or position < topic.floor or topic.takings > 0

    def _on_moved(self, topic: Topic, sub: Subscription, record: CursorRecord) -> None:
        """By one of the seeks that were asked for: to before the first entry from there on."""
        mark_delete = position_of(record.mark_delete)
        there = [each for each in topic.at if not topic.is_gone(each)]
        for number, to in enumerate(sub.moves_to):
            early = [each for each in there if mark_delete < each < to]
            late = [each for each in there if to <= each <= mark_delete]
            late = [each for each in late if not self._is_left_out(topic, sub, each)]
            # One write may have the move, and what an order made of it at once. (examine() counts.)
            if early or not self.may_all_be_passed(topic, sub.name, late):
                continue
            others = sub.moves_to[number + 1 :]
            sub.moved(to)
            sub.moves_to = others
            return
        if not self.is_damaged:
            asked = ", ".join(map(str, sub.moves_to)) or "anywhere"
            self.fail(f"{sub.name} was to be moved to {asked}, and stands at {mark_delete}")

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
        segments = LedgerRecord.FromString(ledger[1:]).segments
        stored = self.entries(compacted.ledger_id).values()
        found = live_rows(self._disk, self._ledgers, stored, segments, self.is_damaged)
        messages = sum(map(live_messages, segments))
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
                f"{difference(rows, shown)} (d)"
            )
        topic.rows, topic.horizon, topic.floors = found, horizon, [topic.floor]
        topic.furthest = max(horizon, topic.furthest or horizon)
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
