"""Message ids: identity, order, text, bytes."""

from __future__ import annotations

import pytest

from ledgerfold.broker.client import MessageId
from ledgerfold.storage.errors import InvalidRequest


def test_ids_are_ordered_by_ledger_entry_and_batch_index() -> None:
    """Ids sort as their messages were published."""
    published = [
        MessageId.earliest,
        MessageId(-1, 1, 5, 0),
        MessageId(-1, 1, 5, 1),
        MessageId(-1, 1, 6),
        MessageId(-1, 2, 0),
        MessageId.latest,
    ]
    shuffled = [published[place] for place in (3, 0, 5, 1, 4, 2)]
    assert sorted(shuffled) == published
    assert len(set(published)) == 6


def test_the_text_has_ledger_entry_partition_and_batch_index() -> None:
    """The text is that of Pulsar's tools."""
    assert str(MessageId(-1, 12, 3, 7)) == "12:3:-1:7"


def test_an_id_is_restored_from_its_bytes() -> None:
    """A stored id is good for a later session."""
    for message_id in (MessageId.earliest, MessageId.latest, MessageId(-1, 12, 3, 7)):
        assert MessageId.deserialize(message_id.serialize()) == message_id


def test_invalid_bytes_are_refused() -> None:
    """An invalid id raises an error that says so."""
    with pytest.raises(InvalidRequest):
        MessageId.deserialize(b"\xff\xff")


@pytest.mark.parametrize("part", [2**70, 2**63, 1.5, "1"])
def test_an_id_with_parts_that_are_not_numbers_is_refused(part: object) -> None:
    """One that was made by hand, once it is to be used."""
    message_id = MessageId(-1, part)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequest, match="not a valid message id"):
        message_id.serialize()
