"""Deletion vectors: the file, and readers of segments that have one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.storage.codec import decode, last_batch_index
from ledgerfold.storage.deletion_vector import DeadRows, DeadTally, DeletionVector, VectorCache
from ledgerfold.storage.entry import (
    EARLIEST,
    HEADER_BYTES,
    LATEST,
    Compression,
    Position,
    crc32c,
    read_header,
    stamp,
)
from ledgerfold.storage.entry_check import check_entry
from ledgerfold.storage.errors import (
    Corruption,
    IncompatibleFormat,
    InvalidRequest,
    MissingFile,
)
from ledgerfold.storage.files import REAL
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.ledger import LedgerReader, LedgerStore
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import deletion_vector_path
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.native_batch import NativeBatch
from ledgerfold.storage.segment import SegmentWriter
from ledgerfold.storage.served_entry import read_served_header, with_live_rows
from ledgerfold.v1.records_pb2 import SegmentRecord

# The rows of each entry, and the dead ones.
ENTRIES = st.lists(st.lists(st.booleans(), min_size=1, max_size=40), min_size=1, max_size=12)


def _entry(entry_id: int, rows: int, ledger_id: int = 7) -> bytes:
    builder = NativeBatchBuilder("p", b"schema")
    for row in range(rows):
        builder.add(
            b"" if row % 5 == 4 else b"value %d" % row,
            None if row % 7 == 6 else b"key %d" % row,
            properties={"row": str(row)} if row % 3 == 0 else None,
            event_time_ms=row,
            ordering_key=b"o%d" % row if row % 2 else None,
        )
    built = builder.build(
        sequence_id=100 * entry_id + rows, publish_time_ms=entry_id, compression=Compression.LZ4
    )
    return stamp(built, ledger_id, entry_id, append_time_ms=1, producer_number=1)


def _dead(flags: list[bool]) -> list[int]:
    return [row for row, is_dead in enumerate(flags) if is_dead]


@given(ENTRIES)
def test_a_vector_is_read_as_it_was_written(entries: list[list[bool]]) -> None:
    """Every entry with dead rows is found at its offset, and no other."""
    rows = [
        DeadRows(1000 * at, 40 * at, len(flags), _dead(flags)) for at, flags in enumerate(entries)
    ]
    listed = [each for each in rows if each.dead]
    vector = DeletionVector.of(40 * len(rows), listed)
    read = DeletionVector.parse(vector.encode(), "v")
    assert len(vector.encode()) == vector.size_bytes == read.size_bytes
    for each, flags in zip(rows, entries, strict=True):
        index = read.at(each.offset)
        assert (index is None) == (not each.dead)
        if index is not None:
            assert read.dead_rows(index) == each.dead
            assert read.is_whole(index) == all(flags)
            live = int.from_bytes(read.live_rows(index), "little")
            assert [not live >> row & 1 for row in range(each.rows)] == flags
    assert read.at(1) is None


@pytest.mark.parametrize("rows", [65_536, 65_537, 200_000])
@pytest.mark.parametrize("step", [3, 10_000])
def test_vectors_of_large_entries(rows: int, step: int) -> None:
    """Row numbers of two bytes end at 65,536 rows."""
    dead = list(range(0, rows, step))
    vector = DeletionVector.of(rows, [DeadRows(0, 0, rows, dead)])
    read = DeletionVector.parse(vector.encode(), "v")
    assert read.dead_rows(0) == dead
    assert int.from_bytes(read.live_rows(0), "little").bit_count() == rows - len(dead)


def test_any_flipped_bit_is_damage() -> None:
    stored = DeletionVector.of(9, [DeadRows(0, 0, 4, [1]), DeadRows(500, 4, 5, [0, 1])]).encode()
    for at in range(len(stored)):
        damaged = bytearray(stored)
        damaged[at] ^= 4
        with pytest.raises(Corruption):
            DeletionVector.parse(bytes(damaged), "v")
    for size in range(len(stored)):
        with pytest.raises(Corruption):
            DeletionVector.parse(stored[:size], "v")


@pytest.mark.parametrize(
    "entries",
    [
        [DeadRows(500, 4, 5, [0]), DeadRows(0, 0, 4, [1])],
        [DeadRows(0, 0, 4, [1]), DeadRows(500, 3, 5, [0])],
        [DeadRows(0, 5, 5, [1])],
        [DeadRows(0, 0, 5, [])],
    ],
)
def test_vectors_with_invalid_entries_are_damage(entries: list[DeadRows]) -> None:
    """Out of order, overlapping, beyond the segment, without a dead row."""
    with pytest.raises(Corruption, match="dead rows"):
        DeletionVector.parse(DeletionVector.of(9, entries).encode(), "v")


@pytest.mark.parametrize("rows", [[2, 1], [1, 1], [1, 80]])
def test_vectors_with_invalid_rows_are_damage(rows: list[int]) -> None:
    """Out of order, twice, beyond the entry. Nothing else is wrong."""
    with pytest.raises(Corruption, match="dead rows"):
        DeletionVector.parse(DeletionVector.of(80, [DeadRows(0, 0, 80, rows)]).encode(), "v")


def test_a_later_version_is_reported() -> None:
    stored = bytearray(DeletionVector.of(9, [DeadRows(0, 0, 4, [1])]).encode())
    stored[4] = 2
    stored[:4] = crc32c(bytes(stored[4:])).to_bytes(4, "little")
    with pytest.raises(IncompatibleFormat, match="deletion vector"):
        DeletionVector.parse(bytes(stored), "v")


@given(st.lists(st.booleans(), min_size=1, max_size=40).filter(lambda flags: not all(flags)))
def test_a_served_entry_has_only_its_live_messages(flags: list[bool]) -> None:
    """With their ids, sequence ids, properties and keys, as in the whole entry."""
    entry = _entry(3, len(flags))
    header = read_header(entry)
    bits = sum(1 << row for row, is_dead in enumerate(flags) if not is_dead)
    served, data = with_live_rows(header, entry, bits.to_bytes((len(flags) + 7) // 8, "little"))
    read = read_served_header(memoryview(data))
    assert read == served
    assert (len(data), read.position) == (read.size_bytes, header.position)
    whole = [*decode(entry).messages()]
    expected = [each for each, is_dead in zip(whole, flags, strict=True) if not is_dead]
    batch = decode(data, read)
    assert [*batch.messages()] == expected
    assert batch.contents() == [each.value for each in expected]
    assert batch.rows == read.message_count == len(expected)
    assert last_batch_index(data, read) == expected[-1].batch_index
    keys = data[read.header_bytes : read.header_bytes + read.key_bytes]
    assert NativeBatch.routing(read, keys).key == expected[0].key


def test_a_served_entry_cannot_be_stored_and_damage_is_found() -> None:
    """An older build reads headers as read_header() does, and a producer may not send one."""
    entry = _entry(3, 9)
    _, data = with_live_rows(read_header(entry), entry, bytes([0b1010, 1]))
    with pytest.raises(IncompatibleFormat, match="version 3"):
        read_header(data)
    with pytest.raises(InvalidRequest, match="version 3"):
        check_entry(data)
    for at in range(HEADER_BYTES + 10):
        damaged = bytearray(data)
        damaged[at] ^= 1
        with pytest.raises((Corruption, IncompatibleFormat)):
            read_served_header(damaged)
    for size in range(HEADER_BYTES + 10):
        with pytest.raises((Corruption, IncompatibleFormat)):
            read_served_header(data[:size])


class _Ledger:
    """A compacted ledger of one segment whose entries have dead rows."""

    def __init__(self, folder: Path, entries: list[list[bool]]) -> None:
        self.metadata = MetadataStore(MemoryKeyValue())
        self.store = LedgerStore(folder, self.metadata, files=REAL, clock_ms=lambda: 1)
        self.ledger_id = self.metadata.allocate_ledger_id()
        self.store.ledger_dir(self.ledger_id).mkdir()
        writer = SegmentWriter(self.store.ledgers_dir, self.ledger_id, 0)
        tally = DeadTally()
        self.expected: list[tuple[Position, int]] = []
        for entry_id, flags in enumerate(entries):
            entry = _entry(2 * entry_id, len(flags))
            header = read_header(entry)
            writer.append(header, entry)
            tally.add(header, _dead(flags))
            self.expected += [
                (header.position, row) for row, is_dead in enumerate(flags) if not is_dead
            ]
        self.segment = writer.seal()
        stored, record = tally.finish()
        self.vector = self.store.ledgers_dir / deletion_vector_path(self.segment.path)
        if record.messages:
            self.vector.write_bytes(stored)
            self.segment.dead.CopyFrom(record)

    def reader(self) -> LedgerReader:
        with self.metadata.batch() as batch:
            batch.put(self.store.verify_compacted(self.ledger_id, "t", [self.segment]))
        return self.store.open_reader(self.ledger_id)


def _read(reader: LedgerReader, bytes_max: int, wait: bool) -> list[tuple[Position, int]]:
    found: list[tuple[Position, int]] = []
    start = EARLIEST
    while True:
        try:
            entries = reader.read(start, bytes_max=bytes_max, end=LATEST, wait=wait)
        except BlockingIOError:
            entries = reader.read(start, bytes_max=bytes_max, end=LATEST)
        if not entries:
            return found
        for entry in entries:
            batch = decode(entry.data, entry.header)
            found += [(entry.header.position, batch.batch_index(row)) for row in range(batch.rows)]
        start = entries[-1].header.position.next


@given(
    ENTRIES.filter(lambda entries: not all(map(all, entries))),
    st.sampled_from([1, 300, 1 << 20]),
    st.booleans(),
)
def test_readers_get_only_live_messages(
    tmp_path_factory: pytest.TempPathFactory,
    entries: list[list[bool]],
    bytes_max: int,
    wait: bool,
) -> None:
    """In reads of any size, from any position, blocking or not; and in everything that counts."""
    ledger = _Ledger(tmp_path_factory.mktemp("ledger"), entries)
    reader, expected = ledger.reader(), ledger.expected
    assert _read(reader, bytes_max, wait) == expected
    assert (reader.first, reader.last) == (expected[0][0], expected[-1][0])
    assert reader.messages == len(expected)
    assert reader.entries == len({position for position, _ in expected})
    last = reader.last_entry()
    assert last is not None
    assert (last.header.position, last_batch_index(last.data, last.header)) == expected[-1]
    for at in range(2 * len(entries)):
        start = Position(7, at)
        wanted = [position for position, _ in expected if position >= start]
        found = reader.read(start, bytes_max=1, end=LATEST)
        assert [each.header.position for each in found] == wanted[:1]
        assert reader.position_at_time(at) == (wanted[0] if wanted else None)
        found = reader.read(start, bytes_max=1 << 20, end=start)
        assert [each.header.position for each in found] == [
            each for each in sorted(set(wanted)) if each == start
        ]
    keys = [
        (header.position, row)
        for header, section in reader.keys(ledger.segment)
        for row in map(decode_row(header, section), range(header.message_count))
    ]
    assert keys == expected


def test_a_nonblocking_read_skips_a_bounded_number_of_dead_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event loop leaves the rest to a thread. No test had many dead entries in a row."""
    monkeypatch.setattr("ledgerfold.storage.reader._PASSED_BYTES_MAX", 2_000)
    for dead, is_left in ((3, False), (60, True)):
        folder = tmp_path / str(dead)
        folder.mkdir()
        ledger = _Ledger(folder, [*([[True] * 5] * dead), [False]])
        reader = ledger.reader()
        # Afterwards the vector is in memory.
        assert reader.read(ledger.expected[0][0], bytes_max=500, end=LATEST)
        try:
            found = reader.read(EARLIEST, bytes_max=500, end=LATEST, wait=False)
        except BlockingIOError:
            assert is_left
            found = reader.read(EARLIEST, bytes_max=500, end=LATEST)
        else:
            assert not is_left
        assert [(each.header.position, 0) for each in found] == ledger.expected


def test_small_vectors_are_cached(tmp_path: Path) -> None:
    """A second look at either reads no file; one that exceeds the bound alone stays, too."""
    first, second = tmp_path / "1", tmp_path / "2"
    for folder in (first, second):
        folder.mkdir()
    one, two = _Ledger(first, [[True, False]]), _Ledger(second, [[False, True]])
    two.segment.path = two.segment.path.replace(str(two.ledger_id), "other", 1)
    cache = VectorCache(one.store.ledgers_dir, REAL)
    target = one.store.ledgers_dir / deletion_vector_path(two.segment.path)
    target.parent.mkdir()
    target.write_bytes(two.vector.read_bytes())
    assert cache.of(one.segment) is not None
    assert cache.of(two.segment) is not None
    assert cache.of(one.segment, wait=False) is not None
    assert cache.of(two.segment, wait=False) is not None


def decode_row(header: object, section: memoryview) -> Callable[[int], int]:
    """The batch index of each row of a key section."""
    return NativeBatch(header, section, b"").batch_index  # type: ignore[arg-type]


ENTRIES_ONCE = [[False, True, False], [True, True], [False], [True, False]]


@pytest.mark.parametrize("change", ["missing", "size", "bit", "other", "shifted"])
def test_a_vector_that_differs_from_its_record_fails_reads(tmp_path: Path, change: str) -> None:
    """No dead message is ever read for a live one."""
    ledger = _Ledger(tmp_path, ENTRIES_ONCE)
    reader = ledger.reader()
    stored = ledger.vector.read_bytes()
    error: type[Exception] = Corruption
    match change:
        case "missing":
            ledger.vector.unlink()
            error = MissingFile
        case "size":
            ledger.vector.write_bytes(stored + b"x")
            error = MissingFile
        case "bit":
            ledger.vector.write_bytes(stored[:-1] + bytes([stored[-1] ^ 1]))
        case "other":
            ledger.segment.dead.checksum ^= 1
            reader.record.segments[0].dead.checksum ^= 1
        case "shifted":
            vector = DeletionVector.parse(stored, "v")
            vector.offsets[-1] += 1
            moved = vector.encode()
            ledger.vector.write_bytes(moved)
            reader.record.segments[0].dead.checksum = int.from_bytes(moved[:4], "little")
            with pytest.raises(Corruption, match=r"\.dead"):
                _read(reader, 1 << 20, True)
            return
    with pytest.raises(error, match=r"\.dead"):
        reader.read(EARLIEST, bytes_max=1, end=LATEST)
    with pytest.raises(error, match=r"\.dead"):
        [*reader.keys(reader.record.segments[0])]
    with pytest.raises(error, match=r"\.dead"):
        reader.position_at_time(0)
    with pytest.raises(error):
        ledger.store.verify_compacted(ledger.ledger_id, "t", [ledger.segment])


def test_a_start_finds_a_missing_vector(tmp_path: Path) -> None:
    """As it finds a missing segment."""
    ledger = _Ledger(tmp_path, ENTRIES_ONCE)
    ledger.reader()
    assert ledger.store.missing_of(ledger.ledger_id) is None
    ledger.vector.write_bytes(b"")
    assert isinstance(ledger.store.missing_of(ledger.ledger_id), MissingFile)
    ledger.vector.unlink()
    assert isinstance(ledger.store.missing_of(ledger.ledger_id), MissingFile)


def test_dead_messages_are_never_restored(tmp_path: Path) -> None:
    """A run whose output has fewer of them is refused."""
    ledger = _Ledger(tmp_path, ENTRIES_ONCE)
    ledger.reader()
    before = SegmentRecord()
    before.CopyFrom(ledger.segment)
    ledger.segment.ClearField("dead")
    with pytest.raises(Corruption, match="dead"):
        ledger.store.verify_compacted(ledger.ledger_id, "t", [ledger.segment], [before])
