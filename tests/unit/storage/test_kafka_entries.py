"""Entries that say of themselves that a Kafka batch is in them."""

from __future__ import annotations

import pytest

from ledgerfold.storage.entry import Codec, Compression, EntryFields, build_entry, read_header
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.kafka.batch import BATCH_HEADER_BYTES
from ledgerfold.storage.kafka.entries import batch_in, entry_of
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch

BATCH = build_batch([KafkaRecord(0, 5, b"k", b"v")])


def batch_of(entry: bytes) -> bytes:
    header = read_header(entry)
    keys = entry[header.header_bytes : header.header_bytes + header.key_bytes]
    parts = batch_in(header, keys, entry[header.header_bytes + header.key_bytes :])
    return bytes(parts.header_bytes) + bytes(parts.section)


def test_a_batch_is_returned_unchanged() -> None:
    assert batch_of(entry_of(BATCH, sequence_id=0, publish_time_ms=7)) == BATCH


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        (EntryFields(1, codec=Codec.KAFKA), BATCH_HEADER_BYTES - 1),
        (EntryFields(1, codec=Codec.KAFKA), BATCH_HEADER_BYTES + 1),
        (EntryFields(2, codec=Codec.KAFKA), BATCH_HEADER_BYTES),
        (EntryFields(1, codec=Codec.KAFKA, compression=Compression.ZSTD), BATCH_HEADER_BYTES),
    ],
)
def test_an_entry_whose_header_describes_another_batch_is_invalid(
    fields: EntryFields, keys: int
) -> None:
    """Topics alone had been tested with such ones."""
    with pytest.raises(InvalidRequest):
        batch_of(build_entry(BATCH[:keys], BATCH[keys:], fields))
