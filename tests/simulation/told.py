"""Checks that acknowledged messages are on disk: receipts and positions of entries.

This part of the oracle observes receipts and deliveries, reads files and knows the deliberate
damage.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerfold.storage.decoded import DecodedBatch
from ledgerfold.storage.entry import EARLIEST, EntryHeader, Position
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.partition_names import parse_partition
from ledgerfold.storage.recovery_report import RecoveryReport
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, LedgerRecord, Policies
from tests.simulation.disk import Disk
from tests.simulation.kafka_life import KafkaLife, Sent
from tests.simulation.life import Attempt, Topic, Violation
from tests.simulation.storedlog import Stored, scan
from tests.simulation.subscriptions import Move, Order

if TYPE_CHECKING:
    from tests.simulation.connections import Connection
    from tests.simulation.restored import Saved


class Told:
    """The acknowledgements of publishers and readers, compared with the disk
    (tests/simulation/oracle.py).
    """

    def __init__(
        self,
        disk: Disk,
        pairs: MemoryKeyValue,
        ledgers: Path,
        profile: str,
        note: Callable[[str], None],
        now_ms: Callable[[], int] = lambda: 0,
        asked_ms: Callable[[], int] = lambda: 0,
        decided_ms: Callable[[int], int] = lambda ledger_id: 0,
    ) -> None:
        """`asked_ms`: when the write of effective metadata was requested; `decided_ms`: when it was
        decided that a ledger is deleted, before that.
        """
        self.now_ms, self.asked_ms, self.decided_ms = now_ms, asked_ms, decided_ms
        self._disk, self._pairs, self._ledgers, self.note = disk, pairs, ledgers, note
        self.profile = profile
        self.failure: AssertionError | None = None
        # The first entry damaged on purpose in a file of an open ledger.
        self._first_hits: dict[Path, Position] = {}
        # By the sequence id of their last message, and by all their sequence ids.
        self.attempts: dict[tuple[str, str, int], Attempt] = {}
        self._of_message: dict[tuple[str, str, int], Attempt] = {}
        # In any life of their topics.
        self.ever_acked: set[Attempt] = set()
        self.topics: dict[str, Topic] = {}
        # Kafka topics, and the records sent to them, by id.
        self.kafka: dict[str, KafkaLife] = {}
        self.kafka_sent: dict[str, Sent] = {}
        # Topics with a requested subscription, which may release ledgers before it is durable.
        self.subscribed: set[str] = set()
        # Whether such a subscription begins at the oldest message, by topic and name.
        self.begins_early: dict[tuple[str, str], bool] = {}
        # Requests in progress, by topic: they may find the next subscription of the name.
        self.orders: dict[str, list[Order]] = {}
        # Seeks in progress, by topic and subscription.
        self.moves: dict[tuple[str, str], list[Move]] = {}
        # Topics whose ledgers an administrator truncates, read or not: calls in progress, and all
        # calls.
        self.truncating: Counter[str] = Counter()
        self.ever_truncated: set[str] = set()
        # After a crash: a write becomes visible whose call was lost.
        self.is_settling = False
        # Names of topics that were terminated durably, in any life.
        self.terminated: set[str] = set()
        # Numbers of partitions.
        self.partitions: dict[str, int] = {}
        self.parents: dict[str, Policies] = {}
        # Calls in progress that create partitions: the step of each.
        self.growing: dict[int, int] = {}
        self._of_ledger: dict[int, Topic] = {}
        self._numbers: dict[str, dict[int, str]] = {}
        self._now: MemoryKeyValue | None = None
        # Snapshots that may exist, oldest first.
        self._saved: list[Saved] = []
        # Topics of other brokers, which no client uses here.
        self.foreign: set[str] = set()
        # Files without a record that a start left because something is missing.
        self.kept: set[str] = set()
        # Files were damaged on purpose: errors are right, silence is wrong.
        self.is_damaged = False

    # Failing

    def fail(self, why: str) -> None:
        if self.failure is None:
            self.note(f"WRONG: {why}")
            self.failure = Violation(why)

    def unexpected(self, error: object) -> None:
        """Records an error that is not one of the broker's errors."""
        self.fail(f"an error that nobody expected: {error!r}{where(error)}")

    # Receipts of publishers

    def attempted(self, topic: str, attempt: Attempt) -> None:
        self.attempts[topic, attempt.producer, attempt.sequence_id] = attempt
        for row in attempt.rows:
            self._of_message[topic, attempt.producer, row.sequence_id] = attempt

    def acknowledged(self, name: str, producer: str, sequence_id: int, position: Position) -> None:
        """Checks (a): a message that its producer knows as stored is on disk, at that place,
        once.
        """
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
        self.ever_acked.add(attempt)
        stored = self.entries(position.ledger_id).get(position)
        if position.ledger_id in topic.removed:
            if topic.name in self.ever_truncated:
                topic.lost.add(position)
            return
        is_durable = stored is not None and self._disk.is_durable(stored.path, stored.end)
        if not (is_durable or self.is_damaged):
            self.fail(f"{attempt} is acknowledged at {position} and not on the disk")

    def connected(self, name: str, producer: str, connection: Connection) -> None:
        topic = self.topics.get(name)
        if topic is not None:
            topic.connected[producer] = connection

    def disconnected(
        self, name: str, producer: str, asked_ms: int | None = None, away_ms: int | None = None
    ) -> None:
        """`asked_ms`: when the client closed; the broker may have handled it at once. `away_ms`:
        when the network failed or the broker ended the connection, which the client may notice
        later.
        """
        topic = self.topics.get(name)
        if topic is not None:
            topic.connected.pop(producer, None)
            seen_ms = self.now_ms() if asked_ms is None else asked_ms
            topic.seen_ms[producer] = seen_ms
            topic.away_ms[producer] = seen_ms if away_ms is None else min(seen_ms, away_ms)

    def _told_duplicate(self, name: str, attempt: Attempt) -> None:
        topic = self.topics.get(name)
        if topic is None or attempt in topic.acked:
            return
        if attempt in self.ever_acked and self._has_later(topic, attempt):
            # From an earlier life, and sent again after the messages of this one.
            return
        topic.acked[attempt] = topic.place.get(attempt)
        self.ever_acked.add(attempt)
        self.learn(topic)
        if attempt not in topic.place and not self.is_damaged:
            self.fail(f"{attempt} is said to be stored already, and is nowhere")

    def _has_later(self, topic: Topic, attempt: Attempt) -> bool:
        """Returns whether that producer has a higher sequence id there, acknowledged or not."""
        stored = (
            self.attempt_of(topic, entry)
            for ledger_id in topic.record.ledger_ids
            for entry in self.entries(ledger_id).values()
        )
        there = (*topic.place, *topic.acked, *(each for each in stored if each is not None))
        return any(
            each.producer == attempt.producer and each.sequence_id > attempt.sequence_id
            for each in there
        )

    def sent_as(
        self, topic: Topic, header: EntryHeader, batch: DecodedBatch, *, read_compacted: bool
    ) -> Attempt | None:
        """Returns the entry that a reader received part of; None if it differs from the sent one.

        A renumbered entry has the sequence id of its last remaining message.
        """
        attempt = self._of_message.get((topic.name, batch.producer_name, header.sequence_id))
        is_anew = self.profile == "pulsar-4"
        messages = list(batch.messages())
        if attempt is None or header.publish_time_ms != attempt.publish_time_ms:
            return None
        if not attempt.holds(messages, is_part=read_compacted, is_anew=is_anew):
            return None
        return attempt

    def told_terminated(self, name: str) -> None:
        """Checks that a termination reported to a publisher survives a crash."""
        if name not in self.terminated:
            self.fail(f"a publisher of {name} is told that it is terminated, and it is not durably")

    def is_beyond(self, name: str) -> bool:
        """Returns whether it is a partition number that does not exist."""
        partition = parse_partition(name)
        return partition is not None and partition.index >= self.partitions.get(
            partition.topic, partition.index + 1
        )

    def topic_of_ledger(self, ledger_id: int) -> Topic | None:
        return self._of_ledger.get(ledger_id)

    def stored(self, topic: Topic, position: Position, attempt: Attempt) -> None:
        known = topic.at.get(position)
        if known is not None and known is not attempt:
            self.fail(f"{position} was {known} and is {attempt} now")
        if known is None:
            is_new = attempt.producer in topic.forgotten
            if attempt in topic.place and not (is_new or self.is_damaged):
                other = topic.place[attempt]
                self.fail(f"{attempt} is stored twice, at {other} and at {position}")
            topic.at[position], topic.place[attempt] = attempt, position
            if topic.end is not None and position > topic.end:
                self.fail(f"{attempt} is stored at {position}, behind the end of its topic")

    # Contents of files

    def is_stale(self, topic: Topic, position: Position, run_number: int | None) -> bool:
        """Returns whether an up-to-date compacted read skips that entry.

        `run_number`: the run whose view the broker shows, 0 if none. The view may lag by the write
        in progress, and by no more. The topic is being unloaded and cannot be asked.
        """
        if self.topics.get(topic.name) is not topic:
            return False
        shown = [
            view for run, view in topic.views.items() if run_number is None or run == run_number
        ]
        return all(view.leaves_out(position) for view in shown)

    def entries(self, ledger_id: int) -> dict[Position, Stored]:
        """Returns the entries in files that its record names, or in all files if there is no
        record.
        """
        found = scan(self._disk, self._ledgers, ledger_id)
        value = self._pairs.get(f"ledger/{ledger_id:020d}".encode())
        if value is None:
            return found
        named = {str(self._ledgers / s.path) for s in LedgerRecord.FromString(value[1:]).segments}
        return {at: entry for at, entry in found.items() if str(entry.path) in named}

    def attempt_of(self, topic: Topic, entry: Stored) -> Attempt | None:
        producer = topic.numbers.get(entry.header.producer_number, "")
        return self.attempts.get((topic.name, producer, entry.header.sequence_id))

    def learn(self, topic: Topic) -> None:
        """Learns the positions of entries reported as duplicates."""
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

    # Requests to skip entries

    def end_order(self, topic: Topic, order: Order) -> None:
        """Ends a request: it does not skip later entries."""
        if order.ended_ms is None:
            order.ended_ms = self.now_ms()
            order.upto = max(
                (at for each in topic.record.ledger_ids for at in self.entries(each)),
                default=EARLIEST,
            )

    def may_be_passed(self, topic: Topic, subscription: str, position: Position) -> bool:
        """Returns whether a request may have skipped that entry for the subscription. Counts it
        against the limit of one that skips a number of entries, unless another one covers it.
        """
        attempt = topic.at[position]
        closed_ms = self.closed_ms(position.ledger_id)
        orders = [each for each in topic.orders if each.subscription in ("", subscription)]
        return any(
            each.covers(position, attempt.publish_time_ms, closed_ms, self.asked_ms())
            for each in sorted(orders, key=lambda each: each.entries is not None)
        )

    def may_all_be_passed(self, topic: Topic, subscription: str, positions: list[Position]) -> bool:
        """Returns whether requests may have skipped all of these for the subscription. Counts none
        of them.
        """
        orders = [each for each in topic.orders if each.subscription in ("", subscription)]
        left = sum(max(0, each.entries) for each in orders if each.entries is not None)
        for position in positions:
            publish_ms = topic.at[position].publish_time_ms
            closed_ms = self.closed_ms(position.ledger_id)
            left -= not any(
                each.covers(position, publish_ms, closed_ms, self.asked_ms())
                for each in orders
                if each.entries is None
            )
        return left >= 0

    def ledger(self, ledger_id: int) -> LedgerRecord | None:
        """Returns the ledger's current record."""
        value = self._pairs.get(f"ledger/{ledger_id:020d}".encode())
        return None if value is None else LedgerRecord.FromString(value[1:])

    def closed_ms(self, ledger_id: int) -> int | None:
        record = self.ledger(ledger_id)
        is_closed = record is not None and record.state == LEDGER_STATE_CLOSED
        return record.closed_ms if record is not None and is_closed else None

    # Damage and crashes

    def damaged(self, ledger_id: int, path: Path, at: int, store: MemoryKeyValue) -> None:
        """Records a bit flip right before it happens. Entries of an open ledger state how far it
        was durable when they were written: what lies after that and after the damage may count as
        torn.
        """
        topic = self._of_ledger.get(ledger_id)
        value = store.get(f"ledger/{ledger_id:020d}".encode())
        record = LedgerRecord() if value is None else LedgerRecord.FromString(value[1:])
        is_sealed = any(path.match(each.path) and each.sealed for each in record.segments)
        if topic is None or is_sealed:
            return
        entries = self.entries(ledger_id)
        hit = [p for p, each in entries.items() if each.path == path and each.end > at][:1]
        proofs = [each.header.durable_entries for p, each in entries.items() if p not in hit]
        excused = [
            p for p in entries if hit and p >= hit[0] and p.entry_id >= max(proofs, default=0)
        ]
        if path in self._first_hits:
            # Entries after the first damage, which are not parsed, may have proved it; none may be
            # left.
            first = min([self._first_hits[path], *hit])
            excused += [p for p in topic.at if p.ledger_id == ledger_id and p >= first]
        if hit:
            self._first_hits[path] = min(hit[0], self._first_hits.get(path, hit[0]))
        topic.excused.update(excused)
        topic.lost.update(excused)

    def recovered(self, report: RecoveryReport) -> None:
        """Checks that only deliberate damage was reported."""
        if report.torn:
            self.note(f"torn tails are cut: {len(report.torn)}")
        if report.damaged and not self.is_damaged:
            self.fail(f"recovery reports damage: {report.damaged}")
        self.kept = {"/".join(Path(each).parts[-2:]) for each in report.preserved}
        if self.kept and not self.is_damaged:
            self.fail(f"nothing is missing, and files without a record stay: {self.kept}")


def where(error: object) -> str:
    traceback = getattr(error, "__traceback__", None)
    frames = []
    while traceback is not None:
        code = traceback.tb_frame.f_code
        frames.append(f"{code.co_filename.rsplit('/', 1)[-1]}:{traceback.tb_lineno}")
        traceback = traceback.tb_next
    return f" at {' > '.join(frames[-5:])}" if frames else ""
