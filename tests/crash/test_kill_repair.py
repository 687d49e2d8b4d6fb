"""Damage of each byte, and a repair that is killed at each call.

One topic: two raw ledgers before a horizon, a compacted one, one open raw ledger, and a
subscription that retains them all. After each damage: verify finds it, repair leaves nothing for
verify to find, and a broker starts and reads everything that was good.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.repair_manifest import COMPLETE, read_manifest
from ledgerfold.storage.segment import scan_headers
from ledgerfold.v1.data_pb2 import StartPosition
from tests.model.broker_lab import DATA, BrokerLab
from tests.model.log_model import Message
from tests.support.lossy_files import CountedKeyValue, Crash, LossyFiles
from tests.support.offline import LEDGERS, Offline, Snapshot, started, taken

RAW_MESSAGES, COMPACTED_MESSAGES = 16, 4


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    lab = BrokerLab()
    lab.run(create_subscription(lab.topic, "s", StartPosition(earliest=True)))
    for first in range(0, RAW_MESSAGES, 8):
        lab.publish(
            [([Message(b"%d" % (n % 4), b"v%d" % n)], False) for n in range(first, first + 8)]
        )
        if first == 0:
            lab.compact()
    # As kill -9 leaves it: nothing is closed.
    lab._drop()
    return taken(lab.files, lab._pairs)


def read_all(files: LossyFiles, pairs: CountedKeyValue) -> tuple[set[Position], int]:
    """Returns the positions of the raw messages, and the number in the compacted view."""
    lab = started(files, pairs)
    try:
        assert lab.report.damaged == {}
        raw = {each.position for each in lab.read(EARLIEST, read_compacted=False)}
        return raw, len(lab.read(EARLIEST, read_compacted=True))
    finally:
        lab.stop()


def positions_of(snapshot: Snapshot) -> dict[Position, tuple[Path, int, int]]:
    """Returns the positions of the raw entries: file, first byte, end."""
    found = {}
    compacted = compacted_folder(snapshot)
    for path, content in snapshot.contents.items():
        if path.suffix == ".log" and path.parent != compacted:
            for header, offset in scan_headers(content, str(path), len(content)):
                found[header.position] = (path, offset, offset + header.size_bytes)
    return found


def compacted_folder(snapshot: Snapshot) -> Path:
    files, pairs = snapshot.disk()
    (topic,) = Offline(DATA, pairs, files).survey().topics().values()
    return LEDGERS / str(topic.compacted.ledger_id)


def test_verify_finds_nothing_in_an_intact_directory(snapshot: Snapshot) -> None:
    """Without damage, verify finds nothing and repair has nothing to do."""
    files, pairs = snapshot.disk()
    offline = Offline(DATA, pairs, files)
    assert offline.findings() == []
    before = len(files.calls)
    assert offline.repair().steps == []
    assert len(files.calls) == before
    raw, compacted = read_all(files, pairs)
    assert (len(raw), compacted) == (RAW_MESSAGES, COMPACTED_MESSAGES + RAW_MESSAGES - 8)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_every_flipped_byte_is_found_and_repaired(snapshot: Snapshot) -> None:
    """Only the entry that contains the byte is lost. (Every eleventh is repaired.)"""
    places = positions_of(snapshot)
    for path, content in snapshot.ledger_files().items():
        files, pairs = snapshot.disk()
        for at in range(len(content)):
            files.damage(path, partial(flipped, at=at))
            assert Offline(DATA, pairs, files).findings(), (path, at)
            files.damage(path, partial(flipped, at=at))
        for at in range(0, len(content), 11):
            files, pairs = snapshot.disk()
            files.damage(path, partial(flipped, at=at))
            offline = Offline(DATA, pairs, files)
            offline.repair()
            assert offline.damage() == [], (path, at)
            is_hit = {
                position: each == path and low <= at < high
                for position, (each, low, high) in places.items()
            }
            raw, _ = read_all(files, pairs)
            assert raw == {each for each in places if not is_hit[each]}, (path, at)


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]


Harm = Callable[[Snapshot, LossyFiles], None]


def harm_raw(snapshot: Snapshot, files: LossyFiles) -> None:
    """Damages the second entry of each raw file, and the first of one."""
    folder = compacted_folder(snapshot)
    for number, (path, content) in enumerate(sorted(snapshot.contents.items())):
        if path.parent != folder:
            size = len(content) // 2 if number else 4
            files.damage(path, partial(flipped, at=size))


def harm_compacted(snapshot: Snapshot, files: LossyFiles) -> None:
    folder = compacted_folder(snapshot)
    for name in files.listdir(folder):
        files.damage(folder / name, lambda data: flipped(data, len(data) // 2))


def lose_a_file(snapshot: Snapshot, files: LossyFiles) -> None:
    """Deletes the file of the first raw segment."""
    files.remove(min(snapshot.contents))


def lose_folders(snapshot: Snapshot, files: LossyFiles) -> None:
    """Deletes the folders of the compacted ledger and of the first raw one."""
    files.remove_dir(compacted_folder(snapshot))
    files.remove_dir(min(snapshot.contents).parent)


HARMS: list[Harm] = [harm_raw, harm_compacted, lose_a_file, lose_folders]


@pytest.fixture(params=HARMS, ids=lambda harm: harm.__name__)
def harmed(request: pytest.FixtureRequest, snapshot: Snapshot) -> Snapshot:
    files, pairs = snapshot.disk()
    request.param(snapshot, files)
    return taken(files, pairs)


def test_the_next_repair_completes_a_killed_one(harmed: Snapshot) -> None:
    """After each call; the records, and what a broker reads, equal those of an uninterrupted
    repair.
    """
    files, pairs = harmed.disk()
    before = len(files.calls)
    plan = Offline(DATA, pairs, files).repair()
    calls = len(files.calls) - before
    assert plan.steps
    wanted = (pairs.scan(b"ledger/"), pairs.scan(b"topic/"), read_all(files, pairs))
    for number in range(1, calls + 1):
        files, pairs = harmed.disk()
        offline = Offline(DATA, pairs, files)
        files.crash_at(number)
        with pytest.raises(Crash):
            offline.repair()
        files.crash()
        offline.repair()
        assert offline.damage() == [], number
        found = (pairs.scan(b"ledger/"), pairs.scan(b"topic/"), read_all(files, pairs))
        assert found == wanted, number
        assert not offline.unfinished()


def test_changed_files_are_backed_up(harmed: Snapshot) -> None:
    """The repair's folder has each damaged file that exists, byte for byte."""
    files, pairs = harmed.disk()
    plan = Offline(DATA, pairs, files).repair()
    (name,) = files.listdir(DATA / "repairs")
    folder = DATA / "repairs" / name
    assert read_manifest(folder, files)["state"] == COMPLETE
    assert read_manifest(folder, files)["copies"] == sorted(plan.copies)
    for copied in plan.copies:
        kept = files.open_read(folder / "ledgers" / copied).pread(1 << 20, 0)
        assert kept == harmed.contents[LEDGERS / copied]
    for path, content in harmed.ledger_files().items():
        is_same = files.exists(path) and files.open_read(path).pread(1 << 20, 0) == content
        assert is_same or str(path.relative_to(LEDGERS)) in plan.copies


def test_a_start_between_two_repairs_does_no_harm(harmed: Snapshot) -> None:
    """The broker is started, by mistake, after a killed repair; then the repair is repeated."""
    files, pairs = harmed.disk()
    before = len(files.calls)
    Offline(DATA, pairs, files).repair()
    calls = len(files.calls) - before
    wanted = read_all(files, pairs)
    for number in range(1, calls + 1):
        files, pairs = harmed.disk()
        files.crash_at(number)
        with pytest.raises(Crash):
            Offline(DATA, pairs, files).repair()
        files.crash()
        started(files, pairs)._drop()
        Offline(DATA, pairs, files).repair()
        assert read_all(files, pairs) == wanted, number
