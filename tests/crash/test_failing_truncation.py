"""Truncating a Kafka topic's log on a disk that fails or loses data at each call.

Each time, another disk or metadata call fails. In each case the log is unchanged, or truncated,
with its checkpoint; no unreferenced file remains; and a repetition succeeds.
"""

from __future__ import annotations

from contextlib import suppress

import pytest

from ledgerfold.broker.topics.kafka_truncation import truncate_log
from ledgerfold.storage.errors import LedgerfoldError
from tests.model.broker_lab import DATA, TOPIC
from tests.support.kafka_lab import KafkaLab
from tests.support.lossy_files import TAILS, Tail

# Offset, checkpoint, producer's last sequence.
State = tuple[list[int], int | None, list[int]]
# Into a cleaned segment, into another one, to a segment's base, into the active one.
OFFSETS = (1, 4, 6, 8)


def history() -> KafkaLab:
    """0 1 2 | 3 4 5 | 6 7 8, the first segment cleaned."""
    lab = KafkaLab({"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0"})
    for number in range(9):
        if number in (3, 6):
            lab.run(lab.kafka.roll())
        if number == 6:
            lab.run(lab.kafka.partition.change_config({"internal.segment.bytes": "250"}))
            assert lab.clean().outcome is not None
        pair = (bytes((number,)), b"1")
        lab.add([pair], producer_id=7, producer_epoch=0, base_sequence=number)
    assert [each.base_offset for each in lab.kafka.log.segments] == [0, 3, 6]
    return lab


def state(lab: KafkaLab) -> State:
    told = lab.run(lab.kafka.describe(batches=False))
    checkpoint = told.checkpoint if told.HasField("checkpoint") else None
    sequences = [each.last_sequence for each in told.producers]
    return [offset for offset, *_ in lab.records()], checkpoint, sequences


def meant(offset: int) -> State:
    """Returns the result without failures."""
    left = list(range(offset))
    return left, max(base for base in (0, 3, 6) if base <= offset), left[-1:]


def calls_of(offset: int) -> int:
    lab = history()
    before = len(lab.files.calls)
    lab.run(truncate_log(lab.broker, TOPIC, offset))
    calls = len(lab.files.calls) - before
    assert state(lab) == meant(offset)
    lab.close()
    return calls


CASES = [
    pytest.param(offset, number, id=f"{offset}-{number}")
    for offset in OFFSETS
    for number in range(1, calls_of(offset) + 1)
]


def check(lab: KafkaLab, offset: int) -> None:
    before = list(range(9)), 6, [8]
    assert state(lab) in (before, meant(offset))
    check_files(lab)
    lab.run(truncate_log(lab.broker, TOPIC, offset))
    assert state(lab) == meant(offset)
    lab.restart()
    assert state(lab) == meant(offset)
    check_files(lab)
    lab.close()


def check_files(lab: KafkaLab) -> None:
    files, ledgers = lab.files, DATA / "ledgers"
    used = {str(each) for segment in lab.kafka.log.segments for each in segment.ledger_ids}
    there = {folder for folder in files.listdir(ledgers) if files.listdir(ledgers / folder)}
    assert there <= used
    assert {str(each.ledger_id) for each in lab.metadata.ledgers()} == used


@pytest.mark.parametrize(("offset", "number"), CASES)
def test_the_nth_call_fails(offset: int, number: int) -> None:
    """The broker continues; a restart finds everything in order."""
    lab = history()
    lab.files.fail_at(number)
    with suppress(LedgerfoldError):
        lab.run(truncate_log(lab.broker, TOPIC, offset))
    lab.restart()
    check(lab, offset)


@pytest.mark.parametrize("tail", TAILS)
@pytest.mark.parametrize(("offset", "number"), CASES)
def test_the_power_fails_after_the_nth_call(offset: int, number: int, tail: Tail) -> None:
    lab = history()
    lab.files.crash_at(number)
    lab.run_until_crash(truncate_log(lab.broker, TOPIC, offset))
    lab.crash(tail)
    check(lab, offset)
