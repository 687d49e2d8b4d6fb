"""Tests the bounds of an append's work, however much the bytes of a batch expand to."""

from __future__ import annotations

import pytest

from ledgerfold.broker.kafka.config.config import LogConfig
from ledgerfold.broker.kafka.log import record_access as opened
from ledgerfold.broker.kafka.log.validation import AppendRules
from ledgerfold.broker.kafka.producers.producer import Origin
from ledgerfold.storage.errors import KafkaError, KafkaErrorKind, RecordsRefused
from ledgerfold.storage.kafka import compression
from ledgerfold.storage.kafka.batch import BatchHeader, BatchParts, sealed
from ledgerfold.storage.kafka.compression import KafkaCompression, compress
from ledgerfold.storage.kafka.records import build_columns

NOW_MS = 10_000_000
COMPRESSED = [codec for codec in KafkaCompression if codec]
LOOKED_INTO = [
    {"cleanup.policy": "compact"},
    {"message.timestamp.before.max.ms": "10"},
    {"compression.type": "uncompressed"},
]


def nothings(count: int) -> bytes:
    """Records without a key and without a value: the smallest."""
    return build_columns([None] * count, [None] * count, [NOW_MS] * count)[61:]


def batch_of(section: bytes, count: int, codec: int = KafkaCompression.ZSTD) -> bytes:
    times_ms = (NOW_MS, NOW_MS)
    header = BatchHeader(0, 0, 0, 2, 0, codec, count - 1, *times_ms, -1, -1, -1, count)
    return sealed(header, compress(codec, section))


def refusal(batch: bytes, settings: dict[str, str]) -> KafkaError:
    rules = AppendRules("t-0", LogConfig.of(settings))
    with pytest.raises(KafkaError) as caught:
        rules.lead(BatchParts.of(batch), Origin.CLIENT, offset=7, now_ms=NOW_MS)
    return caught.value


@pytest.mark.parametrize("settings", LOOKED_INTO)
@pytest.mark.parametrize("codec", COMPRESSED)
def test_records_compressed_to_few_bytes_are_not_inspected(
    settings: dict[str, str], codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "RECORDS_MAX", 1000)
    batch = batch_of(nothings(3000), 3000, codec)
    most = 1000 + (len(batch) - 61) // 7
    error = refusal(batch, settings)
    assert (error.kind, str(error)) == (
        KafkaErrorKind.MESSAGE_TOO_LARGE,
        f"The record batch in the append to t-0 has 3000 records. The broker checks each record, "
        f"and accepts at most {most} in a compressed batch of this size. Send them in smaller "
        "batches.",
    )


@pytest.mark.parametrize("settings", LOOKED_INTO)
@pytest.mark.parametrize("codec", COMPRESSED)
def test_decompression_is_bounded(
    settings: dict[str, str], codec: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opened, "BYTES_MAX", 1_000_000)
    batch = batch_of(bytes(4_000_000), 1, codec)
    error = refusal(batch, settings | {"max.message.bytes": "300000"})
    assert (error.kind, str(error)) == (
        KafkaErrorKind.MESSAGE_TOO_LARGE,
        "The batch has more than 1200000 bytes when decompressed. Send its records in smaller "
        "batches.",
    )


@pytest.mark.parametrize("codec", COMPRESSED)
def test_decompression_stops_at_its_limit(codec: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    checked = compression._checked

    def seen(size: int, bytes_max: int) -> int:
        sizes.append(size)
        return checked(size, bytes_max)

    monkeypatch.setattr(compression, "_checked", seen)
    packed = compress(codec, bytes(8_000_000))
    with pytest.raises(KafkaError, match="more than 500000 bytes when decompressed"):
        compression.decompress(codec, packed, 500_000)
    assert sizes[-1] <= 500_000 + 4 * len(packed) + compression._CHUNK_BYTES
    assert len(compression.decompress(codec, packed, 8_000_000)) == 8_000_000


def test_uncompressed_records_never_exceed_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "RECORDS_MAX", 10)
    monkeypatch.setattr(opened, "BYTES_MAX", 100)
    batch = batch_of(nothings(3000), 3000, KafkaCompression.NONE)
    assert isinstance(refusal(batch, {"cleanup.policy": "compact"}), RecordsRefused)


def test_more_records_than_there_is_space_for() -> None:
    batch = batch_of(nothings(10), 11)
    for settings in LOOKED_INTO:
        error = refusal(batch, settings)
        assert (error.kind, str(error)) == (
            KafkaErrorKind.INVALID_RECORD,
            "Incorrect declared batch size, premature EOF reached",
        )


def test_at_most_three_records_get_a_reason() -> None:
    batch = batch_of(nothings(2000), 2000)
    keyless = refusal(batch, {"cleanup.policy": "compact"})
    assert isinstance(keyless, RecordsRefused)
    assert ([row for row, _ in keyless.records], keyless.keyless) == ([0, 1, 2], 2000)
    assert "due to 2000 record errors in total" in str(keyless)
    rules = AppendRules("t-0", LogConfig.of({}))
    with pytest.raises(RecordsRefused) as late:
        rules.lead(BatchParts.of(batch), Origin.CLIENT, offset=7, now_ms=0)
    assert ([row for row, _ in late.value.records], late.value.keyless) == ([0, 1, 2], 0)


@pytest.mark.parametrize("settings", LOOKED_INTO)
def test_headers_compressed_to_few_bytes_are_not_read(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = dict.fromkeys(range(10), (("", None),) * 300)
    plain = build_columns([b"k"] * 10, [b"v"] * 10, [NOW_MS] * 10, headers)[61:]
    batch = batch_of(plain, 10)
    monkeypatch.setattr(opened, "RECORDS_MAX", 2900)
    error = refusal(batch, settings)
    assert error.kind is KafkaErrorKind.MESSAGE_TOO_LARGE
    assert str(error).endswith("Send its records in smaller batches, or with fewer headers.")
    monkeypatch.setattr(opened, "RECORDS_MAX", 3010)
    rules = AppendRules("t-0", LogConfig.of(settings))
    rules.lead(BatchParts.of(batch), Origin.CLIENT, offset=7, now_ms=NOW_MS)
