"""A ledger writer between two threads: one appends, one flushes."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from ledgerfold.storage.entry import EntryFields, Position, build_entry, read_header
from ledgerfold.storage.files import REAL
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.ledger import LedgerStore, StoreSettings
from ledgerfold.storage.metadata import MetadataStore

ENTRIES = 3000


@pytest.mark.usefixtures("hasty_threads")
def test_concurrent_append_and_flush_lose_no_entry(tmp_path: Path) -> None:
    """Entries appended by one thread while another flushes are all there, once, in order."""
    settings = StoreSettings(durability="os", segment_bytes_max=100_000)
    metadata = MetadataStore(MemoryKeyValue())
    store = LedgerStore(tmp_path, metadata, files=REAL, settings=settings, clock_ms=lambda: 1)
    with metadata.batch() as batch:
        writer = store.create_ledger("t", batch)
    is_over = threading.Event()

    def flush() -> None:
        while not is_over.is_set():
            writer.flush()

    flushing = threading.Thread(target=flush)
    flushing.start()
    for number in range(ENTRIES):
        frame = build_entry(b"k", b"v", EntryFields(message_count=1, sequence_id=number))
        header = read_header(frame)
        writer.append(header, (memoryview(frame)[header.header_bytes :],), 1, 1)
    is_over.set()
    flushing.join()

    assert writer.flush() == Position(writer.ledger_id, ENTRIES - 1)
    assert writer.pending_bytes == 0
    entries = store.open_reader(writer.ledger_id).read(
        Position(writer.ledger_id, 0), bytes_max=2**30, end=writer.durable
    )
    assert [entry.header.entry_id for entry in entries] == list(range(ENTRIES))
    writer.close()
