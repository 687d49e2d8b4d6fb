"""Files that are appended to, more of them than may be open."""

from __future__ import annotations

import errno
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ledgerfold.storage.append_files import AppendFiles
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import REAL, Files
from ledgerfold.storage.open_files import AppendFile
from tests.support.lossy_files import LossyFiles
from tests.support.waiting import WAIT_S


@pytest.fixture(params=["real", "double"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    return REAL if request.param == "real" else LossyFiles(tmp_path)


def content(files: Files, path: Path) -> bytes:
    file = files.open_read(path)
    return file.pread(file.size_bytes, 0)


def test_a_reopened_file_continues_at_its_end(files: Files, tmp_path: Path) -> None:
    """Four files in turns, two of them open at a time."""
    appending = AppendFiles(files, 2)
    paths = [tmp_path / str(number) for number in range(4)]
    kept = [appending.create(path) for path in paths]
    for turn in range(3):
        for number, file in enumerate(kept):
            file.write([b"%d" % number, b"%d " % turn])
            file.sync()
            assert file.size_bytes == 3 * (turn + 1)
            assert len(appending._open) <= 2
    assert [content(files, path) for path in paths] == [
        b"%d0 %d1 %d2 " % (number, number, number) for number in range(4)
    ]
    for file in kept:
        file.close()
        file.close()
    assert not appending._open


def test_closed_files_are_synced_first(tmp_path: Path) -> None:
    """Unsynced data are synced; synced data are not synced again."""
    files = LossyFiles(tmp_path)
    appending = AppendFiles(files, 1)
    first, second = tmp_path / "first", tmp_path / "second"
    files_kept = appending.create(first), appending.create(second)
    files.sync_dir(tmp_path)
    files_kept[0].write([b"unsynced"])
    files_kept[1].write([b"other"])
    files_kept[1].sync()
    files_kept[0].sync()
    assert [call for call in files.calls if call.startswith("sync ")] == [
        f"sync {first}",
        f"sync {second}",
        f"sync {first}",
    ]
    files.crash()
    assert content(files, first) == b"unsynced"


def test_a_failed_sync_at_closing_ends_only_that_file(tmp_path: Path) -> None:
    """The next writer of that file gets the error, not the caller that needed a descriptor."""
    files = LossyFiles(tmp_path)
    appending = AppendFiles(files, 1)
    first, second = appending.create(tmp_path / "first"), appending.create(tmp_path / "second")
    first.write([b"unsynced"])
    files.fail_at(2)  # `second` is opened, then this one synced and closed
    second.write([b"fine"])
    second.sync()
    for _ in range(2):
        with pytest.raises(DiskFailure):
            first.sync()
        with pytest.raises(DiskFailure):
            first.write([b"more"])
    second.write([b"also fine"])
    assert content(files, tmp_path / "first") == b"unsynced"


def test_a_failed_write_is_remembered_after_closing(tmp_path: Path) -> None:
    """Opened again, the file would look intact."""
    files = LossyFiles(tmp_path)
    appending = AppendFiles(files, 1)
    first = appending.create(tmp_path / "first")
    files.fail_at(1, short=True)
    with pytest.raises(DiskFailure):
        first.write([b"half"])
    appending.create(tmp_path / "second").write([b"x"])
    with pytest.raises(DiskFailure):
        first.write([b"more"])
    assert content(files, tmp_path / "first") == b"ha"


@pytest.mark.parametrize("change", ["longer", "gone"])
def test_a_file_changed_by_another_process_is_refused(
    files: Files, tmp_path: Path, change: str
) -> None:
    """It must have the very size that it was left with."""
    appending = AppendFiles(files, 1)
    first = appending.create(tmp_path / "first")
    first.write([b"first"])
    appending.create(tmp_path / "second")
    if change == "gone":
        files.remove(tmp_path / "first")
    else:
        other = files.open_append(tmp_path / "first", 5)
        other.write([b"!"])
    with pytest.raises(DiskFailure):
        first.write([b"more"])


def test_a_file_in_use_stays_open(tmp_path: Path) -> None:
    """A sync that takes its time, while other threads need the room."""
    is_syncing, may_end = threading.Event(), threading.Event()

    class SlowFiles(LossyFiles):
        def create(self, path: Path) -> AppendFile:  # type: ignore[override]
            file = super().create(path)
            if path.name == "slow":
                sync = file.sync

                def slow_sync() -> None:
                    is_syncing.set()
                    assert may_end.wait(WAIT_S)
                    sync()

                file.sync = slow_sync  # type: ignore[method-assign]
            return file

    appending = AppendFiles(SlowFiles(tmp_path), 1)
    slow = appending.create(tmp_path / "slow")
    slow.write([b"slow"])
    thread = threading.Thread(target=slow.sync)
    thread.start()
    assert is_syncing.wait(WAIT_S)
    others = [appending.create(tmp_path / str(number)) for number in range(3)]
    for other in others:
        other.write([b"other"])
        other.sync()
    assert len(appending._open) == 2
    may_end.set()
    thread.join()
    others[0].write([b"again"])
    assert len(appending._open) == 1


def test_idle_files_are_closed_when_descriptors_are_scarce(tmp_path: Path) -> None:
    """The process has no free descriptor although the limit is not reached."""

    class ShortFiles(Files):
        is_short = False

        def create(self, path: Path) -> AppendFile:
            if self.is_short:
                self.is_short = False
                raise DiskFailure(str(path), "create", OSError(errno.EMFILE, "too many"))
            return super().create(path)

    files = ShortFiles()
    appending = AppendFiles(files, 100)
    first = appending.create(tmp_path / "first")
    files.is_short = True
    second = appending.create(tmp_path / "second")
    assert len(appending._open) == 1
    first.write([b"1"])
    second.write([b"2"])
    appending.close_idle(0)
    files.is_short = True
    with pytest.raises(DiskFailure, match="The disk is not at fault"):
        appending.create(tmp_path / "third")


def test_other_failures_are_not_retried(tmp_path: Path) -> None:
    """The disk's error is raised."""

    class FailingFiles(Files):
        fails = False

        def create(self, path: Path) -> AppendFile:
            if self.fails:
                self.fails = False
                raise DiskFailure(str(path), "create", OSError(errno.EIO, "broken"))
            return super().create(path)

    files = FailingFiles()
    appending = AppendFiles(files, 100)
    appending.create(tmp_path / "idle")
    files.fails = True
    with pytest.raises(DiskFailure):
        appending.create(tmp_path / "second")
    assert len(appending._open) == 1


_MANY_TOPICS = """
import os, resource, sys
from pathlib import Path
resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
from ledgerfold.storage.entry import EntryFields, LATEST, Position, build_entry, read_header
from ledgerfold.storage.ledger import LedgerStore, StoreSettings
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.names import metadata_dir
from ledgerfold.storage.rocks import RocksKeyValue
data = Path(sys.argv[1])
metadata = MetadataStore(RocksKeyValue(metadata_dir(data)))
store = LedgerStore(data, metadata, settings=StoreSettings(durability="os"), clock_ms=lambda: 1)
writers = []
with metadata.batch() as batch:
    for number in range(2000):
        writers.append(store.create_ledger(f"t{number}", batch))
for number in range(2):
    for writer in writers:
        header = read_header(frame := build_entry(b"", b"v", EntryFields(1)))
        writer.append(header, (memoryview(frame)[header.header_bytes:],), 1, 1)
        writer.flush()
for writer in writers:
    first = Position(writer.ledger_id, 0)
    read = store.open_reader(writer.ledger_id).read(first, bytes_max=1000, end=LATEST)
    assert [each.header.entry_id for each in read] == [0, 1]
# Now somebody takes all that is left.
held = []
try:
    while True:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for writer in writers[:10]:
    store.delete_files(writer.ledger_id)
assert not store.ledger_dir(writers[9].ledger_id).exists()
print(len(held))
"""


@pytest.mark.process
@pytest.mark.slow
def test_two_thousand_ledgers_under_a_limit_of_1024(tmp_path: Path) -> None:
    """All of them written in turns, read, and some deleted when not one descriptor is left."""
    command = [sys.executable, "-c", _MANY_TOPICS, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    # Readers, writers and metadata leave enough for connections.
    assert int(ran.stdout) > 250
