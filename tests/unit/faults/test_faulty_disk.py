"""A disk that is full because a rule says so."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.broker.faults.disk import FaultyFiles, FaultyKeyValue
from ledgerfold.broker.faults.faults import Faults
from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import write_file
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.reserve import RESERVE_BYTES, Reserve
from ledgerfold.v1.admin_pb2 import FAULT_KIND_DISK_FULL, Fault

FULL = Fault(kind=FAULT_KIND_DISK_FULL)


def test_a_full_disk_fails_only_operations_that_need_space(tmp_path: Path) -> None:
    faults = Faults()
    files = FaultyFiles(faults)
    write_file(tmp_path / "a", [b"before"], files)
    file = files.open_append(tmp_path / "a", 6)
    faults.add(FULL)
    needing = (
        lambda: files.create(tmp_path / "b"),
        lambda: files.make_dir(tmp_path / "folder"),
        lambda: files.copy(tmp_path / "a", tmp_path / "c"),
        lambda: file.write([b"more"]),
    )
    for needs_room in needing:
        with pytest.raises(DiskFailure, match="No space left") as error:
            needs_room()
        assert error.value.is_full
    assert files.free_bytes(tmp_path) == 0
    assert files.open_read(tmp_path / "a").pread(10, 0) == b"before"
    files.make_dir(tmp_path)
    files.replace(tmp_path / "a", tmp_path / "d")
    assert files.listdir(tmp_path) == ["d"]
    assert faults.listed()[0].hits == len(needing)
    faults.clear()
    assert files.free_bytes(tmp_path) > 0
    # As a file whose write has failed in earnest.
    with pytest.raises(DiskFailure):
        file.write([b"more"])
    write_file(tmp_path / "e", [b"after"], files)


def test_failed_metadata_writes_change_nothing(tmp_path: Path) -> None:
    faults, pairs = Faults(), MemoryKeyValue()
    faulty = FaultyKeyValue(faults, pairs, tmp_path)
    faulty.write({b"a": b"1"}, ())
    faults.add(Fault(kind=FAULT_KIND_DISK_FULL, next=1))
    with pytest.raises(DiskFailure) as error:
        faulty.write({b"a": b"2"}, ())
    assert not error.value.may_be_durable
    assert faulty.get(b"a") == b"1"
    assert not faults.is_disk_full
    faulty.write({}, [b"a"])
    assert faulty.scan(b"") == []


def test_deletions_may_use_the_reserve_repeatedly(tmp_path: Path) -> None:
    faults = Faults()
    files = FaultyFiles(faults)
    reserve = Reserve(tmp_path / "reserve", files)
    faults.is_reserve_lent = lambda: reserve.is_lent
    pairs = FaultyKeyValue(faults, MemoryKeyValue(), tmp_path)
    reserve.keep()
    faults.add(FULL)
    for key in (b"a", b"b"):
        assert reserve.is_there
        with pytest.raises(DiskFailure):
            pairs.write({key: b"1"}, ())
        with reserve.lent():
            pairs.write({key: b"1"}, ())
        reserve.renew()
    assert files.size(tmp_path / "reserve") == RESERVE_BYTES
