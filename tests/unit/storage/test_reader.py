"""Reading ledgers: raw and compacted, open and closed, from anywhere, in budgets of any size."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.storage import ledger as ledger_module
from ledgerfold.storage import reader as reader_module
from ledgerfold.storage.entry import (
    ENTRY_BYTES_MAX,
    HEADER_BYTES,
    LATEST,
    EntryFields,
    Position,
    build_entry,
    read_header,
    stamp,
)
from ledgerfold.storage.errors import (
    AlreadyClosed,
    CompactionFailed,
    Corruption,
    EntryTooLarge,
    MissingFile,
)
from ledgerfold.storage.files import REAL, Files
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.ledger import LedgerReader, LedgerStore, LedgerWriter, StoreSettings
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.segment import (
    SegmentWriter,
    link_segment,
    scan_segment,
    segments_sealed,
    tally_segment,
)
from ledgerfold.v1.records_pb2 import SegmentRecord
from tests.support.ledgers import append, plain
from tests.support.lossy_files import LossyFiles


class Opened:
    """A store on a fresh directory."""

    def __init__(self, path: Path, files: Files = REAL, **settings: int) -> None:
        self.metadata = MetadataStore(MemoryKeyValue())
        self.now_ms = 1000
        self.store = LedgerStore(
            path,
            self.metadata,
            files=files,
            settings=StoreSettings(**settings),  # type: ignore[arg-type]
            clock_ms=lambda: self.now_ms,
        )

    def writer(self) -> LedgerWriter:
        with self.metadata.batch() as batch:
            return self.store.create_ledger("t", batch)

    def compacted(self, segments: Sequence[Sequence[Position]]) -> tuple[int, list[SegmentRecord]]:
        """A compacted ledger with entries at these positions, not adopted yet."""
        ledger_id = self.metadata.allocate_ledger_id()
        self.store.ledger_dir(ledger_id).mkdir()
        records = []
        for index, positions in enumerate(segments):
            writer = SegmentWriter(self.store.ledgers_dir, ledger_id, index)
            for position in positions:
                entry = compacted_entry(position)
                writer.append(read_header(entry), entry)
            records.append(writer.seal())
        return ledger_id, records

    def adopt(self, segments: Sequence[Sequence[Position]]) -> LedgerReader:
        ledger_id, records = self.compacted(segments)
        with self.metadata.batch() as batch:
            batch.put(self.store.verify_compacted(ledger_id, "t", records))
        return self.store.open_reader(ledger_id)


def compacted_entry(position: Position) -> bytes:
    fields = EntryFields(message_count=2, publish_time_ms=position.entry_id)
    frame = build_entry(b"k", str(position).encode(), fields)
    return stamp(frame, *position, append_time_ms=position.ledger_id, producer_number=1)


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return Opened(tmp_path, segment_bytes_max=2000)


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
@pytest.mark.parametrize("bytes_max", [1, 150, 500, 2**30])
def test_sequential_reads_give_every_entry_once(
    opened: Opened, bytes_max: int, is_closed: bool
) -> None:
    """Budgets smaller than an entry, than a segment, and larger than all of it."""
    writer = opened.writer()
    written = [append(writer)[1] for _ in range(100)]
    writer.flush()
    if is_closed:
        writer.close()
    reader = opened.store.open_reader(writer.ledger_id)
    read: list[bytes] = []
    start = Position(writer.ledger_id, 0)
    while entries := reader.read(start, bytes_max=bytes_max, end=LATEST):
        assert sum(len(entry.data) for entry in entries) <= max(bytes_max, len(entries[0].data))
        assert all(entry.header == read_header(entry.data) for entry in entries)
        read += [plain(entry.data) for entry in entries]
        start = entries[-1].header.position.next
    assert read == written


def test_a_nonblocking_read_leaves_data_on_disk_to_a_blocking_one(tmp_path: Path) -> None:
    """Every other read of these files that may not wait finds nothing."""
    opened = Opened(tmp_path / "data", LossyFiles(tmp_path), segment_bytes_max=2000)
    writer = opened.writer()
    written = [append(writer)[1] for _ in range(100)]
    writer.flush()
    reader = opened.store.open_reader(writer.ledger_id)
    read: list[bytes] = []
    start, waits = Position(writer.ledger_id, 0), 0
    while len(read) < len(written):
        try:
            entries = reader.read(start, bytes_max=150, end=LATEST, wait=False)
        except BlockingIOError:
            entries = reader.read(start, bytes_max=150, end=LATEST)
            waits += 1
        read += [plain(entry.data) for entry in entries]
        start = entries[-1].header.position.next
    assert read == written
    assert waits > 10


def test_every_start_and_end_position_is_found(opened: Opened) -> None:
    """Without having read before it, in any order, also backwards."""
    writer = opened.writer()
    written = [append(writer)[1] for _ in range(150)]
    writer.flush()
    writer.seal_segment()
    reader = opened.store.open_reader(writer.ledger_id)
    for first in (*range(149, -1, -7), *range(0, 150, 11)):
        end = min(first + 40, 149)
        entries = reader.read(
            Position(writer.ledger_id, first), bytes_max=2**20, end=Position(writer.ledger_id, end)
        )
        assert [plain(entry.data) for entry in entries] == written[first : end + 1]
    assert reader.read(Position(writer.ledger_id, 150), bytes_max=1, end=LATEST) == []


def test_a_read_takes_all_that_fits_from_every_segment(opened: Opened) -> None:
    """To the byte. Budgets had ended within a segment, or been far larger than all of them."""
    writer = opened.writer()
    written = [append(writer)[1] for _ in range(100)]
    writer.close()
    reader = opened.store.open_reader(writer.ledger_id)
    size = sum(map(len, written))
    found = reader.read(Position(writer.ledger_id, 0), bytes_max=size, end=LATEST)
    assert [plain(entry.data) for entry in found] == written


def test_a_segment_without_its_entries_is_damaged_for_every_read(opened: Opened) -> None:
    """Never an empty answer. A defect had made all reads of such a file go to its last entry."""
    writer = opened.writer()
    for _ in range(5):
        append(writer)
    writer.close()
    reader = opened.store.open_reader(writer.ledger_id)
    record = opened.metadata.ledger(writer.ledger_id)
    assert record is not None
    REAL.truncate(opened.store.ledgers_dir / record.segments[0].path, 0)
    for last in range(5):
        with pytest.raises(Corruption):
            reader.read(
                Position(writer.ledger_id, 0), bytes_max=1_000, end=Position(writer.ledger_id, last)
            )


def test_a_reader_of_an_open_ledger_gets_only_durable_entries(opened: Opened) -> None:
    """Queued entries are not there; flushed ones are, for a reader that was opened before."""
    writer = opened.writer()
    reader = opened.store.open_reader(writer.ledger_id)
    start = Position(writer.ledger_id, 0)
    append(writer)
    assert (reader.first, reader.last, reader.last_entry()) == (None, None, None)
    assert reader.read(start, bytes_max=1000, end=LATEST) == []
    writer.flush()
    append(writer)
    assert (reader.first, reader.last) == (start, start)
    assert len(reader.read(start, bytes_max=1000, end=LATEST)) == 1
    writer.close()
    assert reader.last == start.next
    last = reader.last_entry()
    assert last is not None
    assert last.header.position == start.next
    assert opened.store.open_reader(writer.ledger_id) is reader


def test_a_returned_record_does_not_change(opened: Opened) -> None:
    """A record that was read stays unchanged; the next read gives a new one."""
    writer = opened.writer()
    append(writer)
    writer.flush()
    before = opened.store.open_reader(writer.ledger_id).record
    text = str(before)
    append(writer)
    writer.flush()
    assert str(before) == text
    assert opened.store.open_reader(writer.ledger_id).record.segments[0].entries == 2


def test_counts_times_and_checksums_are_those_of_the_files(opened: Opened) -> None:
    """The writer's sums equal a scan of the sealed files."""
    writer = opened.writer()
    for number in range(60):
        append(writer, publish_time_ms=1000 - number, append_time_ms=number)
    record = writer.close()
    assert len(record.segments) > 1
    for segment in record.segments:
        assert tally_segment(opened.store.ledgers_dir / segment.path, segment) == segment
    reader = opened.store.open_reader(writer.ledger_id)
    assert (reader.entries, reader.messages) == (60, 60)
    sizes = [(opened.store.ledgers_dir / each.path).stat().st_size for each in record.segments]
    assert reader.size_bytes == sum(sizes)
    assert all(size <= 2000 + 200 for size in sizes)
    assert record.segments[-1].append_time_max_ms == 59


def test_a_time_finds_the_first_entry_that_is_not_older(opened: Opened) -> None:
    """Publish times are producers' clocks: they need not rise."""
    writer = opened.writer()
    for time_ms in (10, 30, 20, 40):
        append(writer, publish_time_ms=time_ms)
    writer.flush()
    reader = opened.store.open_reader(writer.ledger_id)
    at = [reader.position_at_time(time_ms) for time_ms in (0, 20, 35, 41)]
    assert at == [*(Position(writer.ledger_id, entry) for entry in (0, 1, 3)), None]


def test_a_search_by_time_may_begin_at_a_position(opened: Opened) -> None:
    """Entries before the start are not searched, in its segment and in earlier ones."""
    writer = opened.writer()
    for time_ms in (50, 10, 20):
        append(writer, publish_time_ms=time_ms)
    writer.flush()
    writer.seal_segment()
    for time_ms in (30, 10):
        append(writer, publish_time_ms=time_ms)
    writer.flush()
    reader = opened.store.open_reader(writer.ledger_id)

    def entry_at(start: int) -> int:
        found = reader.position_at_time(15, Position(writer.ledger_id, start))
        return -1 if found is None else found.entry_id

    assert [entry_at(start) for start in range(6)] == [0, 2, 2, 3, -1, -1]


def test_sealed_segments_are_listed_above_a_position(opened: Opened) -> None:
    """The open segment is not among them."""
    writer = opened.writer()
    for _ in range(3):
        for _ in range(2):
            append(writer)
        writer.flush()
        writer.seal_segment()
    append(writer)
    writer.flush()
    reader = opened.store.open_reader(writer.ledger_id)
    ledger_id = writer.ledger_id
    counts = [
        len(segments_sealed(reader.record, Position(ledger_id, entry)))
        for entry in (-1, 0, 1, 2, 5, 6)
    ]
    assert counts == [3, 3, 2, 2, 0, 0]


def test_a_ledger_rolls_by_bytes_entries_and_age(tmp_path: Path) -> None:
    """Each limit by itself; an empty ledger never rolls."""
    by_entries = Opened(tmp_path / "entries", ledger_entries_max=2)
    by_bytes = Opened(tmp_path / "bytes", ledger_bytes_max=150)
    by_age = Opened(tmp_path / "age", ledger_age_max_ms=10)
    for opened in (by_entries, by_bytes, by_age):
        writer = opened.writer()
        opened.now_ms += 9
        assert not writer.should_roll()
        append(writer)
        assert not writer.should_roll()
        if opened is by_age:
            opened.now_ms += 1
        else:
            append(writer)
        assert writer.should_roll()
        writer.close()


def test_a_closed_ledger_refuses_entries(opened: Opened) -> None:
    """Closing twice is fine; appending is not."""
    writer = opened.writer()
    append(writer)
    record = writer.close()
    assert writer.close() == record
    with pytest.raises(AlreadyClosed):
        append(writer)


def test_a_compacted_ledger_is_read_from_any_position(opened: Opened) -> None:
    """Entries of several raw ledgers under their ids, with gaps anywhere."""
    positions = [Position(ledger, entry) for ledger in (3, 5, 9) for entry in range(1, 120, 2)]
    reader = opened.adopt([positions[:70], positions[70:71], positions[71:]])
    assert (reader.first, reader.last, reader.entries) == (positions[0], positions[-1], 180)
    assert reader.messages == 360
    for start in (*positions[::-13], Position(-1, -1), Position(4, 0), Position(5, 60)):
        read = reader.read(start, bytes_max=2**20, end=LATEST)
        assert [each.header.position for each in read] == [
            each for each in positions if each >= start
        ]
    between = reader.read(Position(3, 2), bytes_max=100, end=Position(3, 2))
    assert between == []
    assert reader.read(Position(3, 200), bytes_max=100, end=Position(5, 0)) == []
    assert reader.read(Position(9, 120), bytes_max=100, end=LATEST) == []


def test_a_compacted_ledger_with_an_entry_above_the_limit_is_not_adopted(opened: Opened) -> None:
    """No reader could be sent it: the commit is the last chance to see that."""
    ledger_id = opened.metadata.allocate_ledger_id()
    opened.store.ledger_dir(ledger_id).mkdir()
    writer = SegmentWriter(opened.store.ledgers_dir, ledger_id, 0)
    keys = bytes(ENTRY_BYTES_MAX - HEADER_BYTES + 1)
    frame = build_entry(keys, b"", EntryFields(message_count=2))
    entry = stamp(frame, 3, 9, append_time_ms=0, producer_number=1)
    writer.append(read_header(entry), entry)
    record = writer.seal()
    with pytest.raises(EntryTooLarge, match=r"Entry 3:9 .* would take 16777217 bytes"):
        opened.store.verify_compacted(ledger_id, "t", [record])


def test_a_link_to_a_known_segment_is_adopted_without_reading(opened: Opened) -> None:
    """A different file of the same name and size is read, and rejected."""
    store, positions = opened.store, [Position(3, entry) for entry in range(4)]
    _, [known] = opened.compacted([positions])
    ledger_id = opened.metadata.allocate_ledger_id()
    store.ledger_dir(ledger_id).mkdir()
    linked = link_segment(store.ledgers_dir, known, ledger_id, 7)
    path = store.ledgers_dir / linked.path
    assert path.samefile(store.ledgers_dir / known.path)
    assert store.verify_compacted(ledger_id, "t", [linked], [known]).segments == [linked]
    path.unlink()
    path.write_bytes(bytes(known.size_bytes))
    with pytest.raises(Corruption):
        store.verify_compacted(ledger_id, "t", [linked], [known])
    linked.key_index.size_bytes = 9
    path.unlink()
    with pytest.raises(MissingFile):
        store.verify_compacted(ledger_id, "t", [linked], [known])


def test_a_disk_without_hard_links_gets_copies(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on file systems that have none."""
    _, [known] = opened.compacted([[Position(3, 0)]])

    def link(source: Path, target: Path) -> None:
        raise OSError(errno.EPERM, "no links")

    monkeypatch.setattr("os.link", link)
    ledger_id = opened.metadata.allocate_ledger_id()
    opened.store.ledger_dir(ledger_id).mkdir()
    linked = link_segment(opened.store.ledgers_dir, known, ledger_id, 0)
    path, source = (opened.store.ledgers_dir / each.path for each in (linked, known))
    assert not path.samefile(source)
    assert path.read_bytes() == source.read_bytes()


def test_a_compacted_ledger_that_differs_from_its_records_is_refused(opened: Opened) -> None:
    """A wrong count, checksum, order, size, or file: nothing is adopted."""
    positions = [Position(3, entry) for entry in range(4)]
    ledger_id, records = opened.compacted([positions[:2], positions[2:]])

    def verify(segments: Sequence[SegmentRecord]) -> None:
        opened.store.verify_compacted(ledger_id, "t", segments)

    verify(records)
    for field in ("entries", "messages", "checksum", "key_bytes", "append_time_max_ms"):
        wrong = SegmentRecord()
        wrong.CopyFrom(records[0])
        setattr(wrong, field, getattr(wrong, field) + 1)
        with pytest.raises(Corruption):
            verify([wrong, records[1]])
    with pytest.raises(Corruption, match="expected entries above"):
        verify(records[::-1])
    path = opened.store.ledgers_dir / records[1].path
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    with pytest.raises(MissingFile):
        verify(records)
    path.write_bytes(content[:30] + b"x" + content[31:])
    with pytest.raises(Corruption):
        verify(records)
    path.unlink()
    with pytest.raises(MissingFile):
        verify(records)


def test_an_abandoned_segment_leaves_no_file(opened: Opened) -> None:
    """A task that fails takes its file with it; until then it has the name of an unfinished one."""
    ledger_id = opened.metadata.allocate_ledger_id()
    folder = opened.store.ledger_dir(ledger_id)
    folder.mkdir()
    writer = SegmentWriter(opened.store.ledgers_dir, ledger_id, 0)
    entry = compacted_entry(Position(1, 0))
    writer.append(read_header(entry), entry)
    assert [each.name for each in folder.iterdir()] == ["00000000000000000000.log.tmp"]
    writer.abandon()
    assert list(folder.iterdir()) == []


def test_concurrent_attempts_of_a_task_do_not_conflict(opened: Opened) -> None:
    """The first to finish names the file; files of the others are removed when it is published.

    They had one temporary file: the second attempt's replaced the first one's. No test had two.
    """
    ledger_id = opened.metadata.allocate_ledger_id()
    folder = opened.store.ledger_dir(ledger_id)
    folder.mkdir()
    entries = [compacted_entry(Position(1, at)) for at in range(3)]
    writers = [
        SegmentWriter(opened.store.ledgers_dir, ledger_id, 0, Files(attempt=attempt))
        for attempt in (1, 2, 3)
    ]
    for entry in entries[:2]:
        for writer in writers:
            writer.append(read_header(entry), entry)
    first, slower, _ = writers
    for writer in (first, slower):
        writer.append(read_header(entries[2]), entries[2])
    record = first.seal()
    ledger = opened.store.verify_compacted(ledger_id, "t", [record])
    opened.store.label_compacted(ledger)
    assert sorted(each.name for each in folder.iterdir()) == ["00000000000000000000.log", "label"]
    before = (folder / "00000000000000000000.log").stat().st_ino
    assert slower.seal() == record
    assert (folder / "00000000000000000000.log").stat().st_ino == before
    opened.store.verify_compacted(ledger_id, "t", [record])


def test_a_scan_refuses_ids_that_do_not_rise(opened: Opened) -> None:
    """The order is part of a sealed segment's guarantees."""
    positions = [Position(3, 1), Position(3, 0)]
    _, records = opened.compacted([positions])
    path = opened.store.ledgers_dir / records[0].path
    with pytest.raises(Corruption, match="an entry above 3:1"):
        list(scan_segment(path, records[0]))


def test_a_file_outside_of_the_ledgers_folder_is_refused(opened: Opened) -> None:
    """Another ledger's file is deleted with that ledger; no name leads out of the ledgers
    folder.
    """
    _, records = opened.compacted([[Position(3, 0)]])
    second_id, more = opened.compacted([[Position(3, 1)]])
    names = (records[0].path, f"{second_id}/../{records[0].path}", f"{second_id}/1.log", "")
    for name in names:
        records[0].path = name
        with pytest.raises(CompactionFailed, match=f"not a segment of ledger {second_id}"):
            opened.store.verify_compacted(second_id, "t", [records[0], *more])


def test_a_second_deletion_is_refused(opened: Opened) -> None:
    """Files, folder and record are deleted; a second request gets an error that there is no such
    ledger.
    """
    writer = opened.writer()
    append(writer)
    writer.close()
    with opened.metadata.batch() as batch:
        opened.store.mark_deleting(writer.ledger_id, batch)
    opened.store.delete_files(writer.ledger_id)
    opened.store.delete_files(writer.ledger_id)
    assert opened.metadata.ledgers() == []
    with pytest.raises(MissingFile):
        opened.store.open_reader(writer.ledger_id)


def test_open_files_and_readers_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More ledgers than either bound are read in turn, again and again."""
    monkeypatch.setattr(ledger_module, "OPEN_FILES_MAX", 2)
    monkeypatch.setattr(ledger_module, "READERS_MAX", 3)
    opened = Opened(tmp_path)
    writers = [opened.writer() for _ in range(8)]
    for writer in writers:
        append(writer)
        writer.flush()
    for _ in range(3):
        for writer in writers:
            reader = opened.store.open_reader(writer.ledger_id)
            assert reader.last_entry() is not None
            assert len(opened.store._open_files) <= 2
            assert len(opened.store._readers) <= 3
    for writer in writers:
        writer.close()


def test_the_memory_of_a_reader_is_bounded(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ends of reads are forgotten, oldest first, and found again without them."""
    monkeypatch.setattr(reader_module, "NEXT_MAX", 4)
    writer = opened.writer()
    written = [append(writer)[1] for _ in range(50)]
    writer.close()
    reader = opened.store.open_reader(writer.ledger_id)
    for _ in range(2):
        for number in range(50):
            start = Position(writer.ledger_id, number)
            assert plain(reader.read(start, bytes_max=1, end=LATEST)[0].data) == written[number]
    assert len(reader._next) <= 4


@given(at=st.integers(0, 3 * (HEADER_BYTES + 20) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_an_error_or_changes_nothing(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    """Wherever one bit of a ledger's file flips, no read gives a byte that was not written."""
    opened = Opened(tmp_path_factory.mktemp("flip"))
    writer = opened.writer()
    written = [append(writer, value_bytes=15)[1] for _ in range(3)]
    record = writer.close()
    path = opened.store.ledgers_dir / record.segments[0].path
    content = bytearray(path.read_bytes())
    content[at % len(content)] ^= 1 << bit
    path.write_bytes(content)
    reader = opened.store.open_reader(writer.ledger_id)
    met = False
    for number in range(3):
        try:
            read = reader.read(Position(writer.ledger_id, number), bytes_max=1, end=LATEST)
        except Corruption:
            met = True
        else:
            assert read[0].data == written[number]
    assert met
