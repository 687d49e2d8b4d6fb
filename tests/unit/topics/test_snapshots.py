"""Snapshots of a broker: a restore gives the saved state, wherever the machine stops."""

from __future__ import annotations

import errno
import itertools
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest

from ledgerfold.broker.topics.reset import reset
from ledgerfold.broker.topics.snapshots import BrokerSnapshots
from ledgerfold.storage.entry import EARLIEST
from ledgerfold.storage.errors import (
    Corruption,
    DiskFailure,
    InvalidRequest,
    MissingFile,
    NotAllowed,
    SnapshotExists,
    SnapshotNotFound,
)
from ledgerfold.storage.files import write_file
from ledgerfold.storage.snapshot_folder import SnapshotFolder
from ledgerfold.v1.records_pb2 import Policies
from tests.model.broker_lab import DATA, TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.lossy_files import Tail, everything, nothing
from tests.support.property_tests import stride

OTHER, KAFKA = "persistent://acme/ns/other", "persistent://acme/ns/k"
MEMORY = "non-persistent://acme/ns/m"
FOLDER = DATA / "snapshots"


def entry(value: bytes) -> tuple[list[Message], bool]:
    return [Message(b"a", value)], False


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def snapshots(lab: BrokerLab) -> BrokerSnapshots:
    return BrokerSnapshots(lab.broker)


def fill(lab: BrokerLab) -> None:
    """A compacted view, a tail behind it, a cursor, a policy, a Kafka topic."""
    lab.publish([entry(b"%d" % number) for number in range(9)])
    assert lab.compact() is not None
    lab.publish([entry(b"tail")])
    lab.consume(2, read_compacted=True)
    lab.run(lab.broker.create_topic(KAFKA, {"cleanup.policy": "compact"}))
    lab.run(lab.broker.namespaces.create("acme/ns"))
    lab.run(lab.broker.policies.update_namespace("acme/ns", Policies(message_ttl_ms=5), ()))


def change(lab: BrokerLab) -> None:
    """Deletes or changes everything that was saved."""
    lab.run(lab.broker.delete_topic(KAFKA, force=True))
    lab.run(lab.broker.policies.update_namespace("acme/ns", Policies(message_ttl_ms=7), ()))
    lab.publish([entry(b"later") for _ in range(9)])
    lab.compact()
    lab.publish([entry(b"new")], OTHER)
    lab.settle()


def state(lab: BrokerLab) -> object:
    """Returns everything that a client can see, message ids included.

    Incarnations of cursors are for the client library; each restore gives new ones.
    """
    names = lab.broker.names.listed()
    ttl_ms = lab.broker.policy_levels.of_namespace("acme/ns").message_ttl_ms
    views: tuple[str, ...] = ()
    if TOPIC in names:
        views = tuple(str(lab.read(EARLIEST, read_compacted=each)) for each in (True, False))
    cursors = lab.metadata.cursors(TOPIC)
    for cursor in cursors:
        cursor.ClearField("incarnation")
    return names, ttl_ms, views, [str(each) for each in cursors]


def check_files(lab: BrokerLab) -> None:
    """No file is left that no record names, and none is missing."""
    records = {each.ledger_id: each for each in lab.metadata.ledgers()}
    folders = {int(each) for each in lab.files.listdir(lab.store.ledgers_dir)}
    assert folders <= set(records)
    for record in records.values():
        assert lab.store.missing_of(record.ledger_id) is None


def test_a_restore_gives_the_saved_state(lab: BrokerLab) -> None:
    fill(lab)
    saved = lab.run(snapshots(lab).save("first"))
    assert (saved.topics, saved.size_bytes > 0) == (2, True)
    before = state(lab)
    highest = max(each.ledger_id for each in lab.metadata.ledgers())
    for _ in range(2):
        change(lab)
        assert state(lab) != before
        assert lab.run(snapshots(lab).restore("first")) == saved
        lab.settle()
        assert state(lab) == before
        check_files(lab)
    # Later messages get ids that were never used.
    assert lab.publish([entry(b"after")])[0].ledger_id > highest + 1
    lab.crash(everything)
    assert [str(each) for each in lab.run(snapshots(lab).listed())] == [str(saved)]
    assert not lab.report.damaged
    assert not lab.report.is_incomplete


def test_a_restore_undoes_a_reset(lab: BrokerLab) -> None:
    fill(lab)
    lab.run(snapshots(lab).save("s"))
    before = state(lab)

    async def both() -> None:
        # The files may still be being deleted.
        await reset(lab.broker)
        await BrokerSnapshots(lab.broker).restore("s")

    lab.run(both())
    lab.settle()
    assert state(lab) == before
    lab.crash(nothing)
    assert state(lab) == before


def test_a_snapshot_after_a_restore_of_an_earlier_one(lab: BrokerLab) -> None:
    """Each is complete, whichever was restored before, and after any deletions."""
    fill(lab)
    lab.run(snapshots(lab).save("a"))
    first = state(lab)
    change(lab)
    lab.run(snapshots(lab).save("b"))
    second = state(lab)
    for name, expected in (("a", first), ("b", second), ("a", first)):
        lab.run(snapshots(lab).restore(name))
        lab.settle()
        assert state(lab) == expected
    lab.run(snapshots(lab).delete("a"))
    assert state(lab) == first
    lab.run(snapshots(lab).restore("b"))
    assert state(lab) == second


Act = Callable[[BrokerSnapshots], Coroutine[Any, Any, Any]]
ACTS: dict[str, Act] = {
    "save": lambda each: each.save("new"),
    "restore": lambda each: each.restore("old"),
    "delete": lambda each: each.delete("old"),
}


@pytest.mark.parametrize("tail", [nothing, everything])
@pytest.mark.parametrize("name", ACTS)
def test_a_crash_at_each_step_keeps_a_complete_state(name: str, tail: Tail) -> None:
    """Either state is there, whole, and every snapshot that is listed can be restored."""
    found = set[str]()
    for number in itertools.count(1, stride(6)):
        lab = BrokerLab()
        fill(lab)
        lab.run(snapshots(lab).save("old"))
        old = state(lab)
        change(lab)
        now = state(lab)
        lab.files.crash_at(number)
        lab.run_until_crash(ACTS[name](snapshots(lab)))
        is_over = not lab.files.has_crashed
        lab.crash(tail)
        assert not lab.report.damaged
        assert not lab.report.is_incomplete
        store = snapshots(lab)
        store._snapshots.sweep()
        listed = [each.name for each in lab.run(store.listed())]
        after = state(lab)
        assert after in ((old, now) if name == "restore" else (now,))
        found.add(f"{listed} {after == old}")
        check_files(lab)
        for each in listed:
            lab.run(store.restore(each))
            assert state(lab) == (old if each == "old" else now)
        lab.stop()
        if is_over:
            break
    assert len(found) == 2
    assert number > 4


def test_a_failed_save_leaves_nothing_or_tells_that_it_is_there(lab: BrokerLab) -> None:
    """Links would keep the space of ledgers that are deleted later."""
    fill(lab)
    store, calls, ends = snapshots(lab), list[str](), list[bool]()

    def fail(call: str) -> None:
        if str(FOLDER) in call:
            calls.append(call)
            if len(calls) == len(ends) + 1:
                raise DiskFailure(call, "A call", OSError(errno.EIO, "why"))

    lab.files.during = fail
    while not any(ends):
        calls.clear()
        with pytest.raises(DiskFailure) as caught:
            lab.run(store.save("s"))
        ends.append("Snapshot s is saved" in caught.value.message)
        there = lab.files.listdir(FOLDER) if lab.files.exists(FOLDER) else []
        assert there == ["s"] * ends[-1]
    assert len(ends) > 4


def test_what_a_failed_save_could_not_remove_is_removed_by_a_deletion(lab: BrokerLab) -> None:
    fill(lab)
    store = snapshots(lab)
    lab.run(store.save("old"))

    def fail(call: str) -> None:
        if "new.tmp" in call and not call.startswith(("make_dir", "link")):
            raise DiskFailure(call, "A call", OSError(errno.EIO, "why"))

    lab.files.during = fail
    lab.files.make_dir(FOLDER / "new.tmp")
    with pytest.raises(DiskFailure):
        lab.run(store.save("new"))
    assert lab.files.listdir(FOLDER) == ["new.tmp", "old"]
    lab.files.during = lambda call: None
    lab.run(store.delete("old"))
    assert lab.files.listdir(FOLDER) == []


def test_a_failed_restore_leaves_no_ledger(lab: BrokerLab) -> None:
    """Its links kept the space of ledgers that no snapshot has later."""
    fill(lab)
    store, failed = snapshots(lab), set[str]()
    lab.run(store.save("s"))
    lab.run(reset(lab.broker))
    lab.settle()

    def fail(call: str) -> None:
        is_of_restore = "make_dir" in call or "link" in call or call.startswith("sync_dir")
        if str(lab.store.ledgers_dir) in call and is_of_restore and call not in failed:
            failed.add(call)
            raise DiskFailure(call, "A call", OSError(errno.EIO, "why"))

    before = state(lab)
    lab.files.during = fail
    while True:
        count = len(failed)
        with suppress(DiskFailure):
            lab.run(store.restore("s"))
        if len(failed) == count:
            break
        assert state(lab) == before
        lab.store.delete_all_files(())
        assert lab.metadata.ledgers() == []
        assert lab.files.listdir(lab.store.ledgers_dir) == []
    assert len(failed) > 4


def test_invalid_snapshot_requests_are_refused(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lab)
    store = snapshots(lab)
    for name in ("", "..", "a/b", "a.tmp", "-a", "x" * 65, "é"):
        with pytest.raises(InvalidRequest):
            lab.run(store.save(name))
    lab.run(store.save("s"))
    with pytest.raises(SnapshotExists):
        lab.run(store.save("s"))
    for act in (store.restore, store.delete):
        with pytest.raises(SnapshotNotFound):
            lab.run(act("t"))
    monkeypatch.setattr(lab.broker, "manual_clock", None)
    for call in (store.save("t"), store.restore("s"), store.delete("s"), store.listed()):
        with pytest.raises(NotAllowed, match="--allow-reset"):
            lab.run(call)


def test_a_damaged_snapshot_changes_nothing(lab: BrokerLab) -> None:
    fill(lab)
    store = snapshots(lab)
    lab.run(store.save("records"))
    lab.run(store.save("files"))
    change(lab)
    before = state(lab)
    lab.files.damage(FOLDER / "records" / "records", lambda data: data[:-1] + b"\xff")
    segment = next(each for each in lab.files.listdir(FOLDER / "files") if each.endswith(".log"))
    lab.files.remove(FOLDER / "files" / segment)
    with pytest.raises(Corruption):
        lab.run(store.restore("records"))
    with pytest.raises(MissingFile):
        lab.run(store.restore("files"))
    assert state(lab) == before


@pytest.mark.parametrize("damage", ["file", "folder", "size", "label"])
def test_lost_files_of_a_ledger_are_restored(lab: BrokerLab, damage: str) -> None:
    """Its record is still the same; the damage that a start has found is forgotten."""
    fill(lab)
    store = snapshots(lab)
    lab.run(store.save("s"))
    before = state(lab)
    ledger = next(each for each in lab.metadata.ledgers() if each.segments)
    folder = lab.store.ledgers_dir / str(ledger.ledger_id)
    path = lab.store.ledgers_dir / ledger.segments[0].path

    def lose() -> None:
        if damage == "folder":
            lab.files.remove_dir(folder)
        else:
            lab.files.remove(folder / "label" if damage == "label" else path)
        if damage == "size":
            write_file(path, [b"damaged"], lab.files)

    lab.crash(everything, lose)
    assert bool(lab.report.damaged) == (damage != "label")
    lab.run(snapshots(lab).restore("s"))
    assert state(lab) == before
    assert lab.files.exists(folder / "label")
    lab.run(snapshots(lab).save("again"))
    lab.crash(nothing)
    assert not lab.report.damaged
    assert state(lab) == before


def test_all_topics_are_loaded_after_a_restore(lab: BrokerLab) -> None:
    """Or nothing would expire, trim or compact those that were deleted before."""
    fill(lab)
    store = snapshots(lab)
    lab.run(store.save("s"))
    lab.run(reset(lab.broker))
    lab.settle()
    assert not lab.broker.topics
    lab.run(store.restore("s"))
    lab.settle()
    assert (*lab.broker.topics, *lab.broker.kafka_topics) == (TOPIC, KAFKA)


def test_a_restore_empties_a_full_disk_with_the_reserve(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab.store.reserve.keep()
    fill(lab)
    store = snapshots(lab)
    lab.run(store.save("s"))
    before = state(lab)
    change(lab)
    change_records = lab.metadata.change

    def with_room(edit: Any) -> None:
        if not lab.store.reserve.is_lent:
            raise DiskFailure("metadata", "A metadata write", OSError(28, "full"))
        change_records(edit)

    with monkeypatch.context() as patched:
        patched.setattr(lab.metadata, "change", with_room)
        lab.run(store.restore("s"))
    assert state(lab) == before
    lab.settle()
    check_files(lab)
    assert lab.store.reserve.is_there


def test_a_snapshot_fails_with_the_error_of_an_unclosed_ledger(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room again: the next save loads the topics, to close their ledgers."""
    fill(lab)
    for name in (OTHER, f"{OTHER}-2"):
        lab.publish([entry(b"1")], name)

    def full(*_: object) -> None:
        raise DiskFailure("metadata", "A metadata write", OSError(28, "full"))

    with monkeypatch.context() as patched:
        for name in ("write", "change"):
            patched.setattr(lab.metadata, name, full)
        with pytest.raises(DiskFailure, match="A metadata write"):
            lab.run(snapshots(lab).save("s"))
    # Not all topics are loaded again yet.
    assert len(lab.broker.topics) < 3
    lab.run(snapshots(lab).save("s"))


def test_topics_are_loaded_again(lab: BrokerLab) -> None:
    """Otherwise nothing would clean or trim those that no client uses."""
    fill(lab)
    store = snapshots(lab)
    lab.run(store.save("s"))
    lab.settle()
    assert (*lab.broker.topics, *lab.broker.kafka_topics) == (TOPIC, KAFKA)
    lab.run(lab.broker.delete_topic(KAFKA, force=True))
    lab.publish([entry(b"new")], OTHER)
    lab.run(store.restore("s"))
    lab.settle()
    assert (*lab.broker.topics, *lab.broker.kafka_topics) == (TOPIC, KAFKA)


def test_a_restore_ends_non_persistent_topics(lab: BrokerLab) -> None:
    """A save is nothing to them; one that begins meanwhile ends, too."""
    fill(lab)
    store, topics = snapshots(lab), lab.broker.non_persistent
    topics.create(MEMORY)
    lab.run(store.save("s"))
    assert topics.get(MEMORY) is not None
    change_records = lab.metadata.change

    def meanwhile(edit: Any) -> None:
        topics.create(MEMORY + "2")
        change_records(edit)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lab.metadata, "change", meanwhile)
        lab.run(store.restore("s"))
    assert topics.listed() == []


def test_damaged_data_are_not_saved(lab: BrokerLab) -> None:
    """A restore would refuse it."""
    fill(lab)
    segment = lab.metadata.ledgers()[0].segments[0]
    lab.files.damage(lab.store.ledgers_dir / segment.path, lambda data: data[:-1])
    with pytest.raises(MissingFile):
        lab.run(snapshots(lab).save("s"))
    assert lab.files.listdir(FOLDER) == []


def test_a_damaged_snapshot_does_not_hide_others(lab: BrokerLab) -> None:
    fill(lab)
    store = snapshots(lab)
    for name in ("damaged", "emptied", "whole"):
        lab.run(store.save(name))
    lab.files.damage(FOLDER / "damaged" / "records", lambda data: data[:-1] + b"\xff")
    lab.files.remove(FOLDER / "emptied" / "records")
    assert [each.name for each in lab.run(store.listed())] == ["whole"]


def test_files_that_cannot_be_removed_do_not_prevent_a_start(
    lab: BrokerLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lab)
    lab.run(snapshots(lab).save("s"))
    lab.files.replace(FOLDER / "s", FOLDER / "s.tmp")

    def fails(path: object) -> None:
        raise DiskFailure(str(path), "A removal", OSError(5, "broken"))

    monkeypatch.setattr(lab.files, "remove_dir", fails)
    SnapshotFolder(DATA, lab.files).sweep()
