"""Rounds over random logs, turn after turn, against the pure model of Kafka's cleaner."""

from __future__ import annotations

import random
from itertools import accumulate
from pathlib import Path

import pytest

from ledgerfold.compactor.kafka import batches as batches_module
from ledgerfold.compactor.kafka import copy as copy_module
from ledgerfold.compactor.kafka import plan as plan_module
from ledgerfold.compactor.kafka import records as records_module
from ledgerfold.compactor.kafka import scan as scan_module
from ledgerfold.storage.kafka.batch import (
    BatchHeader,
    TimestampType,
    attributes_of,
    read_batch_header,
    sealed,
)
from ledgerfold.storage.kafka.records import records_of
from ledgerfold.storage.kafka.section import record_section
from ledgerfold.v1.compactor_pb2 import ActiveProducer, CleanedGroup, CleanManifest
from ledgerfold.v1.records_pb2 import AbortedTransaction
from tests.model.kafka.batches import LOG_APPEND_TIME, Batch
from tests.model.kafka.cleaner import DOCUMENTED, KAFKA, Round
from tests.model.kafka.log import Clock, Log
from tests.model.kafka.records import batch_of, marker_of
from tests.model.kafka.segments import Segment
from tests.model.kafka.settings import TopicSettings
from tests.support.kafka_log import KafkaLog
from tests.support.property_tests import examples

KEYS = [None, *"abcdefgh"]


@pytest.fixture(params=["one task", "many tasks"])
def tasks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything at once, and tasks, stretches and chunks of a few batches each."""
    if request.param == "many tasks":
        monkeypatch.setattr(plan_module, "SOLO_BYTES", 0)
        monkeypatch.setattr(plan_module, "TASK_BYTES", 600)
        monkeypatch.setattr(plan_module, "BUCKET_BYTES", 1000)
        monkeypatch.setattr(scan_module, "CHUNK_BYTES", 500)
        monkeypatch.setattr(copy_module, "CHUNK_BYTES", 500)
        monkeypatch.setattr(scan_module, "COLUMN_BYTES_MAX", 0)
        monkeypatch.setattr(batches_module, "CHUNK_RECORDS", 7)
        monkeypatch.setattr(records_module, "TOGETHER_MIN", 2)
        monkeypatch.setattr(scan_module, "FOLD_ROWS", 10)


class Both:
    """A log of the model, and the same in ledger files."""

    def __init__(self, folder: Path, seed: int, profile: str = DOCUMENTED) -> None:
        self.random = random.Random(seed)
        self.profile = profile
        self.clock = Clock(1_000)
        settings = TopicSettings.of(
            {
                "delete.retention.ms": str(self.random.choice([0, 50, 1000, 2**63 - 1])),
                "index.interval.bytes": str(self.random.choice([0, 100, 4096])),
                "message.timestamp.type": self.random.choice(["CreateTime", "LogAppendTime"]),
                "internal.segment.bytes": str(self.random.choice([1_000, 3_000, 100_000])),
            }
        )
        self.model = Log(settings, self.clock)
        self.files = KafkaLog(
            folder,
            delete_retention_ms=settings.delete_retention_ms,
            index_interval_bytes=settings.index_interval_bytes,
            log_segment_bytes=settings.segment_bytes,
            map_reopens_aborted=profile == KAFKA,
        )
        self.checkpoint = 0
        self._sequences: dict[int, int] = {}
        self._open: set[int] = set()

    def write(self) -> None:
        for _ in range(self.random.randint(3, 25)):
            self.clock.now_ms += self.random.randint(0, 30)
            if self._open and self.random.random() < 0.3:
                self._end(self.random.choice(sorted(self._open)))
            else:
                self._append()
            if self.random.random() < 0.1:
                self.model.roll()
        for producer_id in sorted(self._open):
            self._end(producer_id)
        self.model.roll()
        self._mirror()

    def _append(self) -> None:
        records = [
            {
                "key": self.random.choice(KEYS),
                "value": self.random.choice([None, "", "1", "x" * 150]),
                "timestamp": self.clock.now_ms - self.random.randint(0, 200),
            }
            for _ in range(self.random.choice([1, 1, 2, 5]))
        ]
        request: dict[str, object] = {}
        producer_id = self.random.randint(-3, 3)
        if producer_id > 0:
            sequence = self._sequences.get(producer_id, 0)
            self._sequences[producer_id] = sequence + len(records)
            request = {"pid": producer_id, "sequence": sequence}
            if producer_id < 3:
                request["transactional"] = True
                self._open.add(producer_id)
        self.model.append_as_leader(batch_of(request, records, self.clock.now_ms))

    def _end(self, producer_id: int) -> None:
        self._open.discard(producer_id)
        request = {"pid": producer_id, "type": self.random.choice(["commit", "abort"])}
        self.model.append_as_leader(marker_of(request, self.clock.now_ms), "coordinator")

    def _mirror(self) -> None:
        """Mirrors new writes into files, which the broker names to the worker."""
        closed = self.model.segments[:-1]
        known = self.files.segments[-1].next_base_offset if self.files.segments else 0
        for segment, following in zip(closed, self.model.segments[1:], strict=True):
            if segment.base >= known:
                for batch in segment.batches:
                    self.files.add(_bytes_of(batch))
                self.files.roll(self.random.randint(1, 5), following.base)
                self.files.segments[-1].offset_index_bytes = segment.offset_index_bytes
                self.files.segments[-1].time_index_bytes = segment.time_index_bytes
        self.files.producers = {
            producer_id: ActiveProducer(
                producer_id=producer_id,
                producer_epoch=each.epoch,
                last_data_offset=-1 if each.last_data_offset is None else each.last_data_offset,
            )
            for producer_id, each in self.model.producers.known.items()
        }
        self.files.aborted = [
            AbortedTransaction(
                producer_id=each.pid,
                first_offset=each.first,
                last_offset=each.last,
                last_stable_offset=each.stable,
            )
            for segment in self.model.segments
            for each in segment.aborted
        ]

    def forget(self) -> None:
        """Some producers are expired."""
        for producer_id in list(self.model.producers.known):
            if self.random.random() < 0.3:
                del self.model.producers.known[producer_id]
                self._sequences.pop(producer_id, None)
        self._mirror()

    def turn(self) -> None:
        bound = self.model.active.base
        keys_max = self.random.choice([1, 2, 3, 5, 8, 1000])
        if self.checkpoint >= bound:
            return
        self.files.checkpoint = self.checkpoint
        manifest = self.files.clean(keys_max=keys_max, time_ms=self.clock.now_ms)
        before = self._before_dirty()
        done = Round(self.model, self.checkpoint, bound, keys_max, self.profile)
        self.checkpoint = done.clean()
        assert manifest.end_offset == self.checkpoint
        self._compare(manifest, done)
        # Kafka reads whole batches before it, from an entry of its offset index on.
        more = done.stats.map_messages_read - manifest.stats.map_messages_read
        assert more in accumulate(reversed(before), initial=0)

    def _before_dirty(self) -> list[int]:
        """The messages of each batch that lies before the first dirty offset in its segment."""
        segment = [each for each in self.model.segments if each.base <= self.checkpoint][-1]
        return [
            1 if each.control else len(each.records)
            for each in segment.batches
            if each.last < self.checkpoint
        ]

    def _compare(self, manifest: CleanManifest, done: Round) -> None:
        closed = self.model.segments[:-1]
        wanted = [_described(_bytes_of(batch)) for each in closed for batch in each.batches]
        assert [_described(batch) for batch in self.files.batches()] == wanted
        assert self.files.batches() == [_bytes_of(b) for each in closed for b in each.batches]
        for group, segment in zip(manifest.groups, closed, strict=False):
            assert _facts(group) == _model_facts(segment)
        stats, told = manifest.stats, done.stats
        assert (stats.messages_read, stats.messages_written, stats.invalid_messages_read) == (
            told.messages_read,
            told.messages_written,
            told.invalid_messages_read,
        )
        assert (stats.bytes_read, stats.bytes_written, stats.map_keys) == (
            told.bytes_read,
            told.bytes_written,
            told.map_size,
        )


def _facts(group: CleanedGroup) -> tuple[object, ...]:
    return (
        group.base_offset,
        group.size_bytes,
        group.next_offset,
        (group.max_timestamp_ms, group.max_timestamp_offset),
        group.first_batch_timestamp_ms,
        (group.offset_index_bytes, group.time_index_bytes),
        [(each.producer_id, each.first_offset, each.last_offset) for each in group.aborted],
    )


def _model_facts(segment: Segment) -> tuple[object, ...]:
    return (
        segment.base,
        segment.size,
        segment.next_offset,
        segment.largest,
        segment.first_timestamp(),
        (segment.offset_index_bytes, segment.time_index_bytes),
        [(each.pid, each.first, each.last) for each in segment.aborted],
    )


def _described(batch: bytes) -> object:
    header = read_batch_header(batch)
    return header._replace(crc=0), list(records_of(batch))


def _bytes_of(batch: Batch) -> bytes:
    """Returns the model's batches as Kafka stores them."""
    section = record_section(
        [record.key for record in batch.records],
        [record.value for record in batch.records],
        [record.timestamp for record in batch.records],
        {},
        [record.offset - batch.base for record in batch.records],
        batch.base_timestamp if batch.horizon is None else batch.horizon,
    )
    header = BatchHeader(
        base_offset=batch.base,
        length=0,
        leader_epoch=0,
        magic=2,
        crc=0,
        attributes=attributes_of(
            0,
            TimestampType(batch.timestamp_type == LOG_APPEND_TIME),
            is_transactional=batch.transactional,
            is_control=batch.control,
            has_delete_horizon=batch.horizon is not None,
        ),
        last_offset_delta=batch.last - batch.base,
        base_timestamp_ms=batch.base_timestamp if batch.horizon is None else batch.horizon,
        max_timestamp_ms=batch.max_timestamp,
        producer_id=batch.pid,
        producer_epoch=batch.epoch,
        base_sequence=batch.base_sequence,
        record_count=len(batch.records),
    )
    return sealed(header, section)


@pytest.mark.usefixtures("tasks")
@pytest.mark.parametrize("profile", [DOCUMENTED, KAFKA])
@pytest.mark.parametrize("seed", range(examples(6)))
def test_cleanings_equal_the_model(seed: int, profile: str, tmp_path: Path) -> None:
    """Batch by batch, with the facts and figures of each new segment."""
    both = Both(tmp_path, seed, profile)
    for _ in range(6):
        both.write()
        both.turn()
        if both.random.random() < 0.3:
            both.forget()
