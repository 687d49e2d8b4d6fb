"""The worked example of docs/FORMATS.md is what the code reads and writes."""

from __future__ import annotations

import re
from pathlib import Path

from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import Position, read_header, stamp, verify_sections
from ledgerfold.storage.native import NativeBatchBuilder

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "FORMATS.md"


def example() -> bytes:
    found = re.search(r"```hex\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert found is not None
    return bytes.fromhex("".join(line[4:] for line in found[1].splitlines()))


def test_the_example_reads_as_the_document_says() -> None:
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


def test_the_example_is_written_byte_for_byte() -> None:
    """The same messages give the same bytes."""
    builder = NativeBatchBuilder("p")
    builder.add(b"Milkman Road", key=b"1003")
    builder.add(None, key=b"1001")
    entry = builder.build(sequence_id=1, publish_time_ms=1_700_000_000_000)
    made = stamp(entry, 12, 3, 1_700_000_000_005, producer_number=1, durable_entries=2)
    assert made == example()
