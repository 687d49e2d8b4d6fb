"""A message of a run tells the same as one whose entry was decoded alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ledgerfold.broker.client.messages.message import Message, ReceivedEntry, ReceivedRun
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import (
    EntryFields,
    build_entry,
    read_header,
    stamp,
)
from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.plain_entries import PlainRows, plain_rows

TOPIC = "persistent://public/default/t"
TELLS: list[Callable[[Message], Any]] = [
    Message.data,
    Message.value,
    Message.has_null_value,
    Message.is_tombstone,
    Message.message_id,
    Message.offset,
    Message.has_key,
    Message.partition_key,
    Message.key_bytes,
    Message.ordering_key,
    Message.properties,
    Message.event_timestamp,
    Message.publish_timestamp,
    Message.append_timestamp,
    Message.producer_name,
    Message.sequence_id,
    Message.topic_name,
    Message.redelivery_count,
    Message.schema_version,
    repr,
]


def entries() -> list[bytes]:
    """From two producers, of all forms that a run has."""
    messages: list[dict[str, Any]] = [
        {"value": b"v", "key": b"k"},
        {"value": None, "key": b"k"},
        {"value": b"", "key": "k\udcff".encode(errors="surrogateescape")},
        {"value": b"v", "key": None},
        {"value": b"v", "key": b"aw==", "key_is_base64": True},
        {"value": b"v", "key": b"k", "properties": {"a": "b"}},
    ]
    built = []
    for number, message in enumerate(messages):
        builder = NativeBatchBuilder(f"p{number % 2}", schema_version=b"s")
        builder.add(message.pop("value"), message.pop("key"), **message)
        entry = builder.build(sequence_id=10 + number, publish_time_ms=20 + number, plain=True)
        built.append(stamp(entry, 7, 3 * number, 30 + number, 1))
    return built


def run_of(stored: list[bytes]) -> ReceivedRun:
    (rows,) = plain_rows(stored, 100)
    assert isinstance(rows, PlainRows)
    return ReceivedRun(rows, TOPIC, 2)


@pytest.mark.parametrize("tells", TELLS, ids=[each.__name__ for each in TELLS])
def test_each_message_has_the_fields_of_its_own_entry(tells: Callable[[Message], Any]) -> None:
    """In any order: a run remembers only the entry that was decoded last."""
    stored = entries()
    run = run_of(stored)
    for row in (5, 0, 1, 2, 3, 4, 4, 0):
        header = read_header(stored[row])
        alone = ReceivedEntry(header, decode(stored[row], header), TOPIC, 0, 2)
        assert tells(Message((run, row))) == tells(Message((alone, 0)))


def test_undecodable_fields_are_damage_of_their_own_entry() -> None:
    """Key and content of the message can be read; the error names the entry."""
    good = entries()[0]
    header = read_header(good)
    keys = good[header.header_bytes : header.header_bytes + header.key_bytes]
    values = good[header.header_bytes + header.key_bytes :] + b"\x52\x7f"
    fields = EntryFields(message_count=1, flags=header.flags)
    run = run_of([good, stamp(build_entry(keys, values, fields), 7, 9, 1, 1)])
    message = Message((run, 1))
    assert (message.partition_key(), message.data()) == ("k", b"v")
    with pytest.raises(Corruption, match="entry 7:9 of"):
        message.properties()
