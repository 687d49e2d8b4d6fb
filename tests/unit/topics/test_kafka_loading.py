"""Compares a load from the topic's record with a load that reads every batch."""

from __future__ import annotations

from contextlib import closing
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.broker.kafka.log import loading
from ledgerfold.broker.kafka.log.reads import headers_of
from ledgerfold.broker.kafka.log.segments import batches_bytes
from ledgerfold.broker.kafka.partition import Partition
from ledgerfold.storage.errors import Corruption, KafkaError
from ledgerfold.storage.ledger import LedgerReader
from ledgerfold.storage.records import put_segments
from ledgerfold.v1.records_pb2 import LedgerRecord
from tests.model.broker_lab import TOPIC
from tests.support.kafka_lab import KafkaLab
from tests.support.lossy_files import everything, nothing
from tests.support.property_tests import examples

A, B = (b"a", b"1"), (b"b", b"2")
PRODUCERS = (7, 8)

_STEPS = st.sampled_from(
    [
        *[("add", each) for each in PRODUCERS],
        *[("add in a transaction", each) for each in PRODUCERS],
        *[("commit", each) for each in PRODUCERS],
        *[("abort", each) for each in PRODUCERS],
        ("roll", 0),
        ("clean", 0),
        ("unload", 0),
        ("restart", 0),
        ("crash", 0),
        ("roll, and crash", 0),
        ("roll, and crash with all that was written", 0),
        ("start later", 0),
    ]
)


class History:
    """Steps on a log, and the visible state after each load."""

    def __init__(self) -> None:
        self.lab = KafkaLab({"cleanup.policy": "compact", "index.interval.bytes": "100"})
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.seen: list[Any] = []

    def close(self) -> None:
        self.lab.close()

    def step(self, what: str, producer_id: int) -> None:
        lab, partition = self.lab, self.lab.kafka.partition
        try:
            if what in ("add", "add in a transaction"):
                self.add(producer_id, is_transactional=what != "add")
            elif what in ("commit", "abort"):
                is_commit, now_ms = what == "commit", lab.clock.now_ms()
                work = lab.kafka.end_transaction(
                    producer_id, 0, commit=is_commit, timestamp_ms=now_ms
                )
                lab.run(work)
            elif what == "roll":
                lab.run(lab.kafka.roll())
            elif what == "clean":
                lab.clean()
            elif what == "start later":
                later = partition.log_start_offset + 3
                lab.run(partition.set_log_start(min(later, partition.high_watermark)))
            else:
                self.load(what)
        except KafkaError as error:
            self.seen.append(error.kind)

    def add(self, producer_id: int, *, is_transactional: bool) -> None:
        self.lab.add(
            [A, B],
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=self.sequences[producer_id],
            is_transactional=is_transactional,
        )
        self.sequences[producer_id] += 2

    def load(self, how: str) -> None:
        lab = self.lab
        if how == "unload":
            lab.run(lab.broker.unload_topic(TOPIC))
        elif how == "restart":
            lab.restart()
        elif how == "crash":
            lab.crash()
        else:
            lab.run(roll_and_not_wait(lab.kafka.partition))
            lab.crash(everything if how == "roll, and crash with all that was written" else nothing)
        self.seen.append(self.told())

    def told(self) -> list[Any]:
        partition = self.lab.kafka.partition
        log = partition.log
        first = partition.log_start_offset
        return [
            [(each.base_offset, each.facts, list(each.aborted)) for each in log.segments],
            log.segments.active.growth,
            (first, log.end_offset, partition.high_watermark, partition.last_stable_offset),
            sorted(partition.producers.snapshot(), key=lambda each: each.producer_id),
            [self.lab.records(each) for each in range(first, log.end_offset + 1)],
            self.lab.records(committed=True),
        ]


async def roll_and_not_wait(partition: Partition) -> None:
    partition.log.roll()


def seen_of(steps: list[tuple[str, int]], believes: bool) -> list[Any]:
    def of_another_size(record: LedgerRecord) -> int:
        return -1

    size_of = batches_bytes if believes else of_another_size
    with patch.object(loading, "batches_bytes", size_of), closing(History()) as history:
        for what, producer_id in steps:
            history.step(what, producer_id)
        history.load("restart")
        history.load("crash")
        return history.seen


@settings(max_examples=examples(150), deadline=None)
@given(st.lists(_STEPS, min_size=3, max_size=25))
def test_a_load_finds_the_same_as_reading_every_batch(steps: list[tuple[str, int]]) -> None:
    assert seen_of(steps, believes=True) == seen_of(steps, believes=False)


def test_a_load_reads_no_batch_after_a_stop_and_the_last_segments_after_a_crash() -> None:
    looked_at = list[int]()

    def counted(reader: LedgerReader) -> Any:
        for each in headers_of(reader):
            looked_at.append(each[1].base_offset)
            yield each

    with closing(History()) as history, patch.object(loading, "headers_of", counted):
        for _ in range(3):
            for _ in range(4):
                history.step("add", 7)
            history.step("roll", 0)
        history.step("add", 7)
        history.load("restart")
        assert looked_at == []
        history.step("add", 7)
        history.load("crash")
        assert looked_at == [24, 26]


def test_a_log_whose_segments_are_out_of_order_is_refused() -> None:
    """A reader would look for the next segment for ever.

    Tests of damage had changed bytes of files, never the order in a record that can be decoded.
    """
    lab = KafkaLab({"cleanup.policy": "delete"})
    for _ in range(3):
        lab.add([A])
        lab.run(lab.kafka.roll())

    async def disorder() -> None:
        async with lab.broker.kept_unloaded(TOPIC):
            record = lab.metadata.topic(TOPIC)
            assert record is not None
            put_segments(record.kafka, [record.kafka.segments[at] for at in (1, 0, 2, 3)])
            with lab.metadata.batch() as batch:
                batch.put(record)

    lab.run(disorder())
    before = lab.metadata.ledgers()
    with pytest.raises(Corruption, match="found base offset 0 after 1"):
        lab.records()
    assert lab.metadata.ledgers() == before
    lab.close()
