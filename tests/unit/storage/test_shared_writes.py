"""Group writes: threads that write at the same time share syncs and metadata writes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ledgerfold.storage.errors import DiskFailure
from ledgerfold.storage.files import Files
from ledgerfold.storage.key_value import MemoryKeyValue
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.shared_sync import SharedSync
from ledgerfold.v1.records_pb2 import TopicRecord
from tests.support.waiting import WAIT_S, wait_until

THREADS = 5


class Held:
    """The first call waits; those numbered in `failing` fail."""

    def __init__(self) -> None:
        self.calls = 0
        self.failing: set[int] = set()
        self.is_reached, self.may_go_on = threading.Event(), threading.Event()

    def pass_through(self) -> None:
        self.calls += 1
        number = self.calls
        if number == 1:
            self.is_reached.set()
            assert self.may_go_on.wait(WAIT_S)
        if number in self.failing:
            raise DiskFailure("/disk", "A write", OSError(5, "broken"))


class HeldKeyValue(MemoryKeyValue):
    def __init__(self, held: Held) -> None:
        super().__init__()
        self._held = held

    def write(self, puts: Mapping[bytes, bytes], deletes: Iterable[bytes]) -> None:
        self._held.pass_through()
        super().write(puts, deletes)


class HeldFiles(Files):
    def __init__(self, held: Held) -> None:
        super().__init__()
        self._held = held

    def sync_dir(self, path: Path) -> None:
        self._held.pass_through()


@pytest.fixture
def held() -> Held:
    return Held()


@contextmanager
def during_the_first(
    held: Held,
    first: Callable[[], None],
    works: Iterable[Callable[[], None]],
    waits: Callable[[], bool],
) -> Iterator[list[Future[None]]]:
    """Yields the outcomes of `works`, all of which waited for `first`."""
    with ThreadPoolExecutor(THREADS + 1) as pool:
        begun = pool.submit(first)
        assert held.is_reached.wait(WAIT_S)
        done = [pool.submit(work) for work in works]
        try:
            wait_until(waits, "all threads wait")
        finally:
            held.may_go_on.set()
        begun.result(WAIT_S)
        yield done


def test_waiting_batches_become_one_write(held: Held) -> None:
    """In order of arrival: a later one deletes an earlier one's value."""
    metadata = MetadataStore(HeldKeyValue(held))

    def write(name: str) -> None:
        with metadata.batch() as batch:
            batch.put(TopicRecord(name=name))

    names = [f"t{number}" for number in range(THREADS)]
    works = [lambda name=name: write(name) for name in names]
    waits = lambda: len(metadata._queued) == THREADS  # noqa: E731
    with during_the_first(held, lambda: write("first"), works, waits) as done:
        for each in done:
            each.result(WAIT_S)
    assert held.calls == metadata.writes == 2
    assert sorted(each.name for each in metadata.topics()) == ["first", *names]


def test_a_failed_write_fails_for_all_that_share_it(held: Held) -> None:
    """Not for the one before, nor for the next one."""
    metadata = MetadataStore(HeldKeyValue(held))
    held.failing = {2}

    def write(name: str) -> None:
        with metadata.batch() as batch:
            batch.put(TopicRecord(name=name))

    works = [lambda name=str(number): write(name) for number in range(THREADS)]
    waits = lambda: len(metadata._queued) == THREADS  # noqa: E731
    with during_the_first(held, lambda: write("first"), works, waits) as done:
        assert all(isinstance(each.exception(WAIT_S), DiskFailure) for each in done)
    assert [each.name for each in metadata.topics()] == ["first"]
    write("next")
    assert (held.calls, metadata.writes) == (3, 2)


def test_a_later_batch_overrides_an_earlier_one() -> None:
    """In one write as in two."""
    metadata = MetadataStore(MemoryKeyValue())
    with metadata.batch() as batch:
        batch.put(TopicRecord(name="deleted"))
        batch.delete_topic("put again")
        later = metadata.begin()
        later.delete_topic("deleted")
        later.put(TopicRecord(name="put again"))
        batch.follow_with(later)
    assert [each.name for each in metadata.topics()] == ["put again"]


def test_waiting_callers_share_one_sync(held: Held) -> None:
    """Not the one that runs: it may have begun before their folders were there."""
    shared = SharedSync(Path("/disk"), HeldFiles(held))
    waiting = Counted(shared)
    with during_the_first(
        held, shared.sync, [waiting.sync] * THREADS, lambda: waiting.count > THREADS
    ) as done:
        for each in done:
            each.result(WAIT_S)
    # One that came when the second had begun needs a third; they all waited for the first.
    assert held.calls == 2
    shared.sync()
    assert held.calls == 3


def test_a_failed_sync_fails_for_all_that_wait(held: Held) -> None:
    """A second one would succeed although the first lost data."""
    shared = SharedSync(Path("/disk"), HeldFiles(held))
    held.failing = {2}
    waiting = Counted(shared)
    with during_the_first(
        held, shared.sync, [waiting.sync] * THREADS, lambda: waiting.count > THREADS
    ) as done:
        assert all(isinstance(each.exception(WAIT_S), DiskFailure) for each in done)
    shared.sync()
    assert held.calls == 3


class Counted:
    """Counts the callers that have reached the lock."""

    def __init__(self, shared: SharedSync) -> None:
        self._shared, self._lock = shared, shared._lock
        self.count = 0
        self._counting = threading.Lock()
        shared._lock = self  # type: ignore[assignment]

    def sync(self) -> None:
        self._shared.sync()

    def __enter__(self) -> None:
        with self._counting:
            self.count += 1
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()
