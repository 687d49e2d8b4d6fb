"""A raw ledger with damage: intact entries are served, and the damage is reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import Corruption
from tests.model.broker_lab import DATA, TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.lossy_files import everything

COUNT = 5


def publish(lab: BrokerLab, *values: bytes) -> list[Position]:
    """One entry each, with the value as its key, too."""
    return lab.publish([([Message(value, value)], False) for value in values])


def segment_of(lab: BrokerLab, ledger_id: int) -> Path:
    folder = DATA / "ledgers" / str(ledger_id)
    return folder / next(name for name in lab.files.listdir(folder) if name.endswith(".log"))


def flip(lab: BrokerLab, path: Path, entry: int, *, of: int, at: int) -> None:
    """A bit of the `entry`-th of `of` equally long entries, `at` bytes behind its beginning."""

    def change(data: bytes) -> bytes:
        place = len(data) // of * entry + at
        return data[:place] + bytes((data[place] ^ 1,)) + data[place + 1 :]

    lab.files.damage(path, change)


def damaged_lab(entry: int, at: int) -> tuple[BrokerLab, int]:
    """After kill -9: `COUNT` acknowledged entries in an open ledger, one of them damaged."""
    lab = BrokerLab()
    publish(lab, *(b"%d" % number for number in range(3)))
    ledger_id = lab.topic.record.ledger_ids[-1]
    publish(lab, *(b"%d" % number for number in range(3, COUNT)))
    lab.crash(everything, lambda: flip(lab, segment_of(lab, ledger_id), entry, of=COUNT, at=at))
    assert set(lab.report.damaged) == {ledger_id}
    return lab, ledger_id


# In the header's publish time, and in the value section's last byte.
PLACES = [30, -1]


@pytest.mark.parametrize("at", PLACES)
def test_a_topic_with_damage_is_served(at: int) -> None:
    """It loads, accepts messages, and serves entries before the damage."""
    lab, _ = damaged_lab(entry=2 if at > 0 else 3, at=at)
    (later,) = publish(lab, b"later")
    call = lab.reader(EARLIEST, read_compacted=False)
    assert [read.message.value for read in call.some(2)] == [b"0", b"1"]
    with pytest.raises(Corruption):
        call.rest()
    call.close()
    assert [read.message.value for read in lab.read(later, read_compacted=False)] == [b"later"]
    lab.stop()


@pytest.mark.parametrize("at", PLACES)
def test_a_compaction_over_damage_fails_and_trimming_keeps_the_ledger(at: int) -> None:
    """The run names the damage. The ledger stays, though every cursor has passed it."""
    lab, ledger_id = damaged_lab(entry=2 if at > 0 else 3, at=at)
    publish(lab, b"later")
    run = lab.compact()
    assert run is not None
    assert not lab.succeeded(run)
    assert run.error_reason == "DATA_CORRUPT"
    assert f"{ledger_id}/" in run.error_message
    assert lab.topic.log.views.horizon is None
    lab.run(lab.broker.unload_topic(TOPIC))
    lab.run(lab.topic.trim())
    assert ledger_id in lab.topic.record.ledger_ids
    lab.crash()
    assert set(lab.report.damaged) == {ledger_id}
    lab.stop()


def test_trimming_keeps_a_damaged_ledger_that_every_cursor_has_passed() -> None:
    """Earlier ledgers are deleted: oldest first, up to the first that must stay."""
    lab = BrokerLab()
    ledgers = []
    for value in (b"1", b"2", b"3"):
        ledgers.append(publish(lab, value)[0].ledger_id)
        lab.run(lab.topic.log.tail.roll())
    lab.run(lab.topic.enable_compaction_cursor())
    lab.crash(everything, lambda: lab.files.remove(segment_of(lab, ledgers[1])))
    assert set(lab.report.damaged) == {ledgers[1]}
    lab.run(lab.broker.topic(TOPIC))
    with lab.metadata.batch() as batch:
        record = lab.topic.record
        record.compacted.ledger_id = -1
        record.compacted.horizon.ledger_id = ledgers[2]
        batch.put(record)
    lab.topic.log.views.renew()
    lab.run(lab.topic.trim())
    assert list(lab.topic.record.ledger_ids)[:2] == ledgers[1:]
    lab.stop()
