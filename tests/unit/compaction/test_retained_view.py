"""Tests that data removed from the compacted view by retention take no part in later runs."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ledgerfold.broker.topics.policy_store import PolicyStore
from ledgerfold.storage.entry import EARLIEST, LATEST, Position
from ledgerfold.v1.records_pb2 import CompactionStrategy, Emulation, Policies
from tests.model.broker_lab import STORE, BrokerLab
from tests.model.log_model import Message


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    made = BrokerLab()
    yield made
    made.stop()
    made.loop.close()


def set_policies(lab: BrokerLab, policies: Policies) -> None:
    lab.run(PolicyStore(lab.broker).update_topic(lab.topic, policies, []))


def publish(lab: BrokerLab, *messages: tuple[bytes, bytes]) -> list[Position]:
    return lab.publish([([Message(key, value)], False) for key, value in messages])


def shown(lab: BrokerLab) -> list[tuple[bytes | None, bytes]]:
    return [each.message[:2] for each in lab.read(EARLIEST, read_compacted=True)]


def test_a_hidden_message_supersedes_nothing(lab: BrokerLab) -> None:
    """The run judges the key by the messages that can be read, and copies no other."""
    strategy = CompactionStrategy(name="keep-first")
    set_policies(lab, Policies(compaction_strategy=strategy, retention_ms=-1, retention_bytes=-1))
    publish(lab, (b"a", b"1"), *((b"b%d" % each, b"x") for each in range(STORE.ledger_entries_max)))
    lab.compact()
    set_policies(lab, Policies(retention_bytes=1))
    lab.run(lab.topic.trim())
    floor = lab.topic.log.views.floor
    assert Position(1, 0) < floor
    assert (b"a", b"1") not in shown(lab)
    segments = lab.topic.log.views.segments()
    assert (segments[0].first.ledger_id, segments[0].first.entry_id) < floor

    publish(lab, (b"a", b"2"))
    run = lab.compact()

    assert run is not None
    assert lab.succeeded(run)
    assert (b"a", b"2") in shown(lab)
    compacted = lab.topic.log.views.current.compacted
    assert compacted is not None
    entries = compacted.read(EARLIEST, bytes_max=1 << 20, end=LATEST)
    assert all(entry.header.position >= floor for entry in entries)
    # The record states the run's inputs.
    assert (run.retention_floor.ledger_id, run.retention_floor.entry_id) == floor


def test_a_completely_hidden_view_has_no_last_entry(lab: BrokerLab) -> None:
    """As a reader gets none. Retention had always left something of the view."""
    set_policies(lab, Policies(retention_ms=-1, retention_bytes=-1))
    publish(lab, (b"a", b"1"))
    lab.compact()
    assert lab.run(lab.topic.log.search.last_entry(True)) is not None
    set_policies(lab, Policies(retention_bytes=1))
    lab.run(lab.topic.log.tail.roll())
    lab.run(lab.topic.trim())
    assert shown(lab) == []
    assert lab.run(lab.topic.log.search.last_entry(True)) is None


def test_the_profile_pulsar_4_hides_nothing_of_the_view(lab: BrokerLab) -> None:
    """Under `pulsar-4` retention hides nothing of the view, and a run reads all of it."""
    emulation = Emulation(profile="pulsar-4")
    strategy = CompactionStrategy(name="keep-first")
    set_policies(
        lab,
        Policies(
            compaction_strategy=strategy,
            retention_ms=-1,
            retention_bytes=-1,
            emulation=emulation,
        ),
    )
    publish(lab, (b"a", b"1"), *((b"b%d" % each, b"x") for each in range(STORE.ledger_entries_max)))
    lab.compact()
    set_policies(lab, Policies(retention_bytes=1))
    lab.run(lab.topic.trim())
    assert 1 not in lab.topic.log.ledgers
    publish(lab, (b"a", b"2"))
    run = lab.compact()
    assert run is not None
    assert not run.HasField("retention_floor")
    assert (b"a", b"1") in shown(lab)
    assert (b"a", b"2") not in shown(lab)
