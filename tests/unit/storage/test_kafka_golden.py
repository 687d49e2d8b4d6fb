"""Batches that Kafka 4.1.0's own classes wrote: each is read, and written again byte for byte.

MemoryRecordsBuilder wrote the first five, setMaxTimestamp the one with append time, filterTo those
that lost records (at `NOW_MS`, delete.retention.ms a day), withEndTransactionMarker the markers.
"""

from __future__ import annotations

import pytest

from ledgerfold.storage.kafka.batch import TimestampType, check_batch, with_append_time
from ledgerfold.storage.kafka.compression import KafkaCompression
from ledgerfold.storage.kafka.filtering import header_only, kept
from ledgerfold.storage.kafka.records import (
    ControlType,
    EndMarker,
    KafkaRecord,
    build_batch,
    columns_of,
    end_marker,
    marker_type,
    read_end_marker,
    records_of,
)

TIME_MS = 1_700_000_000_000
NOW_MS = TIME_MS + 100_000
HORIZON_MS = NOW_MS + 86_400_000
RECORDS = [
    KafkaRecord(40, TIME_MS, b"a", b"x" * 100),
    KafkaRecord(41, TIME_MS + 70, None, b""),
    KafkaRecord(43, TIME_MS - 1, b"b", None, (("h\u00e9", b"1"), ("n", None))),
    KafkaRecord(300, TIME_MS + 9000, b"", b"last"),
]
GOLDEN: dict[str, str] = {
    "none": (
        "0000000000000028000000c600000005029937cb760010000001040000018bcfe568000000018bcfe58b"
        "280000000000000fa000020000000700000004d8010000000261c8017878787878787878787878787878"
        "787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
        "787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
        "7878000e008c010201000020000106026201040668c3a90231026e011a00d08c01880400086c61737400"
    ),
    "gzip": (
        "0000000000000028000000780000000502c2eea9ce0011000001040000018bcfe568000000018bcfe58b"
        "280000000000000fa0000200000007000000041f8b08000000000000ffbbc1c8c0c0c0947882b1820e80"
        "818fa187910968a30203231b5312230b5bc6e1954c864c798c520c177a183b58183872128b4b18003c1c"
        "360b95000000"
    ),
    "snappy": (
        "0000000000000028000000810000000502a8bbb3620012000001040000018bcfe568000000018bcfe58b"
        "280000000000000fa00002000000070000000482534e415050590000000001000000010000003c950124"
        "d8010000000261c80178fe01008a01009c000e008c010201000020000106026201040668c3a90231026e"
        "011a00d08c01880400086c61737400"
    ),
    "lz4": (
        "000000000000002800000078000000050249c6fb780013000001040000018bcfe568000000018bcfe58b"
        "280000000000000fa00002000000070000000404224d1860408238000000afd8010000000261c8017801"
        "0050f019000e008c010201000020000106026201040668c3a90231026e011a00d08c01880400086c6173"
        "740000000000"
    ),
    "zstd": (
        "000000000000002800000076000000050239b48fba0014000001040000018bcfe568000000018bcfe58b"
        "280000000000000fa00002000000070000000428b52ffd0058cc01002403d8010000000261c80178000e"
        "008c010201000020000106026201040668c3a90231026e011a00d08c01880400086c6173740001002005"
        "48010000"
    ),
    "append time": (
        "0000000000000028000000c60000000502198002e00018000001040000018bcfe568000000018bcfe62b"
        "500000000000000fa000020000000700000004d8010000000261c8017878787878787878787878787878"
        "787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
        "787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
        "7878000e008c010201000020000106026201040668c3a90231026e011a00d08c01880400086c61737400"
    ),
    "one gone": (
        "0000000000000028000000b50000000502b5810cf40010000001040000018bcfe568000000018bcfe58b"
        "280000000000000fa000020000000700000003d8010000000261c8017878787878787878787878787878"
        "787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
        "787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
        "7878000e008c01020100001a00d08c01880400086c61737400"
    ),
    "horizon": (
        "0000000000000028000000cf00000005020eee87de0050000001040000018bd50d4aa00000018bcfe58b"
        "280000000000000fa000020000000700000004de0100bf8abf52000261c8017878787878787878787878"
        "787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
        "787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
        "7878787878001200b389bf52020100002600c18abf5206026201040668c3a90231026e011c00effdbd52"
        "880400086c61737400"
    ),
    "tombstone, horizon": (
        "0000000000000028000000450000000502d4a2daec0050000001040000018bd50d4aa00000018bcfe567"
        "ff0000000000000fa0000200000007000000012600c18abf5206026201040668c3a90231026e01"
    ),
    "horizon kept": (
        "0000000000000028000000b6000000050283aa1dd50050000001040000018bd50d4aa00000018bcfe568"
        "000000000000000fa000020000000700000002de0100bf8abf52000261c8017878787878787878787878"
        "787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
        "787878787878787878787878787878787878787878787878787878787878787878787878787878787878"
        "7878787878002600c18abf5206026201040668c3a90231026e01"
    ),
    "tombstone gone, horizon kept": (
        "00000000000000280000004a000000050244e48a690050000001040000018bd50d4aa00000018bcfe58b"
        "280000000000000fa0000200000007000000021200b389bf52020100001c00effdbd52880400086c6173"
        "7400"
    ),
    "append time, one gone": (
        "00000000000000280000004400000005022706ce640018000001040000018bcfe62b500000018bcfe62b"
        "500000000000000fa0000200000007000000020c000002010000160000880400086c61737400"
    ),
    "header": (
        "0000000000000028000000310000000502048571a2001000000104ffffffffffffffff0000018bcfe58b"
        "280000000000000fa000020000000700000000"
    ),
    "lz4 header": (
        "0000000000000028000000310000000502048571a2001000000104ffffffffffffffff0000018bcfe58b"
        "280000000000000fa000020000000700000000"
    ),
    "commit": (
        "000000000000012d000000420000000502307cd4e50030000000000000018bcfe568000000018bcfe568"
        "000000000000000fa00002ffffffff000000012000000008000000010c00000000000b00"
    ),
    "abort": (
        "000000000000012d000000420000000502c44202ad0030000000000000018bcfe568000000018bcfe568"
        "000000000000000fa00002ffffffff000000012000000008000000000c00000000000b00"
    ),
    "commit, horizon": (
        "000000000000012d000000450000000502624e37740070000000000000018bd50d4aa00000018bcfe568"
        "000000000000000fa00002ffffffff000000012600bf8abf520008000000010c00000000000b00"
    ),
}


def golden(name: str) -> bytes:
    return bytes.fromhex(GOLDEN[name])


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
    # What a codec makes of it is its library's, and what is around it is the same.
    left = header._replace(length=0, crc=0)
    assert check_batch(built(codec))._replace(length=0, crc=0) == left
    assert list(records_of(built(codec))) == RECORDS


def test_a_batch_is_written_byte_for_byte() -> None:
    """As it is not compressed; LZ4, too, whose library is the same."""
    assert built(KafkaCompression.NONE) == golden("none")
    assert built(KafkaCompression.LZ4) == golden("lz4")


def test_append_time_is_stamped_byte_for_byte() -> None:
    """Records then all have it, and the base timestamp is what it was."""
    stamped = with_append_time(golden("none"), TIME_MS + 50_000)
    assert stamped == golden("append time")
    header = check_batch(stamped)
    assert header.timestamp_type == TimestampType.LOG_APPEND_TIME
    assert header.base_timestamp_ms == TIME_MS
    assert columns_of(stamped).timestamps_ms == [TIME_MS + 50_000] * 4


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
def test_what_is_kept_is_kept_byte_for_byte(
    name: str, of: str, keep: tuple[int, ...], horizon: int | None
) -> None:
    """A horizon is set once, and what loses nothing else is left alone."""
    batch = golden(of)
    rows = list(map(bool, keep))
    assert kept(batch, rows, horizon) == golden(name)
    assert kept(batch, rows, horizon, columns_of(batch)) == golden(name)
    left = columns_of(golden(name))
    before = columns_of(batch)
    assert left.offsets == [offset for offset, row in zip(before.offsets, rows, strict=True) if row]
    times = [time for time, row in zip(before.timestamps_ms, rows, strict=True) if row]
    assert left.timestamps_ms == times


def test_nothing_is_left_where_nothing_is_kept() -> None:
    """The header alone is another thing, asked for by name."""
    assert kept(golden("none"), [False] * 4, HORIZON_MS) == b""


@pytest.mark.parametrize(("name", "of"), [("header", "horizon"), ("lz4 header", "lz4")])
def test_the_header_alone_is_written_byte_for_byte(name: str, of: str) -> None:
    """Without horizon and codec; a second cleaning leaves the same."""
    alone = header_only(golden(of))
    assert alone == golden(name) == header_only(alone)
    header = check_batch(alone)
    assert (len(alone), header.record_count, header.base_timestamp_ms) == (61, 0, -1)
    assert (header.delete_horizon_ms, header.compression) == (None, KafkaCompression.NONE)
    assert header.last_sequence == check_batch(golden(of)).last_sequence
    assert list(records_of(alone)) == []
    assert marker_type(alone) is None


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
    assert read_end_marker(marker) == EndMarker(kind, 11)
