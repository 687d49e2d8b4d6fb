"""A store between threads: topics side by side, each by one thread at a time; others read all."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgerfold.storage.entry import LATEST, Position
from ledgerfold.storage.errors import DiskFailure, MissingFile
from ledgerfold.storage.files import Files
from ledgerfold.storage.key_value import KeyValueStore, MemoryKeyValue
from ledgerfold.storage.ledger import LedgerStore, StoreSettings
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.open_files import ReadFile
from ledgerfold.storage.writer import LedgerWriter
from tests.support.ledgers import append, deleted_but_open
from tests.support.property_tests import examples
from tests.support.waiting import WAIT_S

TOPICS, TURNS = 6, 40


class Gate:
    """Stops the first caller, once, until it is opened."""

    def __init__(self) -> None:
        self.is_armed = False
        self.is_reached, self.may_go_on = threading.Event(), threading.Event()

    def arm(self) -> None:
        self.is_armed = True

    def pass_through(self) -> None:
        if self.is_armed:
            self.is_armed = False
            self.is_reached.set()
            assert self.may_go_on.wait(WAIT_S)

    @contextmanager
    def held(self, call: Callable[[], object]) -> Iterator[None]:
        """Holds `call` at the gate on a separate thread within the block; afterwards it has
        ended.
        """
        self.arm()
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(call)
            assert self.is_reached.wait(WAIT_S)
            try:
                yield
            finally:
                self.may_go_on.set()
            done.result(WAIT_S)


class GatedFiles(Files):
    """A gate behind each opening and before each removal of a folder; removals of `stuck` fail."""

    def __init__(self) -> None:
        super().__init__()
        self.opened, self.removal = Gate(), Gate()
        self.stuck: set[str] = set()

    def open_read(self, path: Path) -> ReadFile:
        file = super().open_read(path)
        self.opened.pass_through()
        return file

    def remove_dir(self, path: Path) -> None:
        self.removal.pass_through()
        if path.name in self.stuck:
            raise DiskFailure(str(path), "A removal", OSError(errno.EBUSY, "busy"))
        super().remove_dir(path)


class GatedKeyValue(MemoryKeyValue):
    """A gate before each read."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = Gate()

    def get(self, key: bytes) -> bytes | None:
        self.gate.pass_through()
        return super().get(key)


class Opened:
    """A store on a fresh directory."""

    def __init__(self, path: Path, pairs: KeyValueStore | None = None) -> None:
        self.metadata = MetadataStore(pairs or MemoryKeyValue())
        self.files = GatedFiles()
        settings = StoreSettings(durability="os", segment_bytes_max=1000)
        self.store = LedgerStore(
            path, self.metadata, files=self.files, settings=settings, clock_ms=lambda: 1
        )

    def ledger(self, topic: str = "t") -> LedgerWriter:
        with self.metadata.batch() as batch:
            writer = self.store.create_ledger(topic, batch)
        append(writer)
        writer.flush()
        return writer

    def closed_id(self) -> int:
        return self.ledger().close().ledger_id

    def read(self, ledger_id: int) -> int:
        """Reads all its entries. Returns their number."""
        reader = self.store.open_reader(ledger_id)
        return len(reader.read(Position(ledger_id, 0), bytes_max=2**20, end=LATEST))

    def delete(self, ledger_id: int) -> None:
        with self.metadata.batch() as batch:
            self.store.mark_deleting(ledger_id, batch)
        self.store.delete_files(ledger_id)


@pytest.fixture
def opened(tmp_path: Path) -> Opened:
    return Opened(tmp_path)


def test_no_reader_waits_for_a_file_that_another_thread_opens(opened: Opened) -> None:
    """The disk may take its time: meanwhile other ledgers are read, and the same one, too."""
    first, second = opened.closed_id(), opened.closed_id()
    with opened.files.opened.held(lambda: opened.read(first)):
        assert opened.read(second) == 1
        assert opened.read(first) == 1


def test_no_reader_waits_for_a_record_that_another_thread_reads(tmp_path: Path) -> None:
    pairs = GatedKeyValue()
    opened = Opened(tmp_path, pairs)
    first, second = opened.closed_id(), opened.closed_id()
    with pairs.gate.held(lambda: opened.store.open_reader(first)):
        assert opened.read(second) == 1


def test_files_opened_during_their_deletion_are_not_kept(opened: Opened) -> None:
    """An open file's bytes would stay on the disk. A reader that has opened it may read it to its
    end.
    """
    ledger_id = opened.closed_id()
    with opened.files.opened.held(lambda: opened.read(ledger_id)):
        opened.delete(ledger_id)
    assert deleted_but_open(opened.store.ledgers_dir) == []
    with pytest.raises(MissingFile):
        opened.read(ledger_id)


def test_a_ledger_is_known_until_its_files_are_gone(opened: Opened) -> None:
    """Values looked up meanwhile are not cached."""
    ledger_id = opened.closed_id()
    with opened.files.removal.held(lambda: opened.delete(ledger_id)):
        assert opened.read(ledger_id) == 1
    assert deleted_but_open(opened.store.ledgers_dir) == []
    with pytest.raises(MissingFile):
        opened.store.open_reader(ledger_id)


def test_a_failed_removal_is_repeated(opened: Opened) -> None:
    """Two removals run concurrently: neither takes the other's work nor forgets its remains."""
    slow, stuck = opened.closed_id(), opened.closed_id()
    opened.files.stuck = {str(stuck)}
    with opened.files.removal.held(lambda: opened.delete(slow)):
        with pytest.raises(DiskFailure):
            opened.delete(stuck)
        assert opened.store.ledger_dir(slow).exists()
    opened.files.stuck.clear()
    opened.store.delete_files(opened.closed_id())
    assert not opened.store.ledger_dir(stuck).exists()


def test_damaged_ids_may_be_listed_while_ledgers_are_deleted(opened: Opened) -> None:
    ledger_ids = [opened.closed_id() for _ in range(2)]
    for ledger_id in ledger_ids:
        opened.store.ledger_dir(ledger_id).joinpath("0" * 20 + ".log").unlink()
    opened.store.recover()
    damaged = iter(opened.store.damaged_ids())
    assert next(damaged) == ledger_ids[0]
    opened.delete(ledger_ids[0])
    assert list(damaged) == ledger_ids[1:]
    assert list(opened.store.damaged_ids()) == ledger_ids[1:]


@pytest.mark.usefixtures("hasty_threads")
def test_topics_are_used_concurrently(opened: Opened) -> None:
    """Each creates ledgers, loses some writers, and deletes; others read all ledgers."""
    is_over, known = threading.Event(), dict[int, int]()
    topics = {f"t{topic}" for topic in range(TOPICS)}

    def live(topic: int) -> None:
        chance = random.Random(topic)
        held: list[int] = []
        for _ in range(examples(TURNS)):
            writer = opened.ledger(f"t{topic}")
            known[writer.ledger_id] = 1
            held.append(writer.ledger_id)
            if chance.random() < 0.5:
                writer.close()
            else:
                append(writer)
                opened.store.recover_ledgers(held)
            assert opened.read(writer.ledger_id) == 1
            assert opened.store.record(writer.ledger_id).closed_ms
            if len(held) > 3:
                gone = held.pop(chance.randrange(len(held)))
                del known[gone]
                opened.delete(gone)
                with pytest.raises(MissingFile):
                    opened.store.record(gone)
        for ledger_id in held:
            del known[ledger_id]
            opened.delete(ledger_id)

    def look() -> None:
        chance = random.Random()
        while not is_over.is_set():
            ledger_ids = list(known) or [0]
            ledger_id = chance.choice(ledger_ids)
            try:
                assert opened.read(ledger_id) == 1
            except MissingFile:
                assert ledger_id not in known
            assert opened.store.damage_of(ledger_id) is None
            assert {each.topic for each in opened.metadata.ledgers()} <= topics

    with ThreadPoolExecutor(TOPICS + 2) as pool:
        looking = [pool.submit(look) for _ in range(2)]
        living = [pool.submit(live, topic) for topic in range(TOPICS)]
        try:
            for each in living:
                each.result()
        finally:
            is_over.set()
        for each in looking:
            each.result()
    assert opened.metadata.ledgers() == []
    assert os.listdir(opened.store.ledgers_dir) == []
    assert deleted_but_open(opened.store.ledgers_dir) == []
    assert not opened.store._writers
    assert len(opened.store._readers) == len(opened.store._open_files) == 0


@pytest.mark.usefixtures("hasty_threads")
def test_no_ledger_id_is_assigned_twice(opened: Opened) -> None:
    with ThreadPoolExecutor(TOPICS) as pool:
        blocks = pool.map(
            lambda _: [opened.metadata.allocate_ledger_id() for _ in range(200)], range(TOPICS)
        )
        ids = [each for block in blocks for each in block]
    assert sorted(ids) == list(range(1, TOPICS * 200 + 1))
