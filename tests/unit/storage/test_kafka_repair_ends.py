"""Tests how a repair keeps a Kafka topic's transactions and assigned offsets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from ledgerfold.storage.entry import read_header
from ledgerfold.storage.kafka.batch import read_batch_header
from ledgerfold.storage.metadata import MetadataStore
from tests.model.broker_lab import DATA, TOPIC
from tests.support.kafka_lab import KafkaLab
from tests.support.offline import LEDGERS, Offline, Snapshot, taken

KEPT = {"cleanup.policy": "delete", "retention.ms": "-1"}
ENDINGS = pytest.mark.parametrize("ending", ["stop", "crash"])


class Log(KafkaLab):
    """A log to repair: a letter is a batch, by its producer.

    `.` is of none, `t` of a transaction, `p` of the same producer and no transaction; `a` and `c`
    end the transaction, `|` the segment, `u` its ledger.
    """

    def __init__(self, steps: str) -> None:
        super().__init__(KEPT)
        self.sequence = 0
        self.write(steps)

    def write(self, steps: str) -> None:
        for step in steps:
            if step == "|":
                self.run(self.kafka.roll())
            elif step == "u":
                self.run(self.broker.unload_topic(TOPIC))
            elif step == ".":
                self.add([(b"k", b"v")])
            elif step in "ac":
                now_ms = self.clock.now_ms()
                self.run(self.kafka.end_transaction(7, 0, commit=step == "c", timestamp_ms=now_ms))
            else:
                fields: dict[str, Any] = {"producer_epoch": 0, "is_transactional": step == "t"}
                self.add([(b"k", b"v")], producer_id=7, base_sequence=self.sequence, **fields)
                self.sequence += 1

    def ended(self, ending: str) -> Repaired:
        if ending == "stop":
            self.stop()
        else:
            self._drop()
        return Repaired(taken(self.files, self._pairs))


def _instead(by: bytes, _: bytes) -> bytes:
    return by


class Repaired:
    """A data directory that was damaged and repaired."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.files, self.pairs = snapshot.disk()
        self.offline = Offline(DATA, self.pairs, self.files)

    def lose(self, *offsets: int) -> None:
        """The last byte of those batches."""
        found = set[int]()
        for folder in self.files.listdir(LEDGERS):
            for name in self.files.listdir(LEDGERS / folder):
                path = LEDGERS / folder / name
                if path.suffix != ".log":
                    continue
                data, at = bytearray(self.files.open_read(path).pread(1 << 20, 0)), 0
                while at < len(data):
                    entry = read_header(data, at)
                    offset = read_batch_header(data, at + entry.header_bytes).base_offset
                    at += entry.size_bytes
                    if offset in offsets:
                        found.add(offset)
                        data[at - 1] ^= 1
                self.files.damage(path, partial(_instead, bytes(data)))
        assert found == set(offsets)
        self.repair()

    @property
    def segments(self) -> list[list[int]]:
        topic = MetadataStore(self.pairs).topic(TOPIC)
        assert topic is not None
        return [list(each.ledger_ids) for each in topic.kafka.segments]

    def lose_ledgers(self, ledger_ids: list[int]) -> None:
        metadata = MetadataStore(self.pairs)
        for ledger_id in ledger_ids:
            with metadata.batch() as batch:
                batch.delete("ledger", ledger_id)
            self.files.remove_dir(LEDGERS / str(ledger_id))
        self.repair()

    def repair(self) -> None:
        self.offline.repair()
        assert self.offline.damage() == []

    @contextmanager
    def started(self) -> Iterator[KafkaLab]:
        lab = KafkaLab.__new__(KafkaLab)
        lab.resume(self.files, self.pairs)
        try:
            yield lab
        finally:
            lab.close()

    def check(self, committed: list[int], end: int) -> None:
        """However often the log is loaded."""
        with self.started() as lab:
            for reload in (lab.restart, lab.crash, lab.restart):
                assert [offset for offset, *_ in lab.records(committed=True)] == committed
                reload()
            assert lab.add([(b"x", b"x")])[0] == (end, end)
            for reload in (lab.crash, lab.restart):
                reload()
                found = [offset for offset, *_ in lab.records(committed=True)]
                assert found == [*committed, end]


@ENDINGS
@pytest.mark.parametrize(
    ("steps", "lost", "committed"),
    [
        (".ta.|.", 3, [0, 4]),
        (".ta|.", 2, [0, 3]),
        (".t|a|.", 2, [0, 3]),
        (".ta.ta|.", 2, [0, 3, 6]),
        # The active segment began behind it.
        (".tatc|t", 2, [0, 3]),
    ],
)
def test_aborted_records_stay_aborted(
    ending: str, steps: str, lost: int, committed: list[int]
) -> None:
    """Its marker is lost, or something behind it."""
    repaired = Log(steps).ended(ending)
    repaired.lose(lost)
    end = sum(each != "|" for each in steps)
    if steps.endswith("t"):
        with repaired.started() as lab:
            assert [offset for offset, *_ in lab.records(committed=True)] == committed
        return
    repaired.check(committed, end)


@ENDINGS
@pytest.mark.parametrize(("steps", "lost", "left"), [(".ta.", 3, 1), (".|.ta..", 4, 2)])
def test_a_repaired_segment_keeps_its_figures(
    ending: str, steps: str, lost: int, left: int
) -> None:
    """Once another has begun behind it, its batches are not looked at."""
    repaired = Log(steps).ended(ending)
    repaired.lose(lost)
    end = len(steps.replace("|", ""))
    committed = [*range(left), *range(lost + 1, end)]
    with repaired.started() as lab:
        for reload in (lab.restart, lab.crash, lab.restart, lambda: None):
            assert [offset for offset, *_ in lab.records(committed=True)] == committed
            reload()
            committed += [offset for offset, _ in lab.add([(b"k", b"v")])]
            lab.run(lab.kafka.roll())


@ENDINGS
def test_records_aborted_in_a_lost_segment_stay_aborted(ending: str) -> None:
    repaired = Log(".t|a.|.|.").ended(ending)
    repaired.lose_ledgers(repaired.segments[1])
    repaired.check([0, 4, 5], end=6)


def test_records_aborted_before_the_log_was_closed_stay_aborted() -> None:
    """In its active segment."""
    repaired = Log(".|.ta.").ended("stop")
    repaired.lose(3)
    repaired.check([0, 1, 4], end=5)


@ENDINGS
@pytest.mark.parametrize(("steps", "lost"), [("...", 2), ("....", 2), (".|..", 2), ("..", 0)])
def test_offsets_at_the_logs_end_are_not_reused(ending: str, steps: str, lost: int) -> None:
    repaired = Log(steps).ended(ending)
    end = steps.count(".")
    repaired.lose(*range(lost, end))
    repaired.check(list(range(lost)), end)


@pytest.mark.parametrize("steps", ["..|..", "..|..|", ".."])
def test_the_end_of_a_closed_log_is_known_without_its_last_segment(steps: str) -> None:
    repaired = Log(steps).ended("stop")
    at = min(steps.count("|"), 1)
    repaired.lose_ledgers(repaired.segments[at])
    repaired.check([0, 1][: 2 * at], end=steps.count("."))


@pytest.mark.parametrize(
    ("steps", "lost", "committed"),
    [
        # Its producer continues without one.
        (".tap.", 2, [0, 3, 4]),
        (".tcp.", 2, [0, 3, 4]),
        # Another follows, and is committed.
        (".tatc.", 2, [0, 3, 5]),
        (".tattc|.", 2, [0, 3, 4, 6]),
        (".tc|atc.", 3, [0, 1, 4, 6]),
        # And is aborted.
        (".tcta.", 2, [0, 5]),
        # The lost batch is no marker, but nothing proves it.
        (".tt.c.", 2, [0, 3, 5]),
        # Nothing follows.
        (".ta..", 2, [0, 3, 4]),
        (".ta", 2, [0]),
    ],
)
def test_a_transaction_with_a_possibly_lost_marker_counts_as_aborted(
    steps: str, lost: int, committed: list[int]
) -> None:
    """After a crash, no record says what was aborted in the active segment."""
    repaired = Log(steps).ended("crash")
    repaired.lose(lost)
    repaired.check(committed, end=len(steps.replace("|", "")))


@pytest.mark.parametrize("ending", ["stop", "crash", "roll and crash"])
def test_a_transaction_known_to_be_open_after_lost_data_stays_open(ending: str) -> None:
    steps = ".t." + "|" * (ending == "roll and crash") + "."
    repaired = Log(steps).ended("stop" if ending == "stop" else "crash")
    repaired.lose(2)
    with repaired.started() as lab:
        is_known = ending != "crash"
        for reload in (lab.restart, lab.crash):
            found = [offset for offset, *_ in lab.records(committed=True)]
            assert found == ([0] if is_known else [0, 3])
            reload()
        work = lab.kafka.end_transaction(7, 0, commit=True, timestamp_ms=1)
        lab.run(work)
        for reload in (lab.crash, lab.restart, lambda: None):
            found = [offset for offset, *_ in lab.records(committed=True)]
            assert found == ([0, 1, 3] if is_known else [0, 3])
            reload()


def test_a_marker_may_be_lost_with_a_ledger_within_a_segment() -> None:
    repaired = Log(".tuau.tc.").ended("crash")
    (segment,) = repaired.segments
    repaired.lose_ledgers(segment[1:2])
    repaired.check([0, 3, 4, 6], end=7)
