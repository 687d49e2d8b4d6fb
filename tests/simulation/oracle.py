"""What must hold, whatever happens: a plain memory of what was sent, promised and shown.

It hears of each receipt and delivery when the broker sends it, and of each metadata write when it
takes effect, the one moment at which durable state changes. It looks at files with a reader of its
own (tests/simulation/storedlog.py). Letters are the invariants of docs/ARCHITECTURE.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    RUN_STATE_SUCCESS,
    CursorRecord,
    LedgerRecord,
    ProducerRecord,
    RunRecord,
    TopicRecord,
)

from storage.codec import StoredMessage
from storage.entry import EARLIEST, Position
from storage.key_value import MemoryKeyValue
from tests.model.policy_model import Message, latest
from tests.simulation.disk import Disk
from tests.simulation.storedlog import Row, Stored, rows_of, scan
from tests.simulation.subscriptions import Subscription


class Violation(AssertionError):
    """An invariant does not hold."""


@dataclass(frozen=True, eq=False)
class Attempt:
    """An entry that a publisher sends, again and again, until it is acknowledged."""

    producer: str
    sequence_id: int
    rows: tuple[Message, ...]
    is_batch: bool
    # Of the loop, when it was first sent.
    step: int = 0

    def __str__(self) -> str:
        return f"{self.producer}#{self.sequence_id}"

    def holds(self, messages: Sequence[StoredMessage], *, is_part: bool) -> bool:
        """Whether these are all of it; or, with `is_part`, some rows, each in its place."""
        found = [(m.batch_index, m.key, m.value) for m in messages]
        rows = [
            (index if self.is_batch else -1, key, value)
            for index, (key, value) in enumerate(self.rows)
        ]
        if not is_part or len(found) == len(rows):
            return found == rows
        return bool(found) and all(row in rows for row in found)


@dataclass(eq=False)
class Topic:
    """One life of a topic: deleted and made again it is another one.

    `at`, `place`: where entries are, of which anybody was told; `acked`: those that producers were
    told of, with their place, None when the answer was "duplicate". `lost`: removed by rule, and in
    no compacted view. `rows`: the compacted view, `horizon` its end.
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
    numbers: dict[int, str] = field(default_factory=dict)
    cursors: dict[str, CursorRecord] = field(default_factory=dict)
    subscriptions: dict[str, Subscription] = field(default_factory=dict)
    runs: dict[int, RunRecord] = field(default_factory=dict)
    # An administrator takes data away: ledgers go whoever has read them.
    truncations: int = 0
    # Readers of compacted data may miss something from here on: it was taken away by rule.
    takings: int = 0

    @property
    def floor(self) -> Position:
        return (
            _position(self.record.retention_floor)
            if self.record.HasField("retention_floor")
            else EARLIEST
        )


class Oracle:
    def __init__(
        self, disk: Disk, ledgers: Path, profile: str, note: Callable[[str], None]
    ) -> None:
        self._disk, self._ledgers, self.note = disk, ledgers, note
        self.profile = profile
        self.failure: AssertionError | None = None
        self.attempts: dict[tuple[str, str, int], Attempt] = {}
        self.topics: dict[str, Topic] = {}
        # Topics of which a subscription was asked for: it may let ledgers go before it is durable.
        self.subscribed: set[str] = set()
        # Topics in which an administrator passes messages over, by subscription ("": all).
        self.passed_over: set[tuple[str, str]] = set()
        self._of_ledger: dict[int, Topic] = {}
        self._numbers: dict[str, dict[int, str]] = {}
        self._now: MemoryKeyValue | None = None
        # Files were damaged on purpose: errors are right, silence is wrong.
        self.is_damaged = False

    # Failing

    def fail(self, why: str) -> None:
        if self.failure is None:
            self.note(f"WRONG: {why}")
            self.failure = Violation(why)

    def unexpected(self, error: object) -> None:
        """An error that is none of the broker's own."""
        self.fail(f"an error that nobody expected: {error!r}{_where(error)}")

    # What publishers do and are told

    def attempted(self, topic: str, attempt: Attempt) -> None:
        self.attempts[topic, attempt.producer, attempt.sequence_id] = attempt

    def acknowledged(self, name: str, producer: str, sequence_id: int, position: Position) -> None:
        """(a): what a producer is told is stored is on the disk, at that place, once."""
        attempt = self.attempts[name, producer, sequence_id]
        if position.ledger_id < 0:
            self._told_duplicate(name, attempt)
            return
        topic = self._of_ledger.get(position.ledger_id)
        if topic is None:
            self.fail(f"{attempt} is acknowledged at {position}, in a ledger that nobody knows")
            return
        self.stored(topic, position, attempt)
        topic.acked[attempt] = position
        stored = self.entries(position.ledger_id).get(position)
        if position.ledger_id in topic.removed:
            if topic.truncations:
                topic.lost.add(position)
            return
        is_durable = stored is not None and self._disk.is_durable(stored.path, stored.end)
        if not (is_durable or self.is_damaged):
            self.fail(f"{attempt} is acknowledged at {position} and not on the disk")

    def _told_duplicate(self, name: str, attempt: Attempt) -> None:
        topic = self.topics.get(name)
        if topic is None or attempt in topic.acked:
            return
        topic.acked[attempt] = topic.place.get(attempt)
        self.learn(topic)
        if attempt not in topic.place and not self.is_damaged:
            self.fail(f"{attempt} is said to be stored already, and is nowhere")

    def topic_of_ledger(self, ledger_id: int) -> Topic | None:
        return self._of_ledger.get(ledger_id)

    def stored(self, topic: Topic, position: Position, attempt: Attempt) -> None:
        known = topic.at.get(position)
        if known is not None and known is not attempt:
            self.fail(f"{position} was {known} and is {attempt} now")
        if known is None:
            if attempt in topic.place and not self.is_damaged:
                other = topic.place[attempt]
                self.fail(f"{attempt} is stored twice, at {other} and at {position}")
            topic.at[position], topic.place[attempt] = attempt, position

    # What is in files

    def entries(self, ledger_id: int) -> dict[Position, Stored]:
        return scan(self._disk, self._ledgers, ledger_id)

    def attempt_of(self, topic: Topic, entry: Stored) -> Attempt | None:
        producer = topic.numbers.get(entry.header.producer_number, "")
        return self.attempts.get((topic.name, producer, entry.header.sequence_id))

    def learn(self, topic: Topic) -> None:
        """Where entries are of whose place nobody was told: those said to be duplicates."""
        missing = {attempt for attempt, at in topic.acked.items() if at is None}
        if not missing:
            return
        for ledger_id in topic.record.ledger_ids:
            self._learn_ledger(topic, ledger_id, missing)

    def _learn_ledger(self, topic: Topic, ledger_id: int, missing: set[Attempt]) -> None:
        for position, entry in self.entries(ledger_id).items():
            attempt = self.attempt_of(topic, entry)
            if attempt in missing and attempt is not None:
                self.stored(topic, position, attempt)
                topic.acked[attempt] = position

    def is_vague(self, topic: Topic, sub: Subscription) -> bool:
        """Whether it is not known what the subscription must get."""
        orders = {(topic.name, sub.name), (topic.name, "")}
        return sub.is_vague or sub.is_moving > 0 or not orders.isdisjoint(self.passed_over)

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
            if key.startswith(b"topic/"):
                self._on_topic(TopicRecord.FromString(value[1:]), puts, store)
            elif key.startswith(b"cursor/"):
                cursor = CursorRecord.FromString(value[1:])
                if cursor.topic in self.topics:
                    self.topics[cursor.topic].cursors[cursor.subscription] = cursor
            elif key.startswith(b"run/"):
                self._on_run(RunRecord.FromString(value[1:]), puts)
        for key in deletes:
            if key.startswith(b"topic/"):
                name = key[6:].decode()
                topic = self.topics.pop(name, None)
                self._numbers.pop(name, None)
                if topic is not None:
                    topic.removed.update(topic.record.ledger_ids)
                    topic.takings += 1
                    self.note(f"{_short(name)} is deleted")
            elif key.startswith(b"cursor/"):
                name, _, subscription = key[7:].decode().partition("\0")
                if name in self.topics:
                    self.topics[name].cursors.pop(subscription, None)
                    self.topics[name].subscriptions.pop(subscription, None)

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
            self.note(f"{_short(record.name)} comes into being")
        before = topic.record
        for ledger_id in record.ledger_ids:
            self._of_ledger[ledger_id] = topic
        is_new = record.compacted != before.compacted
        if record.HasField("compacted") and is_new:
            self._on_commit(topic, record, puts, store)
        gone = [each for each in before.ledger_ids if each not in record.ledger_ids]
        if gone:
            self._on_gone(topic, record, gone, store)
        if before.HasField("compacted") and not record.HasField("compacted"):
            self.note(f"{_short(record.name)}: the compacted view is dropped")
            topic.takings += 1
            topic.rows, topic.horizon = [], None
            topic.lost.update(at for at in topic.at if at.ledger_id in topic.removed)
        if len(record.ledger_ids) > 1 and record.ledger_ids[-1] not in before.ledger_ids:
            self.note(f"{_short(record.name)}: ledger {record.ledger_ids[-1]} begins")
        topic.record = record

    def _remember_ledger(self, topic: Topic, ledger_id: int, store: MemoryKeyValue) -> None:
        """All that its record names: who sends such an entry again is told that it is stored."""
        value = store.get(f"ledger/{ledger_id:020d}".encode())
        if value is None:
            return
        ends = [_position(each.last) for each in LedgerRecord.FromString(value[1:]).segments]
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
        self.note(f"{_short(topic.name)}: raw ledgers {gone} go")
        topic.removed.update(gone)
        places = [at for at in topic.at if at.ledger_id in gone]
        if not places:
            return
        is_order = topic.truncations > 0
        passed = topic.horizon or EARLIEST
        if record.HasField("truncated_upto"):
            passed = max(passed, _position(record.truncated_upto))
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
        """(d), (i), (j): the new view is latest(log up to the horizon), published in one write."""
        compacted, horizon = record.compacted, _position(record.compacted.horizon)
        self.note(f"{_short(topic.name)}: run {compacted.run_number} commits, horizon {horizon}")
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
        rows = self._expected(topic, horizon, RunRecord.FromString(run[1:]).retain_null_key)
        found = self.rows_of_ledger(compacted.ledger_id)
        floor = topic.floor
        if [row for row in found if row.position >= floor] != [
            row for row in rows if row.position >= floor
        ]:
            self.fail(
                f"the view of run {compacted.run_number} at {horizon} is not latest(log): "
                f"{_difference(rows, found)} (d)"
            )
        topic.rows, topic.horizon = found, horizon

    def _expected(self, topic: Topic, horizon: Position, retain_null_key: bool) -> list[Row]:
        self.learn(topic)
        after = topic.horizon or EARLIEST
        raw: list[Row] = []
        there: set[Position] = set()
        for ledger_id in topic.record.ledger_ids:
            for position, entry in self.entries(ledger_id).items():
                if after < position <= horizon:
                    there.add(position)
                    raw += rows_of(entry)
        for position, attempt in topic.at.items():
            is_due = after < position <= horizon and position.ledger_id not in topic.removed
            if is_due and position not in there:
                self.fail(f"the horizon passes {attempt} at {position}, which cannot be read")
        rows = [*topic.rows, *raw]
        kept = latest([Message(row.key, row.value) for row in rows], retain_null_key).survivors
        return [rows[index] for index in kept]

    def rows_of_ledger(self, ledger_id: int) -> list[Row]:
        return [row for entry in self.entries(ledger_id).values() for row in rows_of(entry)]

    # Crashes

    def recovered(self, report: Any) -> None:
        """What was not damaged on purpose is not damaged."""
        if report.torn:
            self.note(f"torn tails are cut: {len(report.torn)}")
        if report.damaged and not self.is_damaged:
            self.fail(f"recovery reports damage: {report.damaged}")

    def power_was_lost(self) -> None:
        """Nothing that anybody was told of may be gone; readers and the end find out."""


def _difference(expected: list[Row], found: list[Row]) -> str:
    missing = [row for row in expected if row not in found]
    extra = [row for row in found if row not in expected]
    return f"missing {_some(missing)}, too many {_some(extra)}"


def _some(rows: list[Row]) -> str:
    shown = [f"{row.position}/{row.batch_index} {row.key!r}" for row in rows[:4]]
    return f"{len(rows)} [{', '.join(shown)}]"


def _position(record: Any) -> Position:
    return Position(record.ledger_id, record.entry_id)


def _short(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _where(error: object) -> str:
    traceback = getattr(error, "__traceback__", None)
    frames = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return f" at {' > '.join(frames[-5:])}" if frames else ""
