"""Tests which view a reader's reads see, and what is kept for it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ledgerfold.broker.log.reads import ReadResult
from ledgerfold.broker.log.view import RAW, View
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.subscriptions.route import Route
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import MissingFile


class Log:
    """A view with any horizon; raw entries exist, except those in `gone`."""

    def __init__(self, view: View) -> None:
        self.positions = self.reads = self.state = self.views = self
        self.current = view
        self.freed: list[View] = []
        self.gone: list[Position] = []
        self.read_in: list[View] = []
        self.commits: list[View] = []
        self.fails = False
        self.closed: Exception | None = None

    def is_deleted(self, position: Position) -> bool:
        return position in self.gone

    async def read(self, position: Position, *, view: View, bytes_max: int) -> ReadResult:
        """Nothing, and where a run commits in the middle of it, that run's view is there."""
        self.read_in.append(view)
        if self.commits:
            self.replace(self.commits.pop())
            if self.fails:
                raise MissingFile("1/0.log", "a test")
        return ReadResult((), position)

    def replace(self, view: View) -> None:
        old, self.current = self.current, view
        old.retire(lambda: self.freed.append(old))


FIRST, SECOND = Position(1, 9), Position(2, 9)


def test_a_reader_keeps_its_view_until_it_has_read_it() -> None:
    """Then it reads raw, and the compacted ledger may go; the raw ones not before it read on."""
    log: Any = Log(View(None, FIRST))
    route = Route(Emulation(), read_compacted=True)
    began_with = route.view(Position(0, 0), log)
    route.delivered(began_with, 3, Position(0, 5))
    log.replace(View(None, SECOND))
    assert log.freed == []
    assert route.view(Position(0, 5), log) is began_with
    assert route.held_position(Position(0, 5), SECOND) == FIRST.next
    route.delivered(began_with, 0, FIRST.next)
    assert log.freed == [began_with]
    assert route.is_raw
    assert route.view(FIRST.next, log) is RAW
    assert route.held_position(Position(2, 3), SECOND) == Position(2, 3)
    assert route.held_position(SECOND.next, SECOND) is None


def test_a_reader_without_messages_follows_every_run() -> None:
    """The reader has received no message that a run could have removed."""
    log: Any = Log(View(None, FIRST))
    route = Route(Emulation(), read_compacted=True)
    route.delivered(route.view(Position(0, 0), log), 0, FIRST.next)
    log.replace(View(None, SECOND))
    assert route.view(FIRST.next, log) is log.current
    assert route.held_position(FIRST.next, SECOND) is None


def test_a_closed_reader_releases_its_ledgers() -> None:
    """It releases the compacted ledger and the raw ones; closing twice is closing once."""
    log: Any = Log(View(None, FIRST))
    route = Route(Emulation(), read_compacted=True)
    view = route.view(Position(0, 0), log)
    route.delivered(view, 1, Position(0, 1))
    log.replace(View(None, SECOND))
    route.close()
    route.close()
    assert log.freed == [view]
    assert route.held_position(Position(0, 1), SECOND) is None


def test_a_reader_whose_raw_entries_were_deleted_reads_the_current_view() -> None:
    """It had passed the horizon, but nothing raw is left for it where it is."""
    log: Any = Log(View(None, SECOND))
    log.gone = [Position(4, 0)]
    route = Route(Emulation(), read_compacted=True, is_raw=True)
    assert route.view(Position(3, 0), log) is RAW
    assert route.view(Position(4, 0), log) is log.current


def test_without_the_profile_field_or_read_compacted_no_view_is_kept() -> None:
    """Pulsar 4 reads the newest view; readers without read-compacted read raw."""
    log: Any = Log(View(None, FIRST))
    pulsar = Route(Emulation(lagging_readers_get_tombstones=False), read_compacted=True)
    pulsar.delivered(log.current, 1, Position(0, 1))
    log.replace(View(None, SECOND))
    assert pulsar.view(Position(0, 1), log) is log.current
    plain = Route(Emulation(), read_compacted=False)
    assert plain.view(Position(0, 0), log) is RAW
    plain.delivered(RAW, 1, Position(0, 1))
    assert not plain.is_raw


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("keeps", [False, True])
def test_entries_of_a_replaced_view_are_read_again(keeps: bool, fails: bool) -> None:
    """A run that commits during a read may trim the entries being read."""
    first, second, third = (View(None, Position(1, number)) for number in (1, 2, 3))
    log: Any = Log(first)
    log.commits, log.fails = [third, second], fails
    route = Route(Emulation(lagging_readers_get_tombstones=keeps), read_compacted=True)
    routed = asyncio.run(route.read(Position(0, 0), log, bytes_max=1))
    assert log.read_in == [first, second, third]
    assert routed.view is third


def test_a_kept_view_is_readable_after_any_commit() -> None:
    first, second = (View(None, Position(1, number)) for number in (1, 2))
    log: Any = Log(first)
    route = Route(Emulation(), read_compacted=True)
    route.delivered(first, 1, Position(0, 1))
    log.commits = [second]
    assert asyncio.run(route.read(Position(0, 1), log, bytes_max=1)).view is first
    assert log.read_in == [first]


def test_a_failure_of_the_current_view_is_raised() -> None:
    log: Any = Log(View(None, FIRST))
    log.commits, log.fails = [log.current], True
    with pytest.raises(MissingFile):
        asyncio.run(Route(Emulation(), read_compacted=True).read(FIRST, log, bytes_max=1))
