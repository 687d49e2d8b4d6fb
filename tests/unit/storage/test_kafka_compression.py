"""The codecs of record batches read what they write, and reject other bytes."""

from __future__ import annotations

import zlib
from contextlib import suppress

import lz4.frame
import pytest
import zstandard
from cramjam import snappy
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.storage.errors import KafkaError
from ledgerfold.storage.kafka import compression
from ledgerfold.storage.kafka.compression import KafkaCompression, compress, decompress

CODECS = st.sampled_from(KafkaCompression)
PACKING = [codec for codec in KafkaCompression if codec]


@given(CODECS, st.binary(max_size=200), st.integers(0, 2000))
def test_compressed_data_are_decompressed(codec: KafkaCompression, data: bytes, times: int) -> None:
    """Over one block of each framing or several."""
    assert decompress(codec, compress(codec, data * times)) == data * times


@given(CODECS, st.binary(max_size=200), st.binary(max_size=20), st.integers(0, 100))
def test_damage_raises_only_kafkas_error(
    codec: KafkaCompression, data: bytes, other: bytes, at: int
) -> None:
    """Tests any contents of the stream."""
    packed = bytearray(compress(codec, data))
    packed[at : at + len(other)] = other
    with suppress(KafkaError):
        decompress(codec, packed)


@pytest.mark.parametrize("codec", PACKING)
def test_a_decompression_bomb_is_refused(
    codec: KafkaCompression, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One byte above the limit is refused, the limit itself is read."""
    monkeypatch.setattr(compression, "BATCH_BYTES_MAX", 1_000_000)
    assert len(decompress(codec, compress(codec, bytes(1_000_000)))) == 1_000_000
    with pytest.raises(KafkaError, match="more than 1000000 bytes") as refused:
        decompress(codec, compress(codec, bytes(1_000_001)))
    assert refused.value.kafka_code == 2


def test_streams_that_other_clients_write_are_read() -> None:
    """One bare block of snappy, members of gzip, frames of zstd and of lz4 with all it may have."""
    data = b"some records " * 20
    gzipped = zlib.compress(data, 9, 31)
    zstd = zstandard.ZstdCompressor().compress(data)
    assert decompress(KafkaCompression.SNAPPY, bytes(snappy.compress_raw(data))) == data
    assert decompress(KafkaCompression.GZIP, gzipped + gzipped) == data + data
    assert decompress(KafkaCompression.ZSTD, zstd + zstd) == data + data
    framed = lz4.frame.compress(data, content_checksum=True, block_checksum=True)
    assert decompress(KafkaCompression.LZ4, framed) == data


@pytest.mark.parametrize("codec", [each for each in PACKING if each != KafkaCompression.ZSTD])
def test_a_truncated_stream_is_refused(codec: KafkaCompression) -> None:
    """zstd's reader returns what exists, and the records are incomplete."""
    packed = compress(codec, b"some records " * 20)
    with pytest.raises(KafkaError, match="cannot decompress"):
        decompress(codec, packed[:-9])


def test_an_unknown_codec_is_refused() -> None:
    """With Kafka's error for it."""
    for how in (compress, decompress):
        with pytest.raises(KafkaError, match="Unknown compression type id: 7") as refused:
            how(7, b"")
        assert refused.value.kafka_code == 76
