"""Ledgers on a disk that loses unsynced data, for each call that can fail or be the last one.

One history (appends, group commits, rolls, a seal, a close, a second ledger) runs repeatedly; each
time, another call fails. Then the store is reopened, and these conditions are checked:

1. every flushed entry exists under its position, byte for byte;
2. nothing exists that was not appended, and positions have no gaps;
3. metadata name only files that exist, and every file is named;
4. the store accepts appends, and a second recovery changes nothing.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from ledgerfold.storage.entry import LATEST, Position
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import make_durable_dir
from ledgerfold.storage.ledger import LedgerStore, LedgerWriter, StoreSettings
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.v1.records_pb2 import LEDGER_STATE_CLOSED, LedgerRecord
from tests.support.ledgers import append, is_segment, plain
from tests.support.lossy_files import (
    TAILS,
    CountedKeyValue,
    Crash,
    LossyFiles,
    Tail,
    everything,
    nothing,
)

DATA = Path("/disk/data")
SETTINGS = StoreSettings(segment_bytes_max=500)


class Disk:
    """The disk, the appended entries, and the acknowledged ones."""

    def __init__(self) -> None:
        self.files = LossyFiles(Path("/disk"))
        self.pairs = CountedKeyValue(self.files)
        self.appended: dict[Position, bytes] = {}
        self.acknowledged: set[Position] = set()

    def open(self) -> LedgerStore:
        self.metadata = MetadataStore(self.pairs)
        return LedgerStore(
            DATA, self.metadata, files=self.files, settings=SETTINGS, clock_ms=lambda: 1000
        )

    def start(self) -> LedgerStore:
        """Opens the store as a broker does."""
        store = self.open()
        store.recover()
        return store

    def create(self, store: LedgerStore) -> LedgerWriter:
        with self.metadata.batch() as batch:
            return store.create_ledger("t", batch)

    def append(self, writer: LedgerWriter, count: int) -> None:
        for _ in range(count):
            position, entry = append(writer, value_bytes=100)
            self.appended[position] = entry

    def flush(self, writer: LedgerWriter) -> None:
        durable = writer.flush()
        self.acknowledged |= {
            position
            for position in self.appended
            if position.ledger_id == durable.ledger_id and position <= durable
        }

    def history(self, store: LedgerStore) -> None:
        writer = self.create(store)
        self.append(writer, 2)
        self.flush(writer)
        self.append(writer, 5)
        self.flush(writer)
        writer.seal_segment()
        self.append(writer, 1)
        self.flush(writer)
        self.append(writer, 2)
        writer.close()
        self.acknowledged |= set(self.appended)
        writer = self.create(store)
        self.append(writer, 3)
        self.flush(writer)
        self.append(writer, 2)
        self.flush(writer)

    def check(self, store: LedgerStore) -> None:
        records = self.metadata.ledgers()
        assert all(record.state == LEDGER_STATE_CLOSED for record in records)
        found = {
            entry.header.position: plain(entry.data)
            for record in records
            for entry in store.open_reader(record.ledger_id).read(
                Position(record.ledger_id, 0), bytes_max=2**20, end=LATEST
            )
        }
        assert self.acknowledged <= found.keys()
        assert found.items() <= self.appended.items()
        for record in records:
            mine = [each.entry_id for each in found if each.ledger_id == record.ledger_id]
            assert mine == list(range(len(mine)))
            assert mine == list(range(sum(segment.entries for segment in record.segments)))
        self._check_files(records)

    def _check_files(self, records: list[LedgerRecord]) -> None:
        named = {segment.path: segment.size_bytes for each in records for segment in each.segments}
        ledgers = DATA / "ledgers"
        there = {
            f"{folder}/{name}": self.files.size(ledgers / folder / name)
            for folder in self.files.listdir(ledgers)
            for name in self.files.listdir(ledgers / folder)
            if is_segment(name)
        }
        assert there == named

    def check_all(self, tail: Tail = nothing) -> None:
        """Recovers, checks, appends again, and repeats."""
        store = self.open()
        assert store.recover().damaged == {}
        self.check(store)
        writer = self.create(store)
        self.append(writer, 6)
        self.flush(writer)
        self.files.crash(tail)
        store = self.open()
        assert store.recover().damaged == {}
        self.check(store)


def length() -> int:
    """Returns the number of calls of the history."""
    disk = Disk()
    disk.history(disk.open())
    return len(disk.files.calls)


def test_the_history_rolls_segments_and_leaves_a_ledger_open() -> None:
    """Without failures, the history rolls segments and leaves a ledger open."""
    disk = Disk()
    disk.history(disk.open())
    assert [len(record.segments) for record in disk.metadata.ledgers()] == [4, 2]
    assert len(disk.acknowledged) == 15
    disk.files.crash()
    disk.check_all()


@pytest.mark.parametrize("tail", TAILS, ids=lambda tail: tail.__name__)
def test_a_crash_after_any_call_loses_no_acknowledged_entry(tail: Tail) -> None:
    """The power fails after the n-th call, for every n."""
    for number in range(1, length() + 1):
        disk = Disk()
        disk.files.crash_at(number)
        with pytest.raises(Crash):
            disk.history(disk.open())
        disk.files.crash(tail)
        disk.check_all()


@pytest.mark.parametrize("tail", TAILS, ids=lambda tail: tail.__name__)
@pytest.mark.parametrize(
    ("error", "short"), [(errno.EIO, False), (errno.ENOSPC, True)], ids=["error", "short"]
)
def test_a_failure_of_any_call_then_a_crash(error: int, short: bool, tail: Tail) -> None:
    """The n-th call fails, for every n; later the power fails, too."""
    for number in range(1, length() + 1):
        disk = Disk()
        disk.files.fail_at(number, error=error, short=short)
        with pytest.raises(DiskFailure):
            disk.history(disk.open())
        disk.files.crash(tail)
        disk.check_all()


@pytest.mark.parametrize("short", [False, True], ids=["error", "short"])
def test_a_failed_call_needs_no_restart(short: bool) -> None:
    """The n-th call fails, for every n; the failed ledgers are closed at their last acknowledged
    entry.
    """
    disk = Disk()
    disk.open()
    for number in range(1, length() - len(disk.files.calls) + 1):
        disk = Disk()
        store = disk.open()
        disk.files.fail_at(number, short=short)
        with pytest.raises(DiskFailure):
            disk.history(store)
        store.recover_ledgers(record.ledger_id for record in disk.metadata.ledgers())
        disk.check(store)
        writer = disk.create(store)
        disk.append(writer, 3)
        disk.flush(writer)
        writer.close()
        disk.check(store)
        disk.files.crash()
        disk.check_all()


def test_a_crash_in_a_recovery_is_recovered_from() -> None:
    """The power fails again after any call of the recovery of any state."""
    for number in range(1, length() + 1):
        step = 0
        while True:
            step += 1
            disk = _crashed(number)
            disk.files.crash_at(step)
            try:
                disk.open().recover()
            except Crash:
                disk.files.crash()
                disk.check_all()
                continue
            break


def _crashed(number: int) -> Disk:
    disk = Disk()
    disk.files.crash_at(number)
    with pytest.raises(Crash):
        disk.history(disk.open())
    disk.files.crash(TAILS[1])
    return disk


def test_a_start_continues_if_files_cannot_be_removed() -> None:
    """Tests a deleted ledger, a dead run, and an unknown file: the start continues."""

    def littered() -> tuple[Disk, LedgerStore]:
        disk = Disk()
        store = disk.start()
        disk.history(store)
        with disk.metadata.batch() as batch:
            store.mark_deleting(disk.metadata.ledgers()[0].ledger_id, batch)
        for stray in ("60/1.log.tmp", "2/00000000000000000099.log"):
            path = store.ledgers_dir / stray
            disk.files.make_dir(path.parent)
            disk.files.create(path)
        disk.appended = {each: data for each, data in disk.appended.items() if each.ledger_id > 1}
        disk.acknowledged &= set(disk.appended)
        return disk, disk.open()

    disk, store = littered()
    before = len(disk.files.calls)
    store.recover()
    removals = [
        number
        for number, call in enumerate(disk.files.calls[before:], start=1)
        if call.startswith("remove")
    ]
    assert len(removals) == 3
    for number in removals:
        disk, store = littered()
        disk.files.fail_at(number)
        assert store.recover().damaged == {}
        assert disk.open().recover().undeleted == []
        disk.check_all()


def test_the_next_new_ledger_removes_a_leftover_folder() -> None:
    """A start is not needed."""
    disk = Disk()
    store = disk.start()
    disk.history(store)
    first, second = (record.ledger_id for record in disk.metadata.ledgers())
    disk.files.fail_at(3)  # after the batch, and the sync of the mark: the folder's removal
    with pytest.raises(DiskFailure):
        delete(disk, store, first)
    assert str(first) in disk.files.listdir(store.ledgers_dir)
    delete(disk, store, second)
    assert disk.files.listdir(store.ledgers_dir) == []
    assert disk.metadata.ledgers() == []


@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("restarts", [True, False])
def test_segments_recorded_as_sealed_are_synced(
    monkeypatch: pytest.MonkeyPatch, durability: str, restarts: bool
) -> None:
    """A process dies and leaves unsynced data; the next one seals them; the power fails."""
    monkeypatch.setattr(f"{__name__}.SETTINGS", StoreSettings(durability=durability))
    disk = Disk()
    store = disk.open()
    writer = disk.create(store)
    disk.append(writer, 2)
    disk.flush(writer)
    disk.append(writer, 1)
    if durability == "fsync":
        disk.files.fail_at(2)  # written, and not synced
        with pytest.raises(DiskFailure):
            writer.flush()
    if restarts:
        disk.open().recover()
    else:
        store.recover_ledgers([writer.ledger_id])
    disk.files.crash(nothing)
    disk.check_all(nothing if durability == "fsync" else everything)


def test_a_folder_is_durable_with_all_its_parents() -> None:
    """Tests three new folders, with each step as the last one; also folders left by a process that
    died there.
    """
    path = Path("/disk/a/b/c")
    for crash_at in range(1, 7):
        files = LossyFiles(Path("/disk"))
        files.crash_at(crash_at)
        with pytest.raises(Crash):
            make_durable_dir(path, files)
        # Only the process died: its successor finds the folders, and continues.
        make_durable_dir(path, files)
        make_durable_dir(path, files)
        files.crash()
        assert files.exists(path)


Step = Callable[[Disk, LedgerStore, int], None]


def delete(disk: Disk, store: LedgerStore, ledger_id: int) -> None:
    with disk.metadata.batch() as batch:
        store.mark_deleting(ledger_id, batch)
    store.delete_files(ledger_id)


def test_a_crash_during_the_deletion_of_a_ledger() -> None:
    """After the next start, a ledger that no record names is deleted permanently."""
    number = 0
    while True:
        number += 1
        disk = Disk()
        store = disk.start()
        disk.history(store)
        first = disk.metadata.ledgers()[0].ledger_id
        disk.files.crash_at(number)
        try:
            delete(disk, store, first)
        except Crash:
            disk.files.crash()
            store = disk.open()
            store.recover()
            assert first not in [each.ledger_id for each in disk.metadata.ledgers()]
            assert str(first) not in disk.files.listdir(store.ledgers_dir)
            continue
        break
    assert number > 3


def in_turns(disk: Disk, store: LedgerStore) -> None:
    """Writes three ledgers in turns, through one descriptor."""
    writers = [disk.create(store) for _ in range(3)]
    for _ in range(3):
        for writer in writers:
            disk.append(writer, 2)
            disk.flush(writer)
    for writer in writers:
        writer.close()


@pytest.mark.parametrize("durability", ["fsync", "os"])
@pytest.mark.parametrize("goes_wrong", ["crash", "error"])
def test_files_may_be_closed_and_reopened_between_flushes(
    monkeypatch: pytest.MonkeyPatch, durability: str, goes_wrong: str
) -> None:
    """Every call of a history in which each flush reopens its file."""
    monkeypatch.setattr("ledgerfold.storage.ledger.OPEN_WRITERS_MAX", 1)
    monkeypatch.setattr(
        f"{__name__}.SETTINGS", StoreSettings(segment_bytes_max=500, durability=durability)
    )
    disk = Disk()
    store = disk.open()
    opening = len(disk.files.calls)
    in_turns(disk, store)
    calls = len(disk.files.calls) - opening
    assert sum(call.startswith("open_append") for call in disk.files.calls) >= 6
    for number in range(1, calls + 1):
        disk = Disk()
        store = disk.open()
        if goes_wrong == "crash":
            disk.files.crash_at(number)
        else:
            disk.files.fail_at(number)
        with pytest.raises((Crash, DiskFailure)):
            in_turns(disk, store)
        if goes_wrong == "error":
            store.recover_ledgers(record.ledger_id for record in disk.metadata.ledgers())
            disk.check(store)
        # Under "os", an acknowledgement means the page cache.
        tail = nothing if durability == "fsync" else everything
        disk.files.crash(tail)
        disk.check_all(tail)


def test_a_failed_writer_refuses_everything() -> None:
    """After a failed sync nothing is acknowledged, even if the disk reports success later."""
    disk = Disk()
    writer = disk.create(disk.open())
    disk.append(writer, 1)
    disk.flush(writer)
    disk.append(writer, 1)
    disk.files.fail_at(2)  # the write succeeds, the sync does not
    with pytest.raises(DiskFailure):
        writer.flush()
    assert writer.durable == Position(writer.ledger_id, 0)
    for refused in (writer.flush, writer.close, writer.seal_segment):
        with pytest.raises(DiskFailure):
            refused()
    with pytest.raises(DiskFailure):
        disk.append(writer, 1)


def test_the_harness_notices_a_missing_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A canary: without fdatasync, acknowledged entries are lost and the check reports it."""
    monkeypatch.setattr("tests.support.lossy_files.LossyAppendFile.sync", lambda self: None)
    disk = Disk()
    disk.history(disk.open())
    disk.files.crash()
    with pytest.raises(AssertionError):
        disk.check_all()
