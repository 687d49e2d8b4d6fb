"""Tests the arguments of a send: each invalid one is rejected with a sentence."""

from __future__ import annotations

from typing import Any

import pytest

from ledgerfold.broker.client.messages.new_message import checked_message
from ledgerfold.storage.errors import InvalidRequest


def message(**arguments: Any) -> None:
    """With the rest of the arguments left out."""
    names = (
        "content",
        "properties",
        "partition_key",
        "ordering_key",
        "sequence_id",
        "event_timestamp",
    )
    checked_message(**{name: arguments.get(name) for name in names})


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
        ({"event_timestamp": 2**63}, "event_timestamp 9223372036854775808 is not an integer"),
    ],
)
def test_invalid_messages_are_rejected(arguments: dict[str, Any], sentence: str) -> None:
    """Nothing but InvalidRequest, and its sentence names the argument."""
    with pytest.raises(InvalidRequest, match=sentence):
        message(**arguments)


def test_a_key_that_is_no_text_keeps_its_bytes() -> None:
    """As in Python's file names, each byte that is not UTF-8 is a surrogate."""
    made = checked_message(b"", None, "c\udcff", None, None, None)
    assert made.key == b"c\xff"
