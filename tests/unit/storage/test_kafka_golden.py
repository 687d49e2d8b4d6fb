"""Batches that Kafka 4.1.0's classes wrote: each is read, and written again byte for byte.

The append that stamps a time is held to them in kafka/test_validation.py, the round that leaves a
header alone in compactor/kafka/test_round_examples.py.
"""

from __future__ import annotations

import pytest

from ledgerfold.storage.kafka.batch import (
    BATCH_HEADER_BYTES,
    check_batch,
    read_batch_header,
    sealed,
)
from ledgerfold.storage.kafka.compression import KafkaCompression
from ledgerfold.storage.kafka.records import (
    ControlType,
    EndMarker,
    build_batch,
    columns_of,
    end_marker,
    read_end_marker,
    records_of,
)
from tests.support.kafka_filtering import kept
from tests.support.kafka_golden import HORIZON_MS, RECORDS, TIME_MS, golden


def built(compression: KafkaCompression) -> bytes:
    return build_batch(
        RECORDS,
        base_offset=40,
        compression=compression,
        producer_id=4000,
        producer_epoch=2,
        base_sequence=7,
        is_transactional=True,
        leader_epoch=5,
    )


@pytest.mark.parametrize("codec", KafkaCompression)
def test_a_batch_of_each_codec_is_read(codec: KafkaCompression) -> None:
    """Header and records, with null keys, tombstones, headers and gaps."""
    batch = golden(codec.name.lower())
    header = check_batch(batch)
    assert list(records_of(batch)) == RECORDS
    assert (header.base_offset, header.last_offset, header.record_count) == (40, 300, 4)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4000, 2, 7)
    assert (header.leader_epoch, header.last_sequence, header.has_producer) == (5, 267, True)
    assert (header.is_transactional, header.is_control) == (True, False)
    assert (header.compression, header.delete_horizon_ms) == (codec, None)
    assert header.max_timestamp_ms == TIME_MS + 9000
    # Compressed bytes depend on the library's version; the rest is equal.
    left = header._replace(length=0, crc=0)
    assert check_batch(built(codec))._replace(length=0, crc=0) == left
    assert list(records_of(built(codec))) == RECORDS


def test_a_batch_is_written_byte_for_byte() -> None:
    """Uncompressed ones, and LZ4, whose library is the same."""
    assert built(KafkaCompression.NONE) == golden("none")
    assert built(KafkaCompression.LZ4) == golden("lz4")


@pytest.mark.parametrize(
    ("name", "of", "keep", "horizon"),
    [
        ("none", "none", (1, 1, 1, 1), None),
        ("zstd", "zstd", (1, 1, 1, 1), None),
        ("horizon", "horizon", (1, 1, 1, 1), HORIZON_MS + 1),
        ("one gone", "none", (1, 1, 0, 1), None),
        ("horizon", "none", (1, 1, 1, 1), HORIZON_MS),
        ("tombstone, horizon", "none", (0, 0, 1, 0), HORIZON_MS),
        ("horizon kept", "horizon", (1, 0, 1, 0), HORIZON_MS + 1),
        ("tombstone gone, horizon kept", "horizon", (0, 1, 0, 1), None),
        ("append time, one gone", "append time", (0, 1, 0, 1), None),
        ("commit, horizon", "commit", (1,), HORIZON_MS),
    ],
)
def test_batches_are_kept_byte_for_byte(
    name: str, of: str, keep: tuple[int, ...], horizon: int | None
) -> None:
    """A horizon is set once, and a batch that loses nothing else is unchanged."""
    batch = golden(of)
    rows = list(map(bool, keep))
    assert kept(batch, rows, horizon) == golden(name)
    left = columns_of(golden(name))
    before = columns_of(batch)
    assert left.offsets == [offset for offset, row in zip(before.offsets, rows, strict=True) if row]
    times = [time for time, row in zip(before.timestamps_ms, rows, strict=True) if row]
    assert left.timestamps_ms == times


def test_a_batch_that_has_its_horizon_and_loses_nothing_is_not_rebuilt() -> None:
    """A rebuild would change its header: its largest time belongs to none of its records."""
    batch = golden("horizon")
    header = read_batch_header(batch)
    raised = header._replace(max_timestamp_ms=header.max_timestamp_ms + 1)
    batch = sealed(raised, batch[BATCH_HEADER_BYTES:])
    assert kept(batch, [True] * 4, HORIZON_MS + 1) == batch


def test_a_batch_without_kept_records_is_empty() -> None:
    """The header alone is another thing."""
    assert kept(golden("none"), [False] * 4, HORIZON_MS) == b""


def test_batches_that_are_not_end_markers_are_recognized() -> None:
    """Examples are a batch of data, and a marker reduced to its header by a cleaning."""
    assert read_end_marker(built(KafkaCompression.NONE)) is None
    marker = golden("commit")
    header = read_batch_header(marker)._replace(record_count=0)
    assert read_end_marker(sealed(header, b"")) is None


@pytest.mark.parametrize("kind", [ControlType.COMMIT, ControlType.ABORT])
def test_markers_are_written_byte_for_byte(kind: ControlType) -> None:
    """And read: type and coordinator."""
    marker = end_marker(
        kind,
        base_offset=301,
        timestamp_ms=TIME_MS,
        producer_id=4000,
        producer_epoch=2,
        coordinator_epoch=11,
        leader_epoch=5,
    )
    assert marker == golden(kind.name.lower())
    header = check_batch(marker)
    assert (header.is_control, header.is_transactional, header.last_sequence) == (True, True, -1)
    assert read_end_marker(marker) == EndMarker(kind is ControlType.ABORT, 11, TIME_MS)
