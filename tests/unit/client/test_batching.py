"""Tests how messages become entries, and that the fast path and the general one agree."""

from __future__ import annotations

from ledgerfold.broker.client.messages.new_message import NewMessage
from ledgerfold.broker.client.streams.batching import (
    Batch,
    Container,
    DefaultContainer,
    KeyBasedContainer,
    PlainContainer,
)
from ledgerfold.broker.client.streams.receiving_stream import Permits
from ledgerfold.storage.codec import decode


def build(batch: Batch, *, plain: bool = False) -> bytes:
    return batch.builder.build(sequence_id=batch.sequence_id, publish_time_ms=1, plain=plain)


def rows_of(entry: bytes) -> list[tuple[bytes | None, bytes, int]]:
    return [(row.key, row.value, row.sequence_id) for row in decode(entry).messages()]


def fill(container: Container, *messages: tuple[bytes | None, bytes, int]) -> None:
    for key, value, sequence_id in messages:
        container.add(NewMessage(value, key, sequence_id), None)


def test_one_batch_for_all_keys() -> None:
    """Messages keep their order and number themselves."""
    container = DefaultContainer("p", 4)
    rows: list[tuple[bytes | None, bytes, int]] = [(b"a", b"1", 5), (None, b"2", 6), (b"b", b"", 7)]
    fill(container, *rows)
    (batch,) = container.take()
    assert batch.sequence_id == container.last_sequence_id == 7
    assert rows_of(build(batch)) == rows
    assert container.take() == []


def test_gaps_between_sequence_ids_are_kept() -> None:
    """Numbers that a person gives need not follow one another."""
    container = DefaultContainer("p", -1)
    rows: list[tuple[bytes | None, bytes, int]] = [
        (b"a", b"1", 10),
        (b"a", b"2", 11),
        (b"a", b"3", 20),
        (b"a", b"4", 21),
    ]
    fill(container, *rows)
    (batch,) = container.take()
    assert rows_of(build(batch)) == rows
    assert batch.sequence_id == 21


def test_key_based_batches_are_ordered_by_their_last_messages() -> None:
    """Sequence ids rise from entry to entry, and no entry's lie between those of another."""
    container = KeyBasedContainer("p", 9)
    fill(container, (b"a", b"1", -1), (b"b", b"2", -1), (b"a", b"3", -1), (None, b"4", -1))
    assert container.last_sequence_id == 13
    batches = container.take()
    assert [batch.sequence_id for batch in batches] == [10, 12, 13]
    assert [rows_of(build(batch)) for batch in batches] == [
        [(b"b", b"2", 10)],
        [(b"a", b"1", 11), (b"a", b"3", 12)],
        [(None, b"4", 13)],
    ]
    assert (container.rows, container.size_bytes) == (0, 0)


def test_an_explicit_sequence_id_keeps_its_order_among_the_keys() -> None:
    """It cannot be moved: its message shares a batch only with neighbours of its key."""
    container = KeyBasedContainer("p", -1)
    rows = [(b"a", -1), (b"b", -1), (b"a", -1), (b"a", 10), (b"a", 20), (b"b", 21), (b"a", 22)]
    for key, sequence_id in [*rows, (b"a", -1), (b"b", -1)]:
        container.add(NewMessage(b"v", key, sequence_id), None)
    found = [[row[2] for row in rows_of(build(batch))] for batch in container.take()]
    assert found == [[0], [1, 2], [10, 20], [21], [22], [23], [24]]
    assert container.last_sequence_id == 24


def test_the_ordering_key_has_priority_over_the_partition_key() -> None:
    """As in Pulsar's BatchMessageKeyBasedContainer."""
    container = KeyBasedContainer("p", -1)
    for key in (b"a", b"b"):
        container.add(NewMessage(b"v", key, ordering_key=b"same"), None)
    assert [len(batch.listeners) for batch in container.take()] == [2]


def test_a_split_batch_keeps_every_field_of_its_messages() -> None:
    """Messages that are too large together are sent in halves."""
    container = DefaultContainer("p", -1)
    container.add(NewMessage(b"1", b"a", 0, {"n": "v"}, 77, b"o"), None)
    container.add(NewMessage(None, None, 1), None)
    (batch,) = container.take()
    whole = list(decode(build(batch)).messages())
    parts = [next(decode(build(one)).messages()) for one in batch.halves()]
    assert [part._replace(batch_index=n, batch_size=2) for n, part in enumerate(parts)] == whole


def test_a_plain_entry_has_no_batch_index() -> None:
    """Without batching a message is an entry."""
    container = PlainContainer("p", -1)
    fill(container, (b"a", b"1", 0))
    (message,) = decode(build(container.take()[0], plain=True)).messages()
    assert message.batch_index == -1


def test_granted_and_queued_messages_add_up_to_the_queue_size() -> None:
    """The messages that the broker may send and those queued here have a common bound."""
    permits = Permits(10)
    assert permits.to_grant() == 10
    permits.received(12)
    assert permits.to_grant() == 0
    permits.on_taken(5)
    assert permits.to_grant() == 5
    permits.disconnected()
    # 7 wait, so the new connection may deliver 3.
    assert permits.to_grant() == 3
