"""Tests the arguments of a send: each invalid one is rejected with a sentence."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from ledgerfold.broker.client.messages.new_message import NewMessage, checked_message
from ledgerfold.storage.errors import InvalidRequest, NotAllowed


def message(**arguments: Any) -> NewMessage:
    """With the rest of the arguments left out."""
    names = (
        "content",
        "properties",
        "partition_key",
        "ordering_key",
        "sequence_id",
        "replication_clusters",
        "disable_replication",
        "event_timestamp",
        "deliver_at",
        "deliver_after",
    )
    return checked_message(**{name: arguments.get(name) for name in names}, clock_ms=lambda: 1_000)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"content": "text"}, "The content must be bytes or None, not str"),
        ({"partition_key": 5}, "partition_key must be a string or bytes, not int"),
        ({"partition_key": "\ud800"}, r"partition_key '\\ud800' cannot be encoded as UTF-8"),
        ({"ordering_key": "\ud800"}, r"ordering_key '\\ud800' cannot be encoded as UTF-8"),
        ({"properties": [1]}, "Properties must be a dict of strings, not list"),
        ({"properties": {"a": 1}}, "Property 'a': names and values must be strings"),
        ({"properties": {"\ud800": "a"}}, "names and values must be strings"),
        ({"sequence_id": -1}, "sequence_id -1 is not an integer"),
        ({"deliver_at": -1}, "deliver_at -1 is not an integer from 0"),
        ({"deliver_at": "x"}, "deliver_at 'x' is not an integer"),
        ({"deliver_after": 5}, "deliver_after must be a timedelta, not 5"),
        ({"disable_replication": "x"}, "disable_replication must be True or False, not 'x'"),
        ({"event_timestamp": 2**63}, "event_timestamp 9223372036854775808 is not an integer"),
    ],
)
def test_invalid_messages_are_rejected(arguments: dict[str, Any], sentence: str) -> None:
    """Nothing but InvalidRequest, and its sentence names the argument."""
    with pytest.raises(InvalidRequest, match=sentence):
        message(**arguments)


def test_replication_clusters_are_rejected() -> None:
    with pytest.raises(NotAllowed, match="replication_clusters="):
        message(content=b"", replication_clusters=["us-west"])
    for disabled in (None, False, True):
        made = message(content=b"", replication_clusters=[], disable_replication=disabled)
        assert made == message(content=b"")


def test_a_key_that_is_not_text_keeps_its_bytes() -> None:
    """As in Python's file names, each byte that is not UTF-8 is a surrogate."""
    made = message(content=b"", partition_key="c\udcff")
    assert made.key == b"c\xff"


def test_the_time_of_delivery() -> None:
    """A delay counts from the producer's clock, which is 1,000 here; without one, delivery is
    immediate.
    """
    second = timedelta(seconds=1)
    assert message(deliver_at=7).deliver_at_ms == 7
    assert message(deliver_after=second).deliver_at_ms == 2_000
    assert message(deliver_at=7, deliver_after=second).deliver_at_ms == 2_000
    assert message(deliver_after=-second).deliver_at_ms == 0
    assert message().deliver_at_ms == 0
