"""A round that may read and write only so much in a second: how long its tasks wait, and when."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from ledgerfold.compactor.kafka import plan as plan_module
from ledgerfold.compactor.kafka import tasks as tasks_module
from ledgerfold.compactor.kafka.batches import CHUNK_BYTES
from ledgerfold.compactor.kafka.throttle import TaskThrottle
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.compactor_pb2 import CleanManifest
from tests.support.kafka_log import KafkaLog, run_round


class Time:
    """A clock that advances only by waits and by the test."""

    def __init__(self) -> None:
        self.now, self.waits = 0.0, list[float]()

    def sleep(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.now += seconds

    def pace(self, bytes_per_second: float) -> TaskThrottle:
        return TaskThrottle(bytes_per_second, lambda: self.now, self.sleep)


@pytest.fixture
def time() -> Time:
    return Time()


def test_a_task_waits_once_for_many_small_operations(time: Time) -> None:
    pace = time.pace(1_000)
    for _ in range(100):
        pace.spend(10)
    assert time.waits == pytest.approx([0.3, 0.3, 0.3])
    pace.settle()
    assert time.now == pytest.approx(1)
    pace.settle()
    assert len(time.waits) == 4


def test_time_spent_on_work_counts_and_idle_time_does_not(time: Time) -> None:
    pace = time.pace(1_000)
    time.now = 0.2
    pace.spend(300)
    assert time.waits == pytest.approx([0.1])
    time.now += 100
    pace.spend(300)
    assert len(time.waits) == 1
    pace.spend(500)
    assert time.waits[1:] == pytest.approx([0.5])


@pytest.mark.parametrize(("rate", "at_once"), [(inf, CHUNK_BYTES), (1_000, 300), (0, 1)])
def test_the_size_of_one_read_covers_an_interval(time: Time, rate: float, at_once: int) -> None:
    assert time.pace(rate).chunk_bytes(CHUNK_BYTES) == at_once


def test_no_rate_means_no_wait_and_rate_0_an_endless_one(time: Time) -> None:
    fast = time.pace(inf)
    fast.spend(10**12)
    fast.settle()
    assert not time.waits
    time.pace(0).spend(1)
    assert time.waits[0] > 10**7


# -- rounds ----------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    log = KafkaLog(tmp_path)
    for start in (0, 60):
        pairs = (f"[{n}:k{n % 17}=v{n} {n + 1}:k{n % 5}]" for n in range(start, start + 60, 2))
        log.write(" ".join(pairs))
        log.roll(7)
    return log


def _file_bytes(log: KafkaLog, manifest: CleanManifest) -> tuple[int, int]:
    """Returns the bytes of files read, and written."""
    read = [file.size_bytes for segment in log.segments for file in segment.files]
    return sum(read), sum(file.size_bytes for group in manifest.groups for file in group.files)


@pytest.mark.parametrize("has_buckets", [False, True])
def test_a_cleaning_waits_for_all_bytes_read_and_written(
    log: KafkaLog, time: Time, monkeypatch: pytest.MonkeyPatch, has_buckets: bool
) -> None:
    """Tasks that run one after the other have the whole rate, however many they are."""
    if has_buckets:
        monkeypatch.setattr(plan_module, "SOLO_BYTES", 0)
    monkeypatch.setattr(tasks_module, "TaskThrottle", time.pace)
    expected = run_round(log.plan())
    assert not time.waits
    plan = log.plan(io_bytes_per_second=1_000)
    manifest = run_round(plan)
    read, written = _file_bytes(log, manifest)
    assert time.now == pytest.approx((2 * read + written) / 1_000)
    # A batch is read, or all that the stretch left is written, and then the task waits.
    assert max(time.waits) * 1_000 < 2 * 300
    for each in (expected, manifest):
        for group in each.groups:
            del group.files[:]
            group.ledger_id = 0
    assert manifest == expected


def test_a_rebuilt_map_is_throttled_again(
    log: KafkaLog, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tasks_module, "TaskThrottle", time.pace)
    manifest = run_round(log.plan(io_bytes_per_second=1_000, keys_max=9))
    assert [group.source_segments for group in manifest.groups] == [1]
    read, written = _file_bytes(log, manifest)
    copied = sum(file.size_bytes for file in log.segments[0].files)
    assert time.now == pytest.approx((2 * read + copied + written) / 1_000)


@pytest.mark.parametrize("rate", [-1.0, float("nan")])
def test_an_invalid_rate_is_refused(log: KafkaLog, rate: float) -> None:
    with pytest.raises(InvalidRequest, match="it must be 0 or more"):
        run_round(log.plan(io_bytes_per_second=rate))
