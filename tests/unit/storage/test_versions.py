"""Entries of version 1 and version 2 side by side: readers see no difference."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.storage.entry import (
    HEADER_BYTES,
    HEADER_BYTES_MIN,
    LATEST,
    EntryFields,
    Position,
    build_entry,
    read_header,
    stamp,
)
from ledgerfold.storage.entry_check import check_entry
from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.files import REAL
from ledgerfold.storage.key_scan import scan_keys
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.ledger import LedgerStore, StoreSettings
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.segment import SegmentWriter
from ledgerfold.v1.records_pb2 import SegmentRecord
from tests.support.ledgers import as_version_1

ENTRIES = 40


def entry(number: int) -> bytes:
    """Sections of 0 to 9 bytes: a whole entry may be shorter than a header of version 2."""
    sections = b"k" * (number % 4), b"v" * (number % 7)
    frame = build_entry(*sections, EntryFields(message_count=1, publish_time_ms=number))
    stamped = stamp(frame, 1, number, 1, 1, durable_entries=number)
    return as_version_1(stamped) if number % 3 == 0 else stamped


@pytest.fixture
def store(tmp_path: Path) -> LedgerStore:
    """With a compacted ledger, 1, whose first and last entries are of version 1."""
    store = LedgerStore(
        tmp_path, MetadataStore(MemoryKeyValue()), settings=StoreSettings(), clock_ms=lambda: 1
    )
    assert store._metadata.allocate_ledger_id() == 1
    store.ledger_dir(1).mkdir()
    writer = SegmentWriter(store.ledgers_dir, 1, 0)
    for number in range(ENTRIES):
        writer.append(read_header(entry(number)), entry(number))
    with store._metadata.batch() as batch:
        batch.put(store.verify_compacted(1, "t", [writer.seal()]))
    return store


def segment_of(store: LedgerStore) -> SegmentRecord:
    return store.open_reader(1).record.segments[0]


@pytest.mark.parametrize("bytes_max", [1, 71, 72, 79, 80, 81, 200, 500, 2**20])
def test_reads_of_every_size(store: LedgerStore, bytes_max: int) -> None:
    """Blocks end in the middle of headers of either length."""
    read: list[bytes] = []
    start = Position(1, 0)
    while entries := store.open_reader(1).read(start, bytes_max=bytes_max, end=LATEST):
        read += [each.data for each in entries]
        start = entries[-1].header.position.next
    assert read == [entry(number) for number in range(ENTRIES)]


def test_every_start_position_is_found(store: LedgerStore) -> None:
    """By id and by time, each as the first read of a reader."""
    for number in range(ENTRIES):
        store._readers.forget(lambda _: True)
        reader = store.open_reader(1)
        assert reader.position_at_time(number) == Position(1, number)
        assert reader.read(Position(1, number), bytes_max=1, end=LATEST)[0].data == entry(number)


@pytest.mark.parametrize("block_bytes", [1, 72, 75, 80, 100, 2**18])
def test_headers_and_keys(
    store: LedgerStore, block_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests the columns that compaction, deduplication and explain use."""
    monkeypatch.setattr("ledgerfold.storage.key_scan.BLOCK_BYTES", block_bytes)
    segment = segment_of(store)
    headers = [read_header(entry(number)) for number in range(ENTRIES)]
    assert list(store.headers(segment)) == headers
    file = REAL.open_read(store.ledgers_dir / segment.path)
    scanned = [(header, bytes(keys)) for header, keys in scan_keys(file.pread, segment)]
    assert scanned == [(header, b"k" * (number % 4)) for number, header in enumerate(headers)]


def test_a_truncated_last_header_is_damage(store: LedgerStore) -> None:
    """Version 1 ends at 72 bytes: one less is an error, not an end."""
    assert (ENTRIES - 1) % 3 == 0
    path = store.ledgers_dir / segment_of(store).path
    offset = sum(len(entry(number)) for number in range(ENTRIES - 1))
    path.write_bytes(path.read_bytes()[: offset + HEADER_BYTES_MIN - 1])
    with pytest.raises(Corruption):
        store.open_reader(1).read(Position(1, ENTRIES - 1), bytes_max=1, end=LATEST)


def test_a_frame_of_version_1_is_appended_as_version_2(store: LedgerStore) -> None:
    """The record has the sizes and checksums of the stored bytes."""
    with store._metadata.batch() as batch:
        writer = store.create_ledger("t", batch)
    frame = build_entry(b"keys", b"values", EntryFields(message_count=2, sequence_id=5))
    for each in (frame, as_version_1(frame), frame):
        header = check_entry(each)
        writer.append(header, (memoryview(each)[header.header_bytes :],), 7, 3)
        assert writer.pending_bytes == len(frame)
        writer.flush()
        assert writer.pending_bytes == 0
    record = writer.close()
    stored = [
        stamp(frame, writer.ledger_id, number, 7, 3, durable_entries=number) for number in range(3)
    ]
    path = store.ledgers_dir / record.segments[0].path
    assert path.read_bytes() == b"".join(stored)
    assert record.segments[0].size_bytes == 3 * (HEADER_BYTES + 10)
    assert len(list(store.headers(record.segments[0]))) == 3
