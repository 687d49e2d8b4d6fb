"""The table of a table view: how messages change it, and which listeners are called."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from ledgerfold.broker.client.core.table import Table
from ledgerfold.broker.client.messages.message import Message, ReceivedEntry
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import read_header
from ledgerfold.storage.native import NativeBatchBuilder
from tests.support.waiting import WAIT_S


def messages(*pairs: tuple[str | None, bytes | None]) -> list[Message]:
    """One batch of them."""
    builder = NativeBatchBuilder("p")
    for key, value in pairs:
        builder.add(value, None if key is None else key.encode())
    data = builder.build(sequence_id=len(pairs) - 1, publish_time_ms=1)
    entry = ReceivedEntry(read_header(data), decode(data), "t", 0)
    return [Message((entry, row)) for row in range(len(pairs))]


def listening(table: Table) -> list[tuple[str, Any]]:
    heard: list[tuple[str, Any]] = []
    table.listen(lambda key, value: heard.append((key, value)))
    return heard


@pytest.mark.parametrize(
    ("sent", "left"),
    [
        ([("a", b"1"), ("b", b"2"), ("a", b"3")], {"a": b"3", "b": b"2"}),
        ([("a", b"1"), ("a", b"")], {}),
        ([("a", b"1"), ("a", None)], {}),
        ([("a", b"1"), ("a", None), ("a", b"2")], {"a": b"2"}),
        ([("gone", None)], {}),
        ([(None, b"x"), ("a", b"1")], {"a": b"1"}),
        ([("", b"the empty key is a key")], {"": b"the empty key is a key"}),
    ],
)
def test_the_remaining_messages(
    sent: list[tuple[str | None, bytes | None]], left: dict[str, bytes]
) -> None:
    """The last value of each key; no content removes it; no key is left out (also TVW-07)."""
    table = Table(bytes)
    table.apply(messages(*sent))
    assert table.snapshot() == left
    assert len(table) == len(left)
    assert all(table.get(key) == value and key in table for key, value in left.items())
    assert table.get("never sent") is None
    assert "never sent" not in table


def test_listeners_get_removals_as_none() -> None:
    """TVW-06: keyless messages are not reported, a removal also if the key was absent."""
    table = Table(bytes.decode)
    heard = listening(table)
    table.apply(messages(("a", b"1"), (None, b"x"), ("a", b""), ("b", None)))
    assert heard == [("a", "1"), ("a", None), ("b", None)]


def test_a_failing_listener_does_not_affect_others(caplog: pytest.LogCaptureFixture) -> None:
    """It is logged; the others, and the table, get every update."""
    table = Table(bytes)

    def bad(key: str, value: object) -> None:
        raise ValueError("bad listener")

    table.listen(bad)
    heard = listening(table)
    with caplog.at_level(logging.ERROR):
        table.apply(messages(("a", b"1"), ("b", b"2")))
    assert heard == [("a", b"1"), ("b", b"2")]
    assert [str(record.exc_info[1]) for record in caplog.records if record.exc_info] == [
        "bad listener",
        "bad listener",
    ]


def test_undecodable_content_changes_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """The key keeps its value, the failure is logged with the message's id."""
    table = Table(bytes.decode)
    heard = listening(table)
    with caplog.at_level(logging.ERROR):
        table.apply(messages(("a", b"1"), ("a", b"\xff"), ("b", b"2")))
    assert table.snapshot() == {"a": "1", "b": "2"}
    assert heard == [("a", "1"), ("b", "2")]
    assert "0:0:-1:1" in caplog.text


def test_keyless_messages_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A topic full of them must not fill the log."""
    table = Table(bytes)
    with caplog.at_level(logging.WARNING):
        table.apply(messages((None, b"x"), (None, b"y")))
        table.apply(messages((None, b"z")))
    assert len(caplog.records) == 1


def test_snapshots_are_copies() -> None:
    """Changing one changes nothing else, and updates do not reach it."""
    table = Table(bytes)
    table.apply(messages(("a", b"1")))
    snapshot = table.snapshot()
    snapshot["b"] = b"mine"
    table.apply(messages(("a", b"2")))
    assert snapshot == {"a": b"1", "b": b"mine"}
    assert table.snapshot() == {"a": b"2"}


def test_a_callback_may_change_the_table_during_iteration() -> None:
    """for_each walks over a copy."""
    table = Table(bytes)
    table.apply(messages(("a", b"1"), ("b", b"2")))
    table.for_each(lambda key, _: table.apply(messages((key + "x", b"3"))))
    assert sorted(table.snapshot()) == ["a", "ax", "b", "bx"]


def test_for_each_and_listen_misses_no_update() -> None:
    """The writer never pauses: the listener gets each number once, in order, none missing."""
    table = Table(bytes)
    table.apply(messages(("n", b"0")))
    started, stop = threading.Event(), threading.Event()

    def write() -> None:
        number = 0
        while not stop.is_set():
            number += 1
            table.apply(messages(("n", b"%d" % number)))
            started.set()

    writer = threading.Thread(target=write)
    writer.start()
    started.wait(WAIT_S)
    heard: list[int] = []
    enough = threading.Event()

    def listen(key: str, value: bytes) -> None:
        heard.append(int(value))
        if len(heard) > 100:
            enough.set()

    table.for_each_and_listen(listen)
    assert enough.wait(WAIT_S)
    stop.set()
    writer.join()
    assert heard == list(range(heard[0], heard[0] + len(heard)))


def test_a_listener_may_add_a_listener() -> None:
    """The new one gets all present messages, the current update included, and that one only
    once.
    """
    table = Table(bytes)
    heard: list[tuple[str, Any]] = []

    def first(key: str, value: object) -> None:
        if not heard:
            table.for_each_and_listen(lambda key, value: heard.append((key, value)))

    table.listen(first)
    table.apply(messages(("a", b"1"), ("a", b"2")))
    assert heard == [("a", b"1"), ("a", b"2")]


def test_an_error_of_a_callback_for_present_messages_is_raised() -> None:
    """It runs in the caller's call, which then has no listener."""
    table = Table(bytes)
    table.apply(messages(("a", b"1")))
    calls: list[str] = []

    def bad(key: str, value: object) -> None:
        calls.append(key)
        raise ValueError("bad")

    with pytest.raises(ValueError, match="bad"):
        table.for_each_and_listen(bad)
    table.apply(messages(("a", b"2")))
    assert calls == ["a"]
