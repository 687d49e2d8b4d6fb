"""Messages with several versions of their keys, on labs."""

from __future__ import annotations

from collections.abc import Iterable

from ledgerfold.broker.topics.snapshots import BrokerSnapshots
from tests.model.broker_lab import TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.kafka_lab import KafkaLab


def publish_versions(lab: BrokerLab, first: int, count: int, topic: str = TOPIC) -> None:
    """Publishes so many messages of five keys, an entry each."""
    entries = [([Message(b"%d" % (n % 5), b"v%d" % n)], False) for n in range(first, first + count)]
    lab.publish(entries, topic)


def compact_twice(lab: BrokerLab, topic: str = TOPIC) -> None:
    """The second run has the result of the first as its input."""
    for first in (0, 9):
        publish_versions(lab, first, 9, topic)
        lab.run(lab.compaction(topic))


def add_records(lab: KafkaLab, numbers: Iterable[int]) -> None:
    """Adds a batch of one record for each number, all of different keys."""
    for n in numbers:
        lab.add([(b"%d" % n, b"%d" % n)])


def add_versions(lab: KafkaLab, numbers: Iterable[int], *, keys: int) -> None:
    """Adds batches of one idempotent producer, whose sequence numbers they are."""
    for n in numbers:
        lab.add([(b"%d" % (n % keys), b"%d" % n)], producer_id=7, producer_epoch=0, base_sequence=n)


def restore_snapshot(lab: BrokerLab, snapshots: BrokerSnapshots) -> None:
    """Restores the snapshot "s", once all that was begun has ended."""
    lab.settle()
    lab.run(snapshots.restore("s"))
    lab.settle()
