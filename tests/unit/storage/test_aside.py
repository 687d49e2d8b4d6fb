"""A raw ledger that is prepared aside: it has no owner until its record is in a batch."""

from __future__ import annotations

from pathlib import Path

from ledgerfold.storage.entry import EARLIEST, LATEST
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.ledger import LedgerStore, LedgerWriter
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, PositionRange
from tests.support.ledgers import append


def store_on(data_dir: Path, metadata: MetadataStore) -> LedgerStore:
    store = LedgerStore(data_dir, metadata, clock_ms=lambda: 1)
    store.recover()
    return store


def written(store: LedgerStore, *entry_ids: int) -> LedgerWriter:
    writer = store.create_unfinished("t")
    for entry_id in entry_ids:
        writer.skip_to(entry_id)
        append(writer)
    return writer


def ids(store: LedgerStore, ledger_id: int) -> list[int]:
    reader, found, start = store.open_reader(ledger_id), list[int](), EARLIEST
    while entries := reader.read(start, bytes_max=1, end=LATEST):
        found += [each.header.entry_id for each in entries]
        start = entries[-1].header.position.next
    return found


def test_a_start_deletes_ledgers_without_a_record(tmp_path: Path) -> None:
    metadata = MetadataStore(MemoryKeyValue())
    writer = written(store_on(tmp_path, metadata), 0, 1)
    writer.flush()
    record = writer.finish()
    assert record.state == LEDGER_STATE_CLOSED
    assert (tmp_path / "ledgers" / str(writer.ledger_id)).exists()
    store_on(tmp_path, metadata)
    assert metadata.ledger(writer.ledger_id) is None
    assert not (tmp_path / "ledgers" / str(writer.ledger_id)).exists()


def test_a_recorded_ledger_is_like_any_other(tmp_path: Path) -> None:
    """Also with ids that are missing, as a repair leaves them."""
    metadata = MetadataStore(MemoryKeyValue())
    writer = written(store_on(tmp_path, metadata), 0, 1, 4, 5)
    record = writer.finish()
    lost = PositionRange(ledger_id=writer.ledger_id, first_entry_id=2, last_entry_id=3)
    record.lost.append(lost)
    with metadata.batch() as batch:
        batch.put(record)
    store = store_on(tmp_path, metadata)
    assert store.missing_of(writer.ledger_id) is None
    assert ids(store, writer.ledger_id) == [0, 1, 4, 5]
