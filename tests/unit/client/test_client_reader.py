"""Readers: start positions, the end of the topic, reconnection."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from ledgerfold.broker.client import Client, CompressionType, Message, MessageId
from ledgerfold.broker.client.sync.producer import Producer
from ledgerfold.storage.entry import Codec, Compression, EntryFields, build_entry, read_header
from ledgerfold.storage.errors import (
    AlreadyClosed,
    Corruption,
    InvalidRequest,
    Timeout,
    Unavailable,
)
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.v1.entry_pb2 import NativeKeys, NativeValues
from tests.support.fake_broker import ThreadedFakeBroker
from tests.support.fake_topics import LEDGER_ID
from tests.support.waiting import WAIT_MS


def fill(client: Client, entries: int, rows: int, first: int = 0) -> Producer:
    """`entries` batches of `rows` messages, with their numbers as values."""
    producer = client.create_producer(
        "t", batching_enabled=True, batching_max_messages=rows, batching_max_publish_delay_ms=60_000
    )
    for number in range(first, first + entries * rows):
        producer.send_async(b"%d" % number, None, partition_key=f"k{number}")
    producer.flush()
    return producer


def numbers(reader: object) -> list[int]:
    return [int(message.data()) for message in reader]  # type: ignore[attr-defined]


def id_of(entry: int, index: int = -1) -> MessageId:
    return MessageId(-1, LEDGER_ID, entry, index)


def test_a_message_has_all_its_fields(broker: ThreadedFakeBroker, client: Client) -> None:
    """Reads exactly the sent fields."""
    producer = client.create_producer("t", "me")
    sent = producer.send(b"v", {"a": "b"}, "k", "o", 3, event_timestamp=99)
    producer.send(None)
    reader = client.create_reader("t", MessageId.earliest)
    first, second = list(reader)
    assert (first.data(), first.value(), first.partition_key(), first.has_key()) == (
        b"v",
        b"v",
        "k",
        True,
    )
    assert (first.message_id(), first.properties(), first.ordering_key()) == (
        sent,
        {"a": "b"},
        "o",
    )
    assert (first.sequence_id(), first.event_timestamp(), first.producer_name()) == (3, 99, "me")
    assert (first.append_timestamp(), first.redelivery_count()) == (1, 0)
    assert first.publish_timestamp() > 0
    assert first.topic_name() == reader.topic() == "persistent://public/default/t"
    assert (second.data(), second.value(), second.has_null_value()) == (b"", None, True)
    assert (second.partition_key(), second.key_bytes(), second.has_key()) == ("", None, False)
    assert (second.properties(), second.event_timestamp()) == ({}, 0)


def test_reading_to_the_end_and_further(client: Client) -> None:
    """A loop ends at the end of the topic, and another one continues there."""
    fill(client, 3, 4)
    reader = client.create_reader("t", MessageId.earliest)
    assert numbers(reader) == list(range(12))
    assert numbers(reader) == []
    fill(client, 1, 4, first=12)
    assert numbers(reader) == list(range(12, 16))


@pytest.mark.parametrize(
    ("start", "inclusive", "first"),
    [
        (MessageId.earliest, False, 0),
        (MessageId.latest, False, 12),
        (MessageId.latest, True, 11),
        (id_of(1, 1), False, 6),
        (id_of(1, 1), True, 5),
        (id_of(1, 3), False, 8),
        (id_of(1), True, 4),
        # No message of the batch is named, so none is left out.
        (id_of(1), False, 4),
        (id_of(2, 3), False, 12),
    ],
)
def test_a_reader_begins_at_its_start_id(
    client: Client, start: MessageId, inclusive: bool, first: int
) -> None:
    """In the middle of a batch, too: the broker sends the entry, the client drops the rest."""
    fill(client, 3, 4)
    reader = client.create_reader("t", start, start_message_id_inclusive=inclusive)
    assert reader.has_message_available() == (first < 12)
    assert numbers(reader) == list(range(first, 12))
    fill(client, 1, 4, first=12)
    assert numbers(reader) == list(range(12, 16))


@pytest.mark.parametrize(
    ("index", "inclusive", "wanted"),
    [(-1, False, [2]), (-1, True, [1, 2]), (0, False, [2]), (0, True, [1, 2])],
)
def test_an_unbatched_message_matches_any_batch_index(
    client: Client, index: int, inclusive: bool, wanted: list[int]
) -> None:
    """Tests ids with any batch index."""
    producer = client.create_producer("t", batching_enabled=False)
    for number in range(3):
        producer.send(b"%d" % number)
    reader = client.create_reader("t", id_of(1, index), start_message_id_inclusive=inclusive)
    assert numbers(reader) == wanted


@pytest.mark.parametrize("inclusive", [False, True])
def test_latest_of_an_empty_topic_is_its_beginning(client: Client, inclusive: bool) -> None:
    """Everything published later is new, also the first messages of a batch."""
    reader = client.create_reader("t", MessageId.latest, start_message_id_inclusive=inclusive)
    assert not reader.has_message_available()
    fill(client, 1, 4)
    assert numbers(reader) == [0, 1, 2, 3]


def test_a_compacted_batch_keeps_its_indexes(broker: ThreadedFakeBroker, client: Client) -> None:
    """Rows are found by batch index, not by place."""
    broker.store("t", _compacted_entry(indexes=[2, 5, 9], size=10))
    for start, inclusive, wanted in ((5, False, [9]), (5, True, [5, 9]), (3, False, [5, 9])):
        reader = client.create_reader("t", id_of(0, start), start_message_id_inclusive=inclusive)
        assert [message.message_id().batch_index() for message in reader] == wanted


def _compacted_entry(indexes: list[int], size: int) -> bytes:
    rows = len(indexes)
    keys = NativeKeys(
        key_offsets=b"".join(n.to_bytes(4, "little") for n in range(rows + 1)),
        keys=b"k" * rows,
        flags=b"\1" * rows,
        value_sizes=b"".join((1).to_bytes(4, "little") for _ in indexes),
        batch_indexes=b"".join(index.to_bytes(4, "little") for index in indexes),
        batch_size=size,
    )
    values = NativeValues(values=b"v" * rows)
    fields = EntryFields(message_count=rows, sequence_id=size - 1)
    return build_entry(keys.SerializeToString(), values.SerializeToString(), fields)


def test_nothing_is_available_before_the_start(client: Client) -> None:
    """An entry before the start is not available."""
    fill(client, 1, 4)
    reader = client.create_reader("t", id_of(0, 3))
    assert not reader.has_message_available()
    fill(client, 1, 4, first=4)
    assert reader.has_message_available()
    assert reader.read_next(0).data() == b"4"


@pytest.mark.parametrize("queue_size", [1, 3, 1000])
def test_small_queues_read_everything(client: Client, queue_size: int) -> None:
    """One entry of any size fits; permits return."""
    fill(client, 20, 7)
    reader = client.create_reader("t", MessageId.earliest, receiver_queue_size=queue_size)
    assert numbers(reader) == list(range(140))


def test_the_queue_is_bounded(broker: ThreadedFakeBroker, client: Client) -> None:
    """The broker sends no more than the queue and one entry."""
    fill(client, 50, 4)
    reader = client.create_reader("t", MessageId.earliest, receiver_queue_size=10)
    reader.read_next(WAIT_MS)
    reader.has_message_available()
    inbox: Any = reader._core.inbox
    waiting = sum(d.header.message_count for d in inbox._items)
    assert waiting <= 10 + 4


def test_read_next_times_out(client: Client) -> None:
    """A timeout has a separate error, and the reader stays open."""
    reader = client.create_reader("t", MessageId.earliest)
    with pytest.raises(Timeout):
        reader.read_next(timeout_millis=20)
    fill(client, 1, 1)
    assert reader.read_next(WAIT_MS).data() == b"0"


def test_read_next_waits_for_a_message(client: Client) -> None:
    """It returns when one is published."""
    reader = client.create_reader("t", MessageId.earliest)
    sender = threading.Timer(0.05, fill, (client, 1, 1))
    sender.start()
    assert reader.read_next(WAIT_MS).data() == b"0"
    sender.join()


@pytest.mark.parametrize("queue_size", [2, 1000])
def test_seek_by_id(client: Client, queue_size: int) -> None:
    """Messages in flight from the old position are dropped."""
    fill(client, 5, 4)
    reader = client.create_reader("t", MessageId.earliest, receiver_queue_size=queue_size)
    reader.read_next(WAIT_MS)
    for entry, index, first in ((3, 1, 14), (0, 0, 1), (2, 3, 12), (4, 3, 20)):
        reader.seek(id_of(entry, index))
        assert numbers(reader) == list(range(first, 20))
    reader.seek(MessageId.earliest)
    assert reader.read_next(WAIT_MS).data() == b"0"
    reader.seek(MessageId.latest)
    assert not reader.has_message_available()


def test_seek_in_the_middle_of_a_loop(client: Client) -> None:
    """The loop continues at the new position."""
    fill(client, 3, 4)
    reader = client.create_reader("t", MessageId.earliest)
    seen = []
    for message in reader:
        seen.append(int(message.data()))
        if seen == [0, 1]:
            reader.seek(id_of(2, 1))
    assert seen == [0, 1, 10, 11]


@pytest.mark.parametrize("place", [-1, 2**63, True, "1"])
def test_an_invalid_seek_is_refused(client: Client, place: Any) -> None:
    """Times beyond 64 bits cannot be encoded in the request."""
    reader = client.create_reader("t", MessageId.earliest)
    with pytest.raises(InvalidRequest, match="a message id or a publish time in ms"):
        reader.seek(place)


def test_seek_by_time(broker: ThreadedFakeBroker, client: Client) -> None:
    """To the first entry published at or after."""
    for time_ms in (1000, 2000, 3000):
        builder = NativeBatchBuilder("p")
        builder.add(b"%d" % time_ms)
        broker.store("t", builder.build(sequence_id=time_ms, publish_time_ms=time_ms))
    reader = client.create_reader("t", MessageId.latest)
    for time_ms, wanted in ((0, [1000, 2000, 3000]), (1001, [2000, 3000]), (2000, [2000, 3000])):
        reader.seek(time_ms)
        assert numbers(reader) == wanted
    reader.seek(3001)
    assert not reader.has_message_available()


@pytest.mark.parametrize("queue_size", [3, 1000])
def test_reading_continues_after_a_restart(
    broker: ThreadedFakeBroker, client: Client, queue_size: int
) -> None:
    """Nothing is skipped or repeated, in the middle of a batch either."""
    fill(client, 10, 4)
    reader = client.create_reader("t", MessageId.earliest, receiver_queue_size=queue_size)
    seen = [int(reader.read_next(WAIT_MS).data()) for _ in range(6)]
    broker.stop_now()
    broker.start_now()
    assert seen + numbers(reader) == list(range(40))


def test_a_disconnected_reader_at_the_end_misses_nothing(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """Latest means latest at the beginning, not at each connection."""
    fill(client, 1, 4)
    reader = client.create_reader("t", MessageId.latest)
    broker.stop_now()
    builder = NativeBatchBuilder("p")
    builder.add(b"4")
    broker.store("t", builder.build(sequence_id=0, publish_time_ms=1))
    broker.start_now()
    assert reader.read_next(WAIT_MS).data() == b"4"


def test_requests_are_repeated_on_a_new_connection(
    broker: ThreadedFakeBroker, client: Client
) -> None:
    """has_message_available and seek are asked again after a restart."""
    fill(client, 2, 4)
    reader = client.create_reader("t", MessageId.latest)
    broker.service.refusal = Unavailable("not yet")
    broker.stop_now()
    broker.start_now()
    allow = threading.Timer(0.1, setattr, (broker.service, "refusal", None))
    allow.start()
    assert not reader.has_message_available()
    allow.join()
    broker.stop_now()
    restart = threading.Timer(0.1, broker.start_now)
    restart.start()
    reader.seek(id_of(1, 0))
    restart.join()
    assert numbers(reader) == [5, 6, 7]


def test_damage_raises_an_error_each_time(broker: ThreadedFakeBroker, client: Client) -> None:
    """A damaged entry is never skipped; a seek leads away from it."""
    producer = client.create_producer("t")
    for number in range(3):
        producer.send(b"%d" % number)
    topic = broker.topic("t")
    entry = bytearray(topic.entries[1])
    entry[-1] ^= 1
    topic.entries[1] = bytes(entry)
    reader = client.create_reader("t", MessageId.earliest)
    assert reader.read_next(WAIT_MS).data() == b"0"
    for _ in range(2):
        with pytest.raises(Corruption):
            reader.read_next(WAIT_MS)
    reader.seek(id_of(1))
    assert numbers(reader) == [2]


def test_undecodable_content_is_damage(broker: ThreadedFakeBroker, client: Client) -> None:
    """Its checksums are right: the publisher compressed it wrongly."""
    producer = client.create_producer("t", compression_type=CompressionType.ZSTD)
    producer.send(b"0" * 100)
    topic = broker.topic("t")
    header = read_header(topic.entries[0])
    sections = topic.entries[0][header.header_bytes :]
    keys, values = sections[: header.key_bytes], bytearray(sections[header.key_bytes :])
    values[-1] ^= 1
    fields = EntryFields(1, 0, 1, Codec.NATIVE, Compression.ZSTD, header.flags)
    spoilt = build_entry(keys, bytes(values), fields)
    no_keys = build_entry(b"\xff", bytes(values), fields)
    for entry in (spoilt, no_keys):
        broker.store("t", entry)
    reader = client.create_reader("t", MessageId.earliest)
    assert reader.read_next(WAIT_MS).data() == b"0" * 100
    message = reader.read_next(WAIT_MS)
    for look in (Message.data, Message.value, Message.properties, Message.sequence_id):
        with pytest.raises(Corruption, match=r"entry .* of .*t is damaged"):
            look(message)
    with pytest.raises(Corruption, match=r"entry .* of .*t is damaged"):
        reader.read_next(WAIT_MS)


def test_a_closed_reader_raises(client: Client) -> None:
    """Also to a thread that waits."""
    reader = client.create_reader("t", MessageId.earliest)
    closer = threading.Timer(0.05, reader.close)
    closer.start()
    with pytest.raises(AlreadyClosed):
        reader.read_next()
    closer.join()
    with pytest.raises(AlreadyClosed):
        reader.has_message_available()
    reader.close()


def test_requests_to_a_missing_broker_time_out(broker: ThreadedFakeBroker) -> None:
    """Asking and seeking fail after the operation timeout; the seek is kept for its return."""
    with Client(broker.address, max_backoff_interval_ms=50) as client:
        ids = [client.create_producer("t").send(b"%d" % number) for number in range(4)]
        reader = client.create_reader("t", MessageId.earliest, receiver_queue_size=1)
        assert numbers(reader) == [0, 1, 2, 3]
        broker.stop_now()
        # Only now: on a busy machine, opening takes longer than this.
        connection: Any = client._core._connection
        connection.settings = replace(connection.settings, operation_timeout_seconds=0.3)
        with pytest.raises((Unavailable, Timeout)):
            reader.has_message_available()
        with pytest.raises((Unavailable, Timeout)):
            reader.seek(ids[1])
        broker.start_now()
        assert [reader.read_next(WAIT_MS).data() for _ in range(2)] == [b"2", b"3"]
