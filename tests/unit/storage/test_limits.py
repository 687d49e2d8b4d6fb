"""Records, labels and settings at their limits (docs/FORMATS.md, "Limits")."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ledgerfold.storage import label as labels
from ledgerfold.storage import records
from ledgerfold.storage import writer as writing
from ledgerfold.storage.entry import EntryFields, build_entry, read_header, stamp
from ledgerfold.storage.errors import LimitExceeded
from ledgerfold.storage.files import REAL
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.label import label_of, read_label, write_label
from ledgerfold.storage.limits import (
    LABEL_BYTES_MAX,
    LEDGER_ENTRIES_MAX,
    RECORD_BYTES_MAX,
    SEGMENT_BYTES_MAX,
)
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.settings import StoreSettings
from ledgerfold.v1.records_pb2 import (
    LEDGER_KIND_COMPACTED,
    LedgerRecord,
    SegmentRecord,
    TopicRecord,
)

FORMATS = Path(__file__).resolve().parents[3] / "docs" / "FORMATS.md"


def compacted(segments: int) -> LedgerRecord:
    path = "7/00000000000000000000.log"
    return LedgerRecord(
        ledger_id=7,
        kind=LEDGER_KIND_COMPACTED,
        topic="persistent://a/b/t",
        segments=[SegmentRecord(path=path, size_bytes=2**26, messages=2**20)] * segments,
    )


def test_the_label_of_a_large_ledger_is_read_completely(tmp_path: Path) -> None:
    """More than the four megabytes that were read before: 6 TB of segments of 64 MiB."""
    record = compacted(100_000)
    write_label(tmp_path, label_of(record), REAL)
    assert (tmp_path / "label").stat().st_size > 4 * 1024 * 1024
    found = read_label(tmp_path, REAL)
    assert found is not None
    assert found.record == record


def test_a_label_has_room_for_every_record() -> None:
    """Base64 takes four bytes for three."""
    assert LABEL_BYTES_MAX > RECORD_BYTES_MAX * 4 / 3 + 10 * 1024 * 1024


def test_a_label_that_is_too_large_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one before stays."""
    write_label(tmp_path, label_of(compacted(1)), REAL)
    monkeypatch.setattr(labels, "LABEL_BYTES_MAX", 1000)
    with pytest.raises(LimitExceeded, match=r"label of ledger 7.*--segment-size"):
        write_label(tmp_path, label_of(compacted(100)), REAL)
    found = read_label(tmp_path, REAL)
    assert found is not None
    assert found.record == compacted(1)


def test_a_record_that_is_too_large_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """At the limit it is written; above it the batch raises, and the old record stays."""
    metadata = MetadataStore(MemoryKeyValue())
    small = TopicRecord(name="t", ledger_ids=range(100))
    monkeypatch.setattr(records, "RECORD_BYTES_MAX", small.ByteSize())
    with metadata.batch() as batch:
        batch.put(small)
    with pytest.raises(LimitExceeded, match="'topic/t'"), metadata.batch() as batch:
        batch.put(TopicRecord(name="t", ledger_ids=range(101)))
    assert metadata.topic("t") == small


def test_settings_above_the_limits_are_refused() -> None:
    StoreSettings(segment_bytes_max=SEGMENT_BYTES_MAX, ledger_entries_max=LEDGER_ENTRIES_MAX)
    with pytest.raises(LimitExceeded, match="--segment-size: 1,073,741,825"):
        StoreSettings(segment_bytes_max=SEGMENT_BYTES_MAX + 1)
    with pytest.raises(LimitExceeded, match="--ledger-entries"):
        StoreSettings(ledger_entries_max=LEDGER_ENTRIES_MAX + 1)


def test_the_durable_length_saturates() -> None:
    """A lower bound stays true: 32 bits, with any settings of the ledger."""
    frame = build_entry(b"k", b"v", EntryFields(message_count=1))
    for durable in (2**32 - 1, 2**32, 2**40):
        stamped = stamp(frame, 1, 2**40, 0, 1, durable_entries=durable)
        assert read_header(stamped).durable_entries == 2**32 - 1


def test_the_document_lists_every_limit() -> None:
    """By the name of its constant."""
    section = FORMATS.read_text().split("\n## Limits\n")[1].split("\n## ")[0]
    source = Path(writing.__file__).with_name("limits.py").read_text()
    names = re.findall(r"^([A-Z_]+) =", source, re.MULTILINE)
    assert names
    assert [name for name in names if f"`{name}`" not in section] == []
