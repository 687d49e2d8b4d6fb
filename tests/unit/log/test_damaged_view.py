"""FLT-18: a compacted ledger is missing or damaged. An error names it, and there is a way back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ledgerfold.broker.stats.topic import internal_stats
from ledgerfold.broker.subscriptions.lifecycle import create_subscription, seek_subscription
from ledgerfold.broker.topics.operations import disable_compaction
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import CompactedLedgerDamaged, LedgerfoldError
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import RUN_STATE_ERROR, RUN_STATE_SUCCESS, MessageId
from ledgerfold.v1.records_pb2 import Emulation as Settings
from tests.model.broker_lab import DATA, TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.offline import Offline

MESSAGES = [([Message(b"a", b"1")], False), ([Message(b"a", b"2")], False)]
Damage = Callable[[BrokerLab], None]


def file_of_compacted(lab: BrokerLab) -> Path:
    folder = DATA / "ledgers" / str(lab.topic.record.compacted.ledger_id)
    name, _ = lab.files.listdir(folder)
    return folder / name


def remove_file(lab: BrokerLab) -> None:
    lab.files.remove(file_of_compacted(lab))


def cut_file(lab: BrokerLab) -> None:
    path = file_of_compacted(lab)
    lab.files.truncate(path, lab.files.size(path) - 1)


def flip_bit(lab: BrokerLab) -> None:
    flip_last_bit(lab, file_of_compacted(lab))


def flip_last_bit(lab: BrokerLab, path: Path) -> None:
    with lab.files.map(path) as view:
        data = bytearray(view)
    data[-1] ^= 1
    lab.files.remove(path)
    file = lab.files.create(path)
    file.write([data])
    file.sync()
    file.close()


def remove_record(lab: BrokerLab) -> None:
    with lab.metadata.batch() as batch:
        batch.delete("ledger", lab.topic.record.compacted.ledger_id)


DAMAGES = [remove_file, cut_file, flip_bit, remove_record]


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    """Compacted, raw data kept by a subscription."""
    lab = BrokerLab()
    lab.run(create_subscription(lab.topic, "s", StartPosition(earliest=True)))
    lab.publish(MESSAGES)
    lab.compact()
    yield lab
    lab.stop()


def damaged(lab: BrokerLab, damage: Damage) -> int:
    """Done behind the broker's back; it starts again then. The ledger's id."""
    ledger_id = lab.topic.record.compacted.ledger_id
    damage(lab)
    lab.restart()
    return ledger_id


def values(lab: BrokerLab, *, compacted: bool) -> list[bytes]:
    return [read.message.value for read in lab.read(EARLIEST, read_compacted=compacted)]


@pytest.mark.parametrize("damage", DAMAGES)
def test_reads_of_a_damaged_view_fail_with_an_error_that_names_it(
    lab: BrokerLab, damage: Damage
) -> None:
    """Never an empty answer, nor a wrong one: reads, the last id, a seek by time, and a run."""
    ledger_id = damaged(lab, damage)
    topic = lab.topic
    told = f"compacted ledger {ledger_id} of {TOPIC} .*__compaction"
    with pytest.raises(CompactedLedgerDamaged, match=told):
        values(lab, compacted=True)
    with pytest.raises(CompactedLedgerDamaged, match=told):
        lab.run(topic.log.search.last_entry(read_compacted=True))
    run = lab.compact()
    assert run is not None
    assert (run.state, run.error_reason) == (RUN_STATE_ERROR, "COMPACTED_LEDGER_DAMAGED")
    assert f"ledger {ledger_id} " in run.error_message


@pytest.mark.parametrize("damage", DAMAGES)
def test_raw_readers_are_not_affected(lab: BrokerLab, damage: Damage) -> None:
    """Neither do publishers, consumers and seeks."""
    damaged(lab, damage)
    lab.publish(MESSAGES)
    assert values(lab, compacted=False) == [b"1", b"2", b"1", b"2"]
    assert len(lab.consume(2, read_compacted=False)) == 2
    lab.run(seek_subscription(lab.topic, "s", StartPosition(earliest=True)))
    assert len(lab.consume(4, read_compacted=False)) == 4


@pytest.mark.parametrize("damage", DAMAGES)
def test_deleting_the_compaction_cursor_and_compacting_recovers(
    lab: BrokerLab, damage: Damage
) -> None:
    """At once, and after a restart; raw entries are compacted again."""
    damaged(lab, damage)
    with pytest.raises(CompactedLedgerDamaged):
        values(lab, compacted=True)
    lab.run(disable_compaction(lab.broker, TOPIC))
    assert values(lab, compacted=True) == [b"1", b"2"]
    run = lab.compact()
    assert run is not None
    assert run.state == RUN_STATE_SUCCESS
    lab.restart()
    assert values(lab, compacted=True) == [b"2"]


@pytest.mark.parametrize("profile", ["documented", "pulsar-4"])
@pytest.mark.parametrize("damage", DAMAGES)
def test_following_the_advice_of_the_error_works(
    lab: BrokerLab, damage: Damage, profile: str
) -> None:
    """Step by step, in each profile, also after a failed run: no step is refused."""
    damaged(lab, damage)
    lab.topic.record.policies.emulation.CopyFrom(Settings(profile=profile))
    lab.compact()
    with pytest.raises(CompactedLedgerDamaged) as raised:
        values(lab, compacted=True)
    advice = "unload the topic, delete the subscription __compaction, then compact"
    assert advice in str(raised.value)
    lab.run(lab.broker.unload_topic(TOPIC))
    lab.run(disable_compaction(lab.broker, TOPIC))
    run = lab.compact()
    assert run is not None
    assert run.state == RUN_STATE_SUCCESS
    assert values(lab, compacted=True) == [b"2"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_repairing_offline_works(lab: BrokerLab, damage: Damage) -> None:
    """With the broker stopped. Nothing is lost here: raw ledgers have it all, or the files do."""
    damage(lab)
    lab.stop()
    offline = Offline(DATA, lab._pairs, lab.files)
    assert offline.damage()
    assert sum(each.messages or 0 for each in offline.repair().steps) == 0
    lab.open()
    assert values(lab, compacted=False) == [b"1", b"2"]
    lab.publish([([Message(b"a", b"3")], False)])
    run = lab.compact()
    assert run is not None
    assert run.state == RUN_STATE_SUCCESS
    assert values(lab, compacted=True) == [b"3"]


@pytest.mark.parametrize("damage", DAMAGES)
def test_internal_stats_show_the_damage(lab: BrokerLab, damage: Damage) -> None:
    """Missing files and records are known at once, other damage once it was read."""
    ledger_id = lab.topic.record.compacted.ledger_id
    assert "damage" not in internal_stats(lab.broker, lab.topic)["compactedLedger"]
    damaged(lab, damage)
    with pytest.raises(CompactedLedgerDamaged):
        values(lab, compacted=True)
    shown = internal_stats(lab.broker, lab.topic)["compactedLedger"]
    assert shown["ledgerId"] == ledger_id
    assert f"compacted ledger {ledger_id} of {TOPIC} cannot be read" in shown["damage"]


def test_internal_stats_check_the_files(lab: BrokerLab) -> None:
    """Tests a ledger that vanished while the topic was loaded, and was not read since."""
    remove_file(lab)
    assert "damage" in internal_stats(lab.broker, lab.topic)["compactedLedger"]


def test_restored_files_are_read_again(lab: BrokerLab) -> None:
    """After an unload, missing files are looked up again."""
    path = file_of_compacted(lab)
    with lab.files.map(path) as view:
        data = bytes(view)
    damaged(lab, remove_file)
    with pytest.raises(CompactedLedgerDamaged):
        values(lab, compacted=True)
    file = lab.files.create(path)
    file.write([data])
    file.close()
    lab.run(lab.broker.unload_topic(TOPIC))
    assert values(lab, compacted=True) == [b"2"]


def test_a_topic_with_a_missing_compacted_ledger_can_be_deleted(lab: BrokerLab) -> None:
    damaged(lab, remove_record)
    lab.run(lab.broker.delete_topic(TOPIC, force=False))
    assert (lab.metadata.topic(TOPIC), lab.metadata.ledgers()) == (None, [])


def test_the_next_run_detects_an_undetected_loss(lab: BrokerLab) -> None:
    """Without a reload, and before the worker is asked."""
    lab.publish(MESSAGES)
    remove_file(lab)
    run = lab.compact()
    assert run is not None
    assert run.error_reason == "COMPACTED_LEDGER_DAMAGED"


def test_in_pulsar_4_recovery_after_a_failed_run_needs_a_load(lab: BrokerLab) -> None:
    """Until then the failed run prevents deleting `__compaction` (PROFILES.md, 7.1)."""
    damaged(lab, remove_file)
    lab.topic.record.policies.emulation.CopyFrom(Settings(profile="pulsar-4"))
    lab.compact()
    with pytest.raises(LedgerfoldError, match="cannot be read"):
        lab.run(disable_compaction(lab.broker, TOPIC))
    lab.run(lab.broker.unload_topic(TOPIC))
    lab.run(disable_compaction(lab.broker, TOPIC))
    lab.compact()
    assert values(lab, compacted=True) == [b"2"]


def test_a_start_after_a_damaged_batch_skips_it(lab: BrokerLab) -> None:
    """Without a batch index the start is after the whole batch."""
    lab.publish([([Message(b"a", b"3"), Message(b"b", b"1")], True)])
    last = lab.topic.log.positions.last()
    at = MessageId(ledger_id=last.ledger_id, entry_id=last.entry_id, batch_index=-1)
    start = StartPosition(message_id=at)
    assert lab.run(lab.topic.log.search.resolve_start(start, False)) == (last, True)
    folder = DATA / "ledgers" / str(last.ledger_id)
    flip_last_bit(lab, folder / lab.files.listdir(folder)[-2])
    lab.restart()
    assert lab.run(lab.topic.log.search.resolve_start(start, False)) == (last.next, True)


def test_a_start_within_a_damaged_batch_raises(lab: BrokerLab) -> None:
    """The messages after its first one are still due: a read raises the damage. Batches had been
    damaged only in front of starts without an index.
    """
    lab.publish([([Message(b"a", b"3"), Message(b"b", b"1")], True)])
    last = lab.topic.log.positions.last()
    folder = DATA / "ledgers" / str(last.ledger_id)
    flip_last_bit(lab, folder / lab.files.listdir(folder)[-2])
    lab.restart()
    for index in (0, 1):
        at = MessageId(ledger_id=last.ledger_id, entry_id=last.entry_id, batch_index=index)
        start = StartPosition(message_id=at)
        assert lab.run(lab.topic.log.search.resolve_start(start, False)) == (last, True)
