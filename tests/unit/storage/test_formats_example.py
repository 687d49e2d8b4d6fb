"""The code reads and writes the worked examples of docs/FORMATS.md."""

from __future__ import annotations

import re
from pathlib import Path

from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import Position, read_header, stamp, verify_sections
from ledgerfold.storage.kafka.batch import check_batch
from ledgerfold.storage.kafka.entries import entry_of
from ledgerfold.storage.kafka.records import build_columns
from ledgerfold.storage.native import NativeBatchBuilder

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "FORMATS.md"


def example(number: int = 0) -> bytes:
    found = re.findall(r"```hex\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    return bytes.fromhex("".join(line[4:] for line in found[number].splitlines()))


def test_the_example_decodes_as_documented() -> None:
    """Header, checksums and both messages."""
    entry = example()
    header = read_header(entry)
    verify_sections(entry, header)
    assert header.position == Position(12, 3)
    assert (header.producer_number, header.sequence_id, header.message_count) == (1, 1, 2)
    assert (header.version, header.last_durable_entry_id) == (2, 1)
    first, second = decode(entry).messages()
    assert (first.key, first.value, first.sequence_id) == (b"1003", b"Milkman Road", 0)
    assert (second.key, second.value_is_null, second.sequence_id) == (b"1001", True, 1)


def test_the_example_is_encoded_byte_for_byte() -> None:
    """The same messages give the same bytes."""
    builder = NativeBatchBuilder("p")
    builder.add(b"Milkman Road", key=b"1003")
    builder.add(None, key=b"1001")
    entry = builder.build(sequence_id=1, publish_time_ms=1_700_000_000_000)
    made = stamp(entry, 12, 3, 1_700_000_000_005, producer_number=1, durable_entries=2)
    assert made == example()


def test_the_kafka_example_decodes_as_documented() -> None:
    """A batch, and the same two messages."""
    entry = example(1)
    header = read_header(entry)
    verify_sections(entry, header)
    assert (header.position, header.codec, header.message_count) == (Position(13, 1), 2, 2)
    batch = check_batch(entry[header.header_bytes :])
    assert (batch.base_offset, batch.last_offset) == (3, 4)
    assert (batch.producer_id, batch.producer_epoch) == (9, 0)
    assert (batch.base_sequence, batch.last_sequence) == (2, 3)
    first, second = decode(entry).messages()
    assert (first.key, first.value, first.batch_index) == (b"1003", b"Milkman Road", 0)
    assert (second.key, second.value_is_null, second.batch_index) == (b"1001", True, 1)


def test_the_kafka_example_is_encoded_byte_for_byte() -> None:
    """The same records give the same bytes."""
    batch = build_columns(
        [b"1003", b"1001"],
        [b"Milkman Road", None],
        [1_700_000_000_000, 1_700_000_000_001],
        base_offset=3,
        producer_id=9,
        producer_epoch=0,
        base_sequence=2,
    )
    entry = entry_of(batch, sequence_id=3, publish_time_ms=1_700_000_000_000)
    made = stamp(entry, 13, 1, 1_700_000_000_005, producer_number=0, durable_entries=1)
    assert made == example(1)
