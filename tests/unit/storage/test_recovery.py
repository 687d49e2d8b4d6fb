"""Damage to a raw ledger's files, one damaging function per case.

Each case writes entries, damages a file as a crash or a bad disk would, proves that, recovers,
reads, appends to a new ledger, and reads again. After etcd's wal/repair_test.go.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from unittest.mock import Mock

import pytest

from ledgerfold.storage.entry import (
    HEADER_BYTES,
    HEADER_BYTES_MIN,
    LATEST,
    Position,
    crc32c,
    stamp,
)
from ledgerfold.storage.errors import (
    Corruption,
    DiskFailure,
    IncompatibleFormat,
    MissingFile,
    StorageError,
)
from ledgerfold.storage.files import REAL, Files
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.ledger import LedgerReader, LedgerStore, LedgerWriter, StoreSettings
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.records import STORE_VERSION, encode_record
from ledgerfold.storage.recovery import close_at_durable
from ledgerfold.storage.recovery_report import RecoveryReport
from ledgerfold.storage.reserve import RESERVE_BYTES
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, LEDGER_STATE_OPEN, StoreRecord
from tests.support.ledgers import append, as_version_1, plain

ENTRIES = 6
Damage = Callable[[bytes, list[int]], bytes]


class Directory:
    """A data directory with one ledger of ENTRIES entries, left open as by a crash.

    Each entry was acknowledged before the next was written, or all at once at the end.
    """

    def __init__(
        self, path: Path, segment_bytes_max: int = 2**20, *, is_one_group: bool = False
    ) -> None:
        self.path = path
        self.pairs = MemoryKeyValue()
        self.settings = StoreSettings(segment_bytes_max=segment_bytes_max)
        self.recover()
        writer = self.create()
        self.ledger_id = writer.ledger_id
        self.written = []
        for number in range(ENTRIES):
            self.written.append(append(writer, publish_time_ms=10 * number)[1])
            if not is_one_group:
                writer.flush()
        # Where each entry begins, and where the last one ends.
        self.offsets = [sum(map(len, self.written[:n])) for n in range(ENTRIES + 1)]
        writer.flush()
        self.first_file = self.segments()[0]

    def open(self) -> LedgerStore:
        self.metadata = MetadataStore(self.pairs)
        return LedgerStore(self.path, self.metadata, settings=self.settings, clock_ms=lambda: 1_000)

    def create(self) -> LedgerWriter:
        with self.metadata.batch() as batch:
            return self.store.create_ledger("t", batch)

    def segments(self) -> list[Path]:
        record = self.metadata.ledger(self.ledger_id)
        assert record is not None
        return [self.path / "ledgers" / segment.path for segment in record.segments]

    def damage(self, change: Damage) -> None:
        before = self.first_file.read_bytes()
        after = change(before, self.offsets)
        assert after != before
        self.first_file.write_bytes(after)

    def turn_into_version_1(self, entries: int = ENTRIES) -> None:
        """The first `entries` of the file, as an older build would have written them."""
        content = self.first_file.read_bytes()
        pairs = zip(self.offsets, self.offsets[1:], strict=False)
        parts = [content[start:end] for start, end in pairs]
        parts[:entries] = map(as_version_1, parts[:entries])
        self.offsets = [sum(map(len, parts[:n])) for n in range(ENTRIES + 1)]
        self.first_file.write_bytes(b"".join(parts))

    def recover(self, *, is_same_boot: bool = False) -> RecoveryReport:
        self.store = self.open()
        return self.store.recover(is_same_boot=is_same_boot)

    def reader(self) -> LedgerReader:
        return self.store.open_reader(self.ledger_id)

    def read(self, first: int = 0) -> list[bytes]:
        start = Position(self.ledger_id, first)
        return [plain(each.data) for each in self.reader().read(start, bytes_max=2**20, end=LATEST)]

    def append_again(self) -> None:
        """Appends to a new ledger; the old one stays unchanged."""
        writer = self.create()
        written = [append(writer)[1] for _ in range(3)]
        writer.close()
        reader = self.store.open_reader(writer.ledger_id)
        read = reader.read(Position(writer.ledger_id, 0), bytes_max=2**20, end=LATEST)
        assert [each.data for each in read] == written


def cut_in_the_last_header(content: bytes, offsets: list[int]) -> bytes:
    return content[: offsets[5] + HEADER_BYTES // 2]


def cut_in_the_last_section(content: bytes, offsets: list[int]) -> bytes:
    return content[:-1]


def zeros_in_the_last_section(content: bytes, offsets: list[int]) -> bytes:
    return content[: offsets[5] + HEADER_BYTES].ljust(len(content), b"\0")


def flipped_bit_in_the_last_entry(content: bytes, offsets: list[int]) -> bytes:
    return flip(content, offsets[5] + 40)


def zeros_for_the_last_two(content: bytes, offsets: list[int]) -> bytes:
    return content[: offsets[4]].ljust(len(content), b"\0")


def garbage_behind(content: bytes, offsets: list[int]) -> bytes:
    return content + b"garbage" * 100


def stale_entry_behind(content: bytes, offsets: list[int]) -> bytes:
    return content + content[: offsets[1]]


def other_ledgers_entry_behind(content: bytes, offsets: list[int]) -> bytes:
    return content + stamp(content[: offsets[1]], 99, ENTRIES, 1, 1)


def only_half_a_header(content: bytes, offsets: list[int]) -> bytes:
    return content[:30]


def nothing_left(content: bytes, offsets: list[int]) -> bytes:
    return b""


def flip(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


TORN: list[tuple[Damage, int]] = [
    (cut_in_the_last_header, 5),
    (cut_in_the_last_section, 5),
    (zeros_in_the_last_section, 5),
    (flipped_bit_in_the_last_entry, 5),
    (zeros_for_the_last_two, 4),
    (garbage_behind, 6),
    (stale_entry_behind, 6),
    (other_ledgers_entry_behind, 6),
    (only_half_a_header, 0),
]


def name(damage: object) -> str:
    return getattr(damage, "__name__", str(damage))


def test_a_ledger_that_a_start_closes_is_not_damaged(tmp_path: Path) -> None:
    """Its record says so, and so the next start judges its tail; only its state had been asked."""
    directory = Directory(tmp_path)
    directory.recover()
    record = directory.metadata.ledger(directory.ledger_id)
    assert record is not None
    assert (record.state, record.damaged) == (LEDGER_STATE_CLOSED, False)


def test_a_ledger_without_its_next_file_is_closed(tmp_path: Path) -> None:
    """The disk may have refused to make it; writers had failed only after that."""
    directory = Directory(tmp_path)
    record = directory.metadata.ledger(directory.ledger_id)
    assert record is not None
    record.segments[0].path = f"{directory.ledger_id}/{10**6:020}.log"
    ledgers_dir = tmp_path / "ledgers"
    close_at_durable(record, ledgers_dir, directory.metadata, REAL, 1_000)
    closed = directory.metadata.ledger(directory.ledger_id)
    assert closed is not None
    assert (closed.state, list(closed.segments)) == (LEDGER_STATE_CLOSED, [])


@pytest.mark.parametrize(("damage", "survive"), TORN, ids=name)
def test_a_torn_tail_is_cut_and_kept_aside(tmp_path: Path, damage: Damage, survive: int) -> None:
    """The bytes after the last whole entry are in a .torn file; the ledger is closed."""
    directory = Directory(tmp_path)
    directory.damage(damage)
    torn = directory.first_file.read_bytes()

    report = directory.recover()

    assert report.damaged == {}
    assert report.torn == [str(directory.first_file)]
    assert directory.first_file.with_name(directory.first_file.name + ".torn").read_bytes() == torn
    assert directory.read() == directory.written[:survive]
    record = directory.metadata.ledger(directory.ledger_id)
    assert record is not None
    assert record.state == LEDGER_STATE_CLOSED
    assert sum(segment.entries for segment in record.segments) == survive
    assert directory.first_file.exists() == bool(survive)
    directory.append_again()
    directory.recover()
    assert directory.read() == directory.written[:survive]
    directory.append_again()


@pytest.mark.parametrize(("damage", "survive"), TORN, ids=name)
def test_a_torn_tail_of_version_1_is_cut(tmp_path: Path, damage: Damage, survive: int) -> None:
    """An older build's file is closed as that build would have closed it."""
    directory = Directory(tmp_path)
    directory.turn_into_version_1()
    directory.damage(damage)
    assert directory.recover().damaged == {}
    assert directory.read() == directory.written[:survive]
    directory.append_again()


def test_an_empty_file_leaves_an_empty_ledger(tmp_path: Path) -> None:
    """A segment whose entries never reached the disk is removed; the ledger is closed and empty."""
    directory = Directory(tmp_path)
    directory.damage(nothing_left)
    report = directory.recover()
    assert report.damaged == {}
    assert report.torn == []
    assert directory.segments() == []
    assert directory.reader().last is None
    assert directory.read() == []
    directory.append_again()


def flipped_bit_in_a_header(content: bytes, offsets: list[int]) -> bytes:
    return flip(content, offsets[2] + 40)


def flipped_bit_in_a_key_section(content: bytes, offsets: list[int]) -> bytes:
    return flip(content, offsets[2] + HEADER_BYTES)


def flipped_bit_in_a_value_section(content: bytes, offsets: list[int]) -> bytes:
    return flip(content, offsets[3] - 1)


def an_entry_missing(content: bytes, offsets: list[int]) -> bytes:
    return content[: offsets[2]] + content[offsets[3] :]


def a_byte_missing(content: bytes, offsets: list[int]) -> bytes:
    return content[: offsets[2] + 80] + content[offsets[2] + 81 :]


def zeros_in_the_middle(content: bytes, offsets: list[int]) -> bytes:
    return content[: offsets[2]] + bytes(offsets[4] - offsets[2]) + content[offsets[4] :]


def the_last_but_one_missing(content: bytes, offsets: list[int]) -> bytes:
    return content[: offsets[4]] + content[offsets[5] :]


MIDDLE = [
    flipped_bit_in_a_header,
    flipped_bit_in_a_key_section,
    flipped_bit_in_a_value_section,
    an_entry_missing,
    a_byte_missing,
    zeros_in_the_middle,
]


@pytest.mark.parametrize("damage", MIDDLE, ids=name)
def test_damage_before_good_entries_is_never_cut(tmp_path: Path, damage: Damage) -> None:
    """The file stays unchanged, good entries are read, damaged ones raise each time."""
    directory = Directory(tmp_path)
    directory.damage(damage)
    damaged = directory.first_file.read_bytes()

    report = directory.recover()

    error = report.damaged[directory.ledger_id]
    assert isinstance(error, Corruption)
    assert error.path == str(directory.first_file)
    assert directory.offsets[2] <= error.offset < directory.offsets[3]
    assert directory.first_file.read_bytes() == damaged
    assert directory.reader().last == Position(directory.ledger_id, ENTRIES - 1)
    assert directory.read() == directory.written[:2]
    with pytest.raises(Corruption, match="is damaged at byte"):
        directory.read(2)
    for first in range(3, ENTRIES):
        with contextlib.suppress(Corruption):
            assert directory.read(first) == directory.written[first:]
    directory.append_again()
    assert directory.ledger_id in directory.recover().damaged
    assert directory.read() == directory.written[:2]


@pytest.mark.parametrize("damage", MIDDLE, ids=name)
def test_damage_in_version_1_is_never_cut(tmp_path: Path, damage: Damage) -> None:
    """A header without a durable length proves that everything before it was durable."""
    directory = Directory(tmp_path, is_one_group=True)
    directory.turn_into_version_1()
    directory.damage(damage)
    damaged = directory.first_file.read_bytes()
    assert isinstance(directory.recover().damaged[directory.ledger_id], Corruption)
    assert directory.first_file.read_bytes() == damaged
    assert directory.read() == directory.written[:2]


@pytest.mark.parametrize("damage", [*MIDDLE, the_last_but_one_missing], ids=name)
def test_a_group_without_its_first_block_is_cut(tmp_path: Path, damage: Damage) -> None:
    """No flush acknowledged any of it: the bytes after the hole are garbage, not damage."""
    directory = Directory(tmp_path, is_one_group=True)
    directory.damage(damage)
    torn = directory.first_file.read_bytes()
    report = directory.recover()
    survive = 4 if damage is the_last_but_one_missing else 2
    assert report.damaged == {}
    assert report.torn == [str(directory.first_file)]
    assert directory.first_file.with_name(directory.first_file.name + ".torn").read_bytes() == torn
    assert directory.read() == directory.written[:survive]
    directory.append_again()


@pytest.mark.parametrize("bad", [1, 4])
def test_entries_of_both_versions_in_one_segment(tmp_path: Path, bad: int) -> None:
    """Three of version 1, three of version 2 in one group: only the first prove anything."""
    directory = Directory(tmp_path, is_one_group=True)
    directory.turn_into_version_1(3)
    directory.damage(lambda content, offsets: flip(content, offsets[bad] + 40))
    report = directory.recover()
    assert set(report.damaged) == ({directory.ledger_id} if bad == 1 else set())
    assert directory.read() == directory.written[:bad]


def test_a_missing_entry_before_the_last_one_is_damage(tmp_path: Path) -> None:
    """The header in its place states that it was durable."""
    directory = Directory(tmp_path)
    directory.damage(the_last_but_one_missing)
    assert isinstance(directory.recover().damaged[directory.ledger_id], Corruption)
    assert directory.read() == directory.written[:4]


def test_a_damaged_last_entry_counts_as_a_torn_write(tmp_path: Path) -> None:
    """Nothing behind it proves anything: it is cut, and the copy keeps it."""
    directory = Directory(tmp_path)
    directory.damage(flipped_bit_in_the_last_entry)
    assert directory.recover().damaged == {}
    assert directory.read() == directory.written[:5]


WITHIN = [flipped_bit_in_the_last_entry, zeros_in_the_last_section, zeros_for_the_last_two]


@pytest.mark.parametrize("damage", [*WITHIN, *MIDDLE], ids=name)
@pytest.mark.parametrize("is_one_group", [False, True], ids=["groups", "one group"])
def test_damage_under_the_same_boot_is_never_cut(
    tmp_path: Path, damage: Damage, is_one_group: bool
) -> None:
    """The machine kept running: all writes of the process survive, the last entry too."""
    directory = Directory(tmp_path, is_one_group=is_one_group)
    directory.damage(damage)
    damaged = directory.first_file.read_bytes()
    report = directory.recover(is_same_boot=True)
    assert isinstance(report.damaged[directory.ledger_id], Corruption)
    assert directory.first_file.read_bytes() == damaged
    directory.append_again()


@pytest.mark.parametrize("damage", WITHIN, ids=name)
def test_known_damage_stays_damage(tmp_path: Path, damage: Damage) -> None:
    """Also after a power loss, when the same bytes would pass for a torn tail."""
    directory = Directory(tmp_path)
    directory.damage(damage)
    damaged = directory.first_file.read_bytes()
    assert directory.recover(is_same_boot=True).damaged
    report = directory.recover()
    assert set(report.damaged) == {directory.ledger_id}
    assert report.torn == []
    assert directory.first_file.read_bytes() == damaged


@pytest.mark.parametrize(
    "damage", [cut_in_the_last_header, cut_in_the_last_section, only_half_a_header], ids=name
)
def test_a_write_that_was_killed_is_cut_under_the_same_boot(tmp_path: Path, damage: Damage) -> None:
    """An entry that reaches beyond the end of the file was never written whole."""
    directory = Directory(tmp_path)
    directory.damage(damage)
    report = directory.recover(is_same_boot=True)
    assert report.damaged == {}
    assert report.torn == [str(directory.first_file)]


def test_a_write_that_was_killed_is_cut_on_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is cut without a copy under the same boot alone: other cut bytes may be needed.

    The reserve for deletions is not used for a copy.
    """
    full = DiskFailure("copy", "A copy", OSError(errno.ENOSPC, "No space left on device"))
    monkeypatch.setattr(Files, "copy", Mock(side_effect=full))
    directory = Directory(tmp_path)
    directory.damage(lambda data, _: data[:-1])
    with pytest.raises(DiskFailure):
        directory.recover()
    monkeypatch.undo()
    monkeypatch.setattr(Files, "free_bytes", Mock(return_value=RESERVE_BYTES))
    report = directory.recover(is_same_boot=True)
    assert (report.torn, report.damaged) == ([str(directory.first_file)], {})
    names = sorted(path.name for path in directory.first_file.parent.iterdir())
    assert names == [directory.first_file.name, "label"]


@pytest.mark.parametrize("durability", ["fsync", "os"])
def test_an_entry_records_the_synced_length_at_its_write(tmp_path: Path, durability: str) -> None:
    """Not what was acknowledged: under durability "os" only the end of a segment is synced."""
    directory = Directory(tmp_path)
    directory.settings = StoreSettings(durability=durability, segment_bytes_max=250)
    directory.store = directory.open()
    writer = directory.create()
    for _ in range(2):
        append(writer)
        writer.flush()
    for _ in range(5):
        append(writer)
    writer.flush()
    start = Position(writer.ledger_id, 0)
    reader = directory.store.open_reader(writer.ledger_id)
    said = [
        each.header.last_durable_entry_id
        for each in reader.read(start, bytes_max=2**20, end=LATEST)
    ]
    # Segments of three: one flush of four chunks writes 2, then 3 to 5, then 6.
    assert said == ([-1, 0, 1, 2, 2, 2, 5] if durability == "fsync" else [-1, -1, -1, 2, 2, 2, 5])


@pytest.mark.parametrize("damage", MIDDLE, ids=name)
def test_readers_find_damage_in_a_closed_ledger(tmp_path: Path, damage: Damage) -> None:
    """A disk that rots later: the good part is read, the damaged part raises, each time."""
    directory = Directory(tmp_path)
    directory.recover()
    directory.damage(damage)
    assert directory.read() == directory.written[:2]
    for _ in range(2):
        with pytest.raises(Corruption) as raised:
            directory.read(2)
        assert directory.offsets[2] <= raised.value.offset < directory.offsets[3]


def test_a_damaged_first_entry_raises(tmp_path: Path) -> None:
    """No good entry precedes the damage: every read raises, none is empty."""
    directory = Directory(tmp_path)
    directory.damage(lambda content, offsets: flip(content, 10))
    directory.recover()
    assert directory.reader().first == Position(directory.ledger_id, 0)
    for first in range(ENTRIES):
        with pytest.raises(Corruption):
            directory.read(first)
    with pytest.raises(Corruption):
        directory.reader().position_at_time(30)


def test_metadata_of_a_newer_build_are_not_changed(tmp_path: Path) -> None:
    """Recovery would close the open ledger, and remove files whose records it cannot read."""
    directory = Directory(tmp_path)
    stranger = directory.path / "ledgers" / "90" / "00000000000000000000.log"
    stranger.parent.mkdir()
    stranger.touch()
    later = StoreRecord(next_ledger_id=100, store_version=STORE_VERSION + 1)
    directory.pairs.write({b"store": encode_record(later)}, ())
    before = directory.pairs.scan(b"")
    with pytest.raises(IncompatibleFormat, match="the metadata store has format version 4"):
        directory.recover()
    assert stranger.exists()
    assert directory.pairs.scan(b"") == before


def test_an_entry_of_a_newer_format_is_kept_and_not_skipped(tmp_path: Path) -> None:
    """A newer build's entry is left for it."""
    directory = Directory(tmp_path)

    def newer(content: bytes, offsets: list[int]) -> bytes:
        body = b"\x03" + content[offsets[5] + 5 : offsets[5] + HEADER_BYTES_MIN]
        header = crc32c(body).to_bytes(4, "little") + body
        return content[: offsets[5]] + header + content[offsets[5] + HEADER_BYTES_MIN :]

    directory.damage(newer)
    report = directory.recover()
    assert isinstance(report.damaged[directory.ledger_id], IncompatibleFormat)
    assert directory.read() == directory.written[:5]
    with pytest.raises(IncompatibleFormat, match="version 3"):
        directory.read(5)
    directory.append_again()


@pytest.mark.parametrize("is_closed", [False, True], ids=["open", "closed"])
def test_a_missing_file_is_reported_and_raises_when_read(tmp_path: Path, is_closed: bool) -> None:
    """Only the part that lay in the file is lost, and reads of that part say so."""
    directory = Directory(tmp_path, segment_bytes_max=250)
    if is_closed:
        directory.recover()
    lost = directory.segments()[1]
    lost.unlink()

    report = directory.recover()

    assert isinstance(report.damaged[directory.ledger_id], MissingFile)
    first = int(lost.stem)
    assert directory.read() == directory.written[:first]
    with pytest.raises(MissingFile, match=lost.name):
        directory.read(first)
    directory.append_again()


def test_the_missing_last_file_of_an_open_ledger_raises_when_read(tmp_path: Path) -> None:
    """The size of a file that vanished before it was sealed is unknown: it is not empty."""
    directory = Directory(tmp_path, segment_bytes_max=250)
    lost = directory.segments()[-1]
    lost.unlink()
    report = directory.recover()
    assert isinstance(report.damaged[directory.ledger_id], MissingFile)
    first = int(lost.stem)
    assert directory.read() == directory.written[:first]
    with pytest.raises(MissingFile, match=lost.name):
        directory.read(first)


def test_a_truncated_sealed_file_raises_at_its_end(tmp_path: Path) -> None:
    """A truncated file returns its entries, then an error, never silence."""
    directory = Directory(tmp_path)
    directory.recover()
    directory.damage(lambda content, offsets: content[: offsets[4]])
    assert directory.ledger_id in directory.recover().damaged
    assert directory.read() == directory.written[:4]
    with pytest.raises(StorageError):
        directory.read(4)


def test_lost_metadata_do_not_make_ledgers_orphans(tmp_path: Path) -> None:
    """Without the metadata, recovery stops instead of removing every ledger."""
    directory = Directory(tmp_path)
    directory.pairs = MemoryKeyValue()
    with pytest.raises(Corruption, match="no store record"):
        directory.recover()
    assert directory.first_file.exists()


def test_files_without_a_record_are_removed(tmp_path: Path) -> None:
    """Files and folders of a failed run are removed; files that are not Ledgerfold's stay."""
    directory = Directory(tmp_path)
    ledgers = tmp_path / "ledgers"
    (ledgers / "77").mkdir()
    (ledgers / "77" / "00000000000000000000.log.tmp").write_bytes(b"half")
    (ledgers / "notes").mkdir()
    stray = directory.first_file.with_name("00000000000000000009.log")
    stray.write_bytes(b"stray")
    names = [f"{directory.ledger_id}/{stray.name}", "77"]
    assert sorted(directory.recover().orphans) == names
    assert not stray.exists()
    assert not (ledgers / "77").exists()
    assert (ledgers / "notes").exists()
    assert directory.read() == directory.written


def test_recovery_closes_ledgers_and_counts_their_entries(tmp_path: Path) -> None:
    """A closed ledger's record is the same whether its writer or recovery closed it."""
    directory = Directory(tmp_path, segment_bytes_max=250)
    record = directory.metadata.ledger(directory.ledger_id)
    assert record is not None
    assert record.state == LEDGER_STATE_OPEN
    assert directory.recover().closed == [directory.ledger_id]
    by_recovery = directory.metadata.ledger(directory.ledger_id)
    twin = Directory(tmp_path / "twin", segment_bytes_max=250)
    writer = twin.store._writers[twin.ledger_id]
    assert writer.close() == by_recovery
    assert twin.metadata.ledger(twin.ledger_id) == by_recovery
