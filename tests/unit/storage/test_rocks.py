"""RocksDB on a disk that refuses a write: readable values, and when writes work again."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ledgerfold.storage.errors import Corruption, DiskFailure
from ledgerfold.storage.files import Files
from ledgerfold.storage.rocks import RETRY_S, RocksKeyValue
from tests.support.property_tests import examples
from tests.support.waiting import WAIT_S

FULL = "IO error: No space left on device: While appending to file: 000004.log"
NOT_SYNCED = "IO error: Input/output error: While fdatasync: 000004.log"


class Disk(Files):
    """As much room as a test says; and a clock."""

    free = 0
    now_s = 100.0

    def free_bytes(self, path: Path) -> int:
        return self.free

    def clock_s(self) -> float:
        return self.now_s


class Refusing:
    """Around a database: writes fail, before they have taken effect or when they are synced."""

    def __init__(self, database: Any, text: str, *, takes_effect: bool) -> None:
        self._database, self._text, self._takes_effect = database, text, takes_effect

    def write(self, *arguments: Any) -> None:
        if not self._takes_effect:
            raise Exception(self._text)
        self._database.write(*arguments)

    def flush_wal(self, sync: bool) -> None:
        raise Exception(self._text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def pairs(tmp_path: Path, disk: Disk) -> Iterator[RocksKeyValue]:
    store = RocksKeyValue(tmp_path / "metadata", files=disk, clock_s=disk.clock_s)
    store.write({b"a/1": b"old", b"a/2": b"old"}, ())
    yield store
    store.close()


def refuse(pairs: RocksKeyValue, text: str = FULL, *, takes_effect: bool = False) -> DiskFailure:
    """One write that fails: it would change, add and delete."""
    pairs._db = Refusing(pairs._db, text, takes_effect=takes_effect)
    with pytest.raises(DiskFailure) as failure:
        pairs.write({b"a/1": b"new", b"a/3": b"new"}, {b"a/2"})
    return failure.value


def refuse_opening(monkeypatch: pytest.MonkeyPatch, pairs: RocksKeyValue) -> list[bool]:
    """Allows only reading from now on; `True` stands for a read-only attempt."""
    real_open, tries = pairs._open, list[bool]()

    def open_(*, is_read_only: bool = False, is_strict: bool = False) -> Any:
        tries.append(is_read_only)
        if not is_read_only:
            raise DiskFailure("metadata", "Opening", OSError(28, "No space left on device"))
        return real_open(is_read_only=True)

    monkeypatch.setattr(pairs, "_open", open_)
    return tries


OLD = [(b"a/1", b"old"), (b"a/2", b"old")]


def test_a_full_disk_is_reported_and_the_next_write_works(pairs: RocksKeyValue) -> None:
    """The error says what to do; nothing of the failed write is stored."""
    error = refuse(pairs)
    assert not error.may_be_durable
    assert "Free space" in error.message
    assert pairs.scan(b"a/") == OLD
    pairs.write({b"b": b"1"}, ())
    assert pairs.get(b"b") == b"1"
    assert pairs.scan(b"a/") == OLD


def test_a_write_later_found_durable_is_undone(pairs: RocksKeyValue, tmp_path: Path) -> None:
    """A caller that got the failure continued from the earlier state."""
    error = refuse(pairs, NOT_SYNCED, takes_effect=True)
    assert error.may_be_durable
    assert "Free space" not in error.message
    assert pairs.scan(b"a/") == OLD
    assert pairs.last(b"a/") == OLD[-1]
    pairs.write({b"b": b"1"}, ())
    assert pairs.last(b"a/") == OLD[-1]
    assert pairs.scan(b"") == [*OLD, (b"b", b"1")]
    pairs.close()
    again = RocksKeyValue(tmp_path / "metadata")
    assert again.scan(b"") == [*OLD, (b"b", b"1")]
    again.close()


@pytest.mark.parametrize("text", [FULL, NOT_SYNCED])
def test_data_can_be_read_while_the_disk_is_full(
    pairs: RocksKeyValue, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Opened for reading only; the failed write does not show, even if the log has it."""
    refuse(pairs, text, takes_effect=text == NOT_SYNCED)
    refuse_opening(monkeypatch, pairs)
    with pytest.raises(DiskFailure, match="No space left"):
        pairs.write({b"b": b"1"}, ())
    assert pairs.scan(b"a/") == OLD
    assert [pairs.get(key) for key in (b"a/1", b"a/2", b"a/3")] == [b"old", b"old", None]


def test_the_store_is_not_reopened_at_each_write(
    pairs: RocksKeyValue, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once in a while, and at once when there is more room; in between the write just fails."""
    refuse(pairs)
    tries = refuse_opening(monkeypatch, pairs)
    for _ in range(3):
        with pytest.raises(DiskFailure):
            pairs.write({b"b": b"1"}, ())
    assert tries == [False, True]
    disk.now_s += RETRY_S
    with pytest.raises(DiskFailure):
        pairs.write({b"b": b"1"}, ())
    assert tries == [False, True] * 2
    disk.free = 1
    monkeypatch.undo()
    pairs.write({b"b": b"1"}, ())
    assert pairs.get(b"b") == b"1"


def test_threads_read_during_a_reopening(pairs: RocksKeyValue, disk: Disk) -> None:
    """No thread uses a closed handle."""
    is_over, errors = threading.Event(), list[Exception]()

    def read() -> None:
        while not is_over.is_set():
            try:
                assert pairs.scan(b"a/") == OLD
            except Exception as error:
                errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(5):
        refuse(pairs)
        disk.now_s += RETRY_S
        pairs.write({b"b": b"%d" % number}, ())
    is_over.set()
    for thread in threads:
        thread.join()
    assert errors == []


def test_a_closed_store_stays_closed(pairs: RocksKeyValue) -> None:
    """A late write does not bring it back."""
    refuse(pairs)
    pairs.close()
    for _ in range(2):
        with pytest.raises(DiskFailure):
            pairs.write({b"b": b"1"}, ())


def test_an_unreadable_block_ends_a_scan_with_an_error(tmp_path: Path) -> None:
    """RocksDB's iterator stops there as at the end; later records would seem to be missing."""
    folder = tmp_path / "damaged"
    pairs = RocksKeyValue(folder)
    pairs.write({b"a/%d" % number: b"value" for number in range(10)}, ())
    pairs.close()
    # Opened again, it flushes its log to a table.
    RocksKeyValue(folder).close()
    (table,) = folder.glob("*.sst")
    content = bytearray(table.read_bytes())
    content[content.index(b"value")] ^= 1
    table.write_bytes(content)
    pairs = RocksKeyValue(folder)
    with pytest.raises(Corruption):
        pairs.scan(b"a/")
    pairs.close()


def written_log(folder: Path) -> Path:
    """RocksDB's log of a process that was killed: three writes, all of them acknowledged."""
    code = """
import os, sys
from pathlib import Path
from ledgerfold.storage.rocks import RocksKeyValue
pairs = RocksKeyValue(Path(sys.argv[1]))
for number in range(3):
    pairs.write({b"key %d" % number: b"v" * 100}, ())
os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code, str(folder)], check=True)
    return next(each for each in folder.glob("*.log") if each.stat().st_size)


@pytest.mark.process
@pytest.mark.parametrize("is_same_boot", [False, True])
def test_a_torn_write_at_the_end_of_the_log_is_skipped(tmp_path: Path, is_same_boot: bool) -> None:
    log = written_log(tmp_path)
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size - 20)
    pairs = RocksKeyValue(tmp_path, is_same_boot=is_same_boot)
    assert [key for key, _ in pairs.scan(b"key")] == [b"key 0", b"key 1"]
    pairs.close()


@pytest.mark.process
def test_a_bad_record_without_a_power_loss_is_damage(tmp_path: Path) -> None:
    """Otherwise it may be a power loss within the last write."""
    log = written_log(tmp_path)
    data = bytearray(log.read_bytes())
    data[data.index(b"vvvv")] ^= 1
    log.write_bytes(data)
    with pytest.raises(Corruption):
        RocksKeyValue(tmp_path, is_same_boot=True)
    RocksKeyValue(tmp_path).close()


def test_a_write_is_visible_after_its_sync(pairs: RocksKeyValue) -> None:
    """A concurrent reader on another thread could build on data that a crash takes back."""
    is_syncing, may_end = threading.Event(), threading.Event()

    class Slow(Refusing):
        def flush_wal(self, sync: bool) -> None:
            is_syncing.set()
            assert may_end.wait(WAIT_S)
            self._database.flush_wal(sync)

    pairs._db = Slow(pairs._db, "", takes_effect=True)
    with ThreadPoolExecutor(1) as pool:
        written = pool.submit(pairs.write, {b"a/1": b"new", b"a/3": b"new"}, {b"a/2"})
        assert is_syncing.wait(WAIT_S)
        assert pairs.scan(b"a/") == OLD
        assert [pairs.get(key) for key in (b"a/1", b"a/2", b"a/3")] == [b"old", b"old", None]
        may_end.set()
        written.result()
    assert pairs.scan(b"a/") == [(b"a/1", b"new"), (b"a/3", b"new")]


def test_other_threads_run_while_a_write_waits_for_the_disk(pairs: RocksKeyValue) -> None:
    """RocksDB's synced write would hold the interpreter's lock: the store writes, then syncs."""
    calls = list[str]()

    class Watched(Refusing):
        def write(self, batch: Any, options: Any) -> None:
            assert not options.sync
            calls.append("write")
            self._database.write(batch, options)

        def flush_wal(self, sync: bool) -> None:
            assert sync
            calls.append("sync")
            self._database.flush_wal(sync)

    pairs._db = Watched(pairs._db, "", takes_effect=True)
    pairs.write({b"b": b"1"}, ())
    assert calls == ["write", "sync"]


@pytest.mark.usefixtures("hasty_threads")
def test_threads_continue_while_writes_fail(pairs: RocksKeyValue, disk: Disk) -> None:
    """Each reads its last successful write; scans see a whole write or none of it."""
    is_over = threading.Event()

    def write(thread: int) -> None:
        keys = [b"w/%d/%d" % (thread, number) for number in range(20)]
        stored: bytes | None = None
        for turn in range(examples(30)):
            try:
                pairs.write(dict.fromkeys(keys, b"%d" % turn), ())
                stored = b"%d" % turn
            except DiskFailure:
                disk.now_s += RETRY_S
            assert {pairs.get(key) for key in keys} == {stored}

    def scan(thread: int) -> None:
        while not is_over.is_set():
            found = pairs.scan(b"w/%d/" % thread)
            assert len(found) in (0, 20)
            assert len({value for _, value in found}) <= 1

    def fail() -> None:
        while not is_over.is_set():
            with pairs._access.exclusive():
                if pairs._failure is None and not isinstance(pairs._db, Refusing):
                    pairs._db = Refusing(pairs._db, NOT_SYNCED, takes_effect=True)
            disk.now_s += RETRY_S

    with ThreadPoolExecutor(7) as pool:
        around = [pool.submit(scan, thread) for thread in range(3)] + [pool.submit(fail)]
        writing = [pool.submit(write, thread) for thread in range(3)]
        try:
            for each in writing:
                each.result()
        finally:
            is_over.set()
        for each in around:
            each.result()


def test_a_list_of_records_leaves_no_copy_in_memory(tmp_path: Path) -> None:
    """A start lists all topics, and keeps what it needs of them."""
    store = RocksKeyValue(tmp_path / "m")
    store.write({b"key %d" % number: b"v" * 100 for number in range(10_000)}, ())
    store.close()
    # A start writes the records of the log into a file.
    store = RocksKeyValue(tmp_path / "m")

    def cached_bytes() -> int:
        return int(store._db.property_int_value("rocksdb.block-cache-usage"))

    before = cached_bytes()
    assert len(store.scan(b"key ")) == 10_000
    assert cached_bytes() == before
    store.close()
