"""When and why raw ledgers are trimmed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgerfold.broker.stats.topic import internal_stats
from ledgerfold.broker.subscriptions.cursor_operations import nth_after
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.deduplication import Deduplication
from ledgerfold.broker.topics.reader import Reader
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import Emulation, Policies
from tests.model.broker_lab import BrokerLab
from tests.model.log_model import Message
from tests.unit.topics.test_deleted_meanwhile import Gate


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def test_ledgers_covered_by_a_run_are_deleted_with_its_commit(lab: BrokerLab) -> None:
    """Even though the run counts as in progress until that has ended."""
    lab.publish([([Message(b"%d" % (n % 5), b"v")], False) for n in range(20)])
    run = lab.compact()
    assert run is not None
    lab.settle()
    horizon = Position(run.horizon.ledger_id, run.horizon.entry_id)
    assert [each for each in lab.topic.record.ledger_ids if each < horizon.ledger_id] == []


def keep_nothing(lab: BrokerLab) -> None:
    """Deletes unneeded ledgers at once."""
    lab.topic.record.policies.CopyFrom(Policies(emulation=Emulation(trim_without_cursor=True)))


def test_a_ledger_is_kept_until_its_sequence_ids_are_durable(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a message that is sent again after a crash is stored twice. The write had never been
    late.
    """
    keep_nothing(lab)
    gate = Gate(monkeypatch, Deduplication, "write")
    lab.publish([([Message(b"a", b"v")], False)])
    lab.run(lab.topic.log.tail.roll())
    lab.settle()
    assert gate.reached.is_set()
    assert 1 in lab.topic.record.ledger_ids
    gate.opened.set()
    lab.settle()
    assert 1 not in lab.topic.record.ledger_ids


def test_a_cursor_that_cannot_be_written_protects_only_its_own_ledgers(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others' ledgers go. No cursor had refused to be written before a trim."""
    subscription = lab.run(create_subscription(lab.topic, "s", StartPosition(earliest=True)))
    for _ in range(2):
        lab.publish([([Message(b"a", b"v")], False)])
        lab.run(lab.topic.log.tail.roll())
    lab.settle()
    topic = lab.topic

    async def acknowledge_next() -> None:
        subscription.pass_over(nth_after(topic.log, subscription.mark_delete, (), 1))

    lab.run(acknowledge_next())
    lab.run(subscription.persist())
    lab.run(acknowledge_next())

    async def fail(self: Subscription) -> None:
        raise DiskFailure("metadata", "A metadata write", OSError(28, "full"))

    with monkeypatch.context() as patched:
        patched.setattr(Subscription, "persist", fail)
        assert lab.run(topic.trim()) == 1
    assert [each for each in (1, 2) if each in topic.log.ledgers] == [2]


def roll(lab: BrokerLab) -> None:
    """Publishes a message, and closes its ledger."""
    lab.publish([([Message(b"a", b"v")], False)])
    lab.run(lab.topic.log.tail.roll())
    lab.settle()


def kept(lab: BrokerLab) -> dict[int, list[str]]:
    """Returns what `stats-internal` says that keeps each ledger."""
    rows = internal_stats(lab.broker, lab.topic)["ledgers"]
    return {each["ledgerId"]: each["heldBy"] for each in rows}


def test_stats_name_what_keeps_each_ledger(lab: BrokerLab) -> None:
    """By the rule that trims. Nobody could see why a ledger had stayed."""
    lab.topic.record.policies.CopyFrom(Policies(compaction_threshold_bytes=0))
    first = lab.run(create_subscription(lab.topic, "first", StartPosition(earliest=True)))
    roll(lab)
    lab.run(create_subscription(lab.topic, "last", StartPosition(latest=True)))
    roll(lab)
    assert list(kept(lab).values()) == [["cursor first"], ["cursor first", "cursor last"], ["open"]]
    lab.run(lab.topic.enable_compaction_cursor())
    both = list(kept(lab).values())[1]
    assert both == ["cursor first", "compaction horizon", "cursor last"]
    for each in (first, lab.topic.subscriptions["last"]):
        each.pass_over(lab.topic.log.positions.last())
    # Acknowledgements hold until they are durable.
    assert next(iter(kept(lab).values())) == ["cursor first", "compaction horizon"]
    lab.run(lab.topic.trim())
    assert list(kept(lab).values()) == [["compaction horizon"]] * 2 + [["open"]]


def test_stats_name_retention(lab: BrokerLab) -> None:
    """Until its time is over; the next trimming then deletes the ledger."""
    lab.topic.record.policies.CopyFrom(
        Policies(retention_ms=60_000, emulation=Emulation(trim_without_cursor=True))
    )
    roll(lab)
    assert list(kept(lab).values()) == [["retention time"], ["open"]]
    lab.run(lab.clock.move_to(lab.clock.now_ms() + 60_000))
    assert list(kept(lab).values()) == [[], ["open"]]


def test_stats_name_a_reader_that_a_run_has_overtaken(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads on from the raw ledgers."""
    keep_nothing(lab)
    reader = lab.reader(Position(0, 0), read_compacted=True)
    lab.settle()
    monkeypatch.setattr(Reader, "held_position", Position(1, 0))
    roll(lab)
    (name,) = lab.topic.reader_names
    assert list(kept(lab).values()) == [[f"reader {name}"], ["open"]]
    reader.close()
