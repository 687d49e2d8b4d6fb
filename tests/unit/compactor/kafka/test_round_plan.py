"""Tests invalid plans of cleanings, and batches that tasks read one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.kafka.batches import Batches, LogFile
from ledgerfold.compactor.kafka.copy import Copy
from ledgerfold.compactor.kafka.plan import plan_tasks
from ledgerfold.compactor.kafka.records import read_chosen, read_records
from ledgerfold.compactor.kafka.rows import Located, Row
from ledgerfold.compactor.positions import ranges
from ledgerfold.storage.errors import Corruption, InvalidRequest
from ledgerfold.storage.kafka.compression import KafkaCompression
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch, records_of
from tests.support.compaction import damage
from tests.support.kafka_log import KafkaLog


@pytest.fixture
def log(tmp_path: Path) -> KafkaLog:
    log = KafkaLog(tmp_path)
    log.write("0:a=1 1:b=1 | 2:a=2 |")
    return log


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"keys_max": 0}, "it must take at least one. Raise log.cleaner.dedupe.buffer.size"),
        ({"segments": []}, "do not end at its bound"),
        ({"upper_bound": 4}, "do not end at its bound 4"),
        ({"first_dirty_offset": 3}, "in none of its segments"),
        ({"ledger_ids": [7]}, "needs as many distinct ledger ids"),
        ({"ledger_ids": [7, 7]}, "needs as many distinct ledger ids"),
        ({"ledger_ids": [1, 7]}, "reads ledger 1"),
        ({"segment_bytes_max": 0}, "The file size limit is 0 bytes"),
        ({"ledgers_dir": "relative/ledgers"}, "absolute path"),
    ],
)
def test_an_invalid_plan_is_refused(log: KafkaLog, fields: dict[str, Any], why: str) -> None:
    """It is refused before anything is touched."""
    with pytest.raises(InvalidRequest, match=why):
        plan_tasks(log.plan(**fields), 2)


def test_segments_with_gaps_between_them_are_refused(log: KafkaLog) -> None:
    log.segments[0].next_base_offset = 1
    with pytest.raises(InvalidRequest, match="do not follow"):
        plan_tasks(log.plan(), 2)


@pytest.mark.parametrize("compression", range(5))
def test_one_long_batch_among_short_ones(tmp_path: Path, compression: int) -> None:
    """Steps that only it takes are taken for itself, headers and all kinds of numbers included."""
    log = KafkaLog(tmp_path)
    headers = (("h", b"v"), ("none", None))
    records = [
        KafkaRecord(n, n * 10**6, b"k" * (n % 200 + 1), b"v" * (n % 150), headers[: n % 3])
        for n in range(3_000)
    ]
    log.add(build_batch(records, base_offset=0, compression=compression))
    log.write(" ".join(f"{n}:short{n}=1" for n in range(3_000, 3_020)) + " |")
    log.clean()
    last = {record.key: record for record in records}
    kept = [record for batch in log.batches() for record in records_of(batch)]
    assert kept[:-20] == sorted(last.values())


def test_a_damaged_header_is_named(log: KafkaLog) -> None:
    path = log.ledgers_dir / log.segments[0].files[0].path
    damage(path, 90)
    with pytest.raises(Corruption, match="key section"):
        log.clean()


@pytest.mark.parametrize("compression", [KafkaCompression.NONE, KafkaCompression.LZ4])
def test_damage_of_any_record_byte_is_named(tmp_path: Path, compression: int) -> None:
    """Also in a batch without a surviving record: nothing is decided by damaged keys."""
    log = KafkaLog(tmp_path)
    log.write("[0:a=1 1:b=1] [2:a=2 3:c=1] [4:a=3 5:b=2] |", compression=compression)
    (file,) = plan_tasks(log.plan(), cores=1).files
    with LogFile(file) as opened:
        (batches,) = opened.chunks()
        starts, ends = batches.section_bounds(np.arange(3))
    path, places = Path(file.path), ranges(starts, ends - starts).tolist()
    content = path.read_bytes()
    assert len(places) > 50
    for place in places:
        damage(path, place)
        with pytest.raises(Corruption, match=f"{path.name}.*value section CRC32C"):
            log.clean()
        path.write_bytes(content)
    log.clean()
    assert log.text() == "2..3[3:c=1] 4..5[4:a=3 5:b=2]"


def test_damage_that_only_the_map_reads_is_named(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The copy would read sound bytes, but a key of the map may be another one."""
    path = log.ledgers_dir / log.segments[0].files[0].path
    content = path.read_bytes()
    run = Copy.run

    def after_a_recovery(copy: Copy, files: Sequence[InputSegment]) -> Iterator[Row]:
        path.write_bytes(content)
        return run(copy, files)

    monkeypatch.setattr(Copy, "run", after_a_recovery)
    damage(path, len(content) - 5)
    with pytest.raises(Corruption, match="value section CRC32C"):
        log.clean()


def test_a_segment_in_several_ledgers(log: KafkaLog) -> None:
    """Its topic was unloaded meanwhile: it went on in another one."""
    first, second = log.segments
    first.files.extend(second.files)
    first.next_base_offset = second.next_base_offset
    first.size_bytes += second.size_bytes
    log.segments.remove(second)
    log.clean()
    assert log.text() == "1:b=1 2:a=2"


def test_a_file_of_another_ledger(log: KafkaLog) -> None:
    log.segments[0].files[0].first.ledger_id = 9
    with pytest.raises(InvalidRequest, match="not a file of ledger 9"):
        plan_tasks(log.plan(), 2)


@pytest.mark.parametrize("compression", [KafkaCompression.NONE, KafkaCompression.GZIP])
@pytest.mark.parametrize("wrong", [-1, 0, 1, 2**31 - 1])
def test_a_chosen_record_that_begins_elsewhere_is_damage(
    log: KafkaLog, wrong: int, compression: int
) -> None:
    """Before and after the records, at another record, and inside of one."""
    log.segments.clear()
    log.write("[0:A=a0 1:B=b0] |", compression=compression)
    (file,) = plan_tasks(log.plan(), cores=1).files
    with LogFile(file) as opened:
        (batches,) = opened.chunks()
        (records,) = read_records(batches, np.array([0]))
        first, second = records.starts_in_batches(np.arange(2)).tolist()
        assert chosen_offsets(batches, first, second) == [0, 1]
        with pytest.raises(Corruption, match="an invalid record"):
            chosen_offsets(batches, first, wrong)


def chosen_offsets(batches: Batches, *starts: int) -> list[int]:
    chosen = Located(np.arange(len(starts)), np.array(starts, np.int32))
    (records,) = read_chosen(batches, np.array([0]), chosen)
    return list(records.columns(np.arange(len(starts))).offset)


def test_compressed_batches_in_several_buffers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The result does not depend on how many batches are decompressed at once. No test had chosen
    records in a second buffer.
    """
    whole = cleaned(tmp_path / "whole")
    monkeypatch.setattr("ledgerfold.compactor.kafka.records.SECTIONS_BYTES", 300)
    assert cleaned(tmp_path / "parts") == whole
    assert 0 < len(whole) < 60


def cleaned(folder: Path) -> list[bytes]:
    log = KafkaLog(folder)
    for number in range(0, 120, 2):
        pair = f"[{number}:k{number % 23}={'v' * 50} {number + 1}:k{number % 17}=w{number}]"
        log.write(pair, compression=(number // 2) % 5)
    log.write("|")
    log.clean()
    return log.batches()
