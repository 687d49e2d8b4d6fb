"""Entries over HTTP: their headers are those that Pulsar 4.0.7 sends."""

from __future__ import annotations

import struct

import pytest

from ledgerfold.storage.entry import Compression
from ledgerfold.storage.native import NativeBatchBuilder
from tests.model.broker_lab import TOPIC
from tests.model.log_model import Message
from tests.support.http_lab import Heard, HttpLab
from tests.support.pulsar_entries import entry, message, metadata_of, packed

T = "/persistent/public/default/t"
S = f"{T}/subscription/s"


def pulsar_headers(answer: Heard) -> dict[str, str]:
    prefix = "X-Pulsar-"
    return {
        name.removeprefix(prefix): value
        for name, value in answer.headers.items()
        if name.startswith(prefix)
    }


def publish_one(lab: HttpLab, value: bytes | None, key: bytes | None, **fields: object) -> None:
    builder = NativeBatchBuilder("prod")
    builder.add(value, key, **fields)  # type: ignore[arg-type]
    publish_entry(lab, builder.build(sequence_id=5, publish_time_ms=1_000, plain=True))


def publish_entry(lab: HttpLab, data: bytes, *, by_pulsar: bool = False) -> None:
    async def publish() -> None:
        topic = await lab.broker.topic(TOPIC, to_write=True)
        producer = await topic.attach_producer("prod", is_pulsar_client=by_pulsar)
        producer.append_all([memoryview(data)])
        producer.finish()
        while await producer.receipts():
            pass
        producer.detach()

    lab.run(publish())


def test_a_peeked_message_has_all_its_fields(lab: HttpLab) -> None:
    lab.done("PUT", S)
    properties = {"a": "b", "c d": "ü"}
    publish_one(lab, b"v1", b"k1", properties=properties, event_time_ms=77, ordering_key=b"ok")
    answer = lab.ask("GET", f"{S}/position/1")
    headers = pulsar_headers(answer)
    assert (answer.status, answer.body) == (200, b"v1")
    ledger = lab.get(f"{T}/lastMessageId")["ledgerId"]
    assert headers.pop("publish-time").startswith("1970-01-01T00:")
    assert headers == {
        "Message-ID": f"{ledger}:0",
        "PROPERTY": '{"a":"b","c d":"\\u00fc"}',
        "event-time": "1970-01-01T00:00:00.077Z",
        "producer-name": "prod",
        "sequence-id": "5",
        "partition-key": "k1",
        "partition-key-b64-encoded": "false",
        "Base64-ordering-key": "b2s=",
        "uncompressed-size": "2",
        "Is-Encrypted": "false",
        "txn-uncommitted": "false",
    }
    # Nothing was acknowledged.
    assert lab.get(f"{T}/stats")["subscriptions"]["s"]["msgBacklog"] == 1


def test_a_null_value_and_a_key_of_bytes(lab: HttpLab) -> None:
    lab.done("PUT", S)
    publish_one(lab, None, b"\xff\n")
    headers = pulsar_headers(lab.ask("GET", f"{S}/position/1"))
    assert headers["null-value"] == "true"
    assert (headers["partition-key"], headers["partition-key-b64-encoded"]) == ("/wo=", "true")


@pytest.mark.parametrize("has_fields", [False, True])
def test_headers_are_those_of_the_fields_that_a_client_sends(
    lab: HttpLab, has_fields: bool
) -> None:
    """Only messages of this package's client had been peeked; C++ clients leave out two fields."""
    lab.done("PUT", S)
    fields = {"uncompressed_size": 2, "partition_key_b64_encoded": False} if has_fields else {}
    publish_entry(lab, entry(metadata_of(partition_key=b"k", **fields), b"v1"), by_pulsar=True)
    headers = pulsar_headers(lab.ask("GET", f"{S}/position/1"))
    assert headers["partition-key"] == "k"
    assert headers.get("uncompressed-size") == ("2" if has_fields else None)
    assert headers.get("partition-key-b64-encoded") == ("false" if has_fields else None)


def test_a_batch_has_pulsars_format(lab: HttpLab) -> None:
    """For each message its metadata's size, its metadata and its value."""
    lab.done("PUT", S)
    lab.publish(([Message(b"k3", b"33"), Message(b"k4", b"4444")], True))
    answer = lab.ask("GET", f"{S}/position/1")
    headers = pulsar_headers(answer)
    assert headers["num-batch-message"] == "2"
    assert headers["batch-size"] == str(len(answer.body))
    assert "partition-key" not in headers
    rest, found = answer.body, []
    while rest:
        size = struct.unpack(">I", rest[:4])[0]
        metadata, rest = rest[4 : 4 + size], rest[4 + size :]
        # The key is field 2, the size of the value field 3.
        assert metadata[0] == 2 << 3 | 2
        key = metadata[2 : 2 + metadata[1]]
        assert metadata[2 + len(key)] == 3 << 3
        length = metadata[3 + len(key)]
        found.append((key, rest[:length]))
        rest = rest[length:]
    assert found == [(b"k3", b"33"), (b"k4", b"4444")]


@pytest.mark.parametrize("keys", [[], [b"key"]])
def test_a_batch_of_pulsars_client_is_returned_unchanged(lab: HttpLab, keys: list[bytes]) -> None:
    """Without its compression, unless it is encrypted."""
    lab.done("PUT", S)
    payload = packed([message(b"one", "k"), message(b"two", "l")])
    compression = Compression.NONE if keys else Compression.ZSTD
    metadata = metadata_of(num_messages_in_batch=2, encryption_keys=keys, compression=compression)
    publish_entry(lab, entry(metadata, payload), by_pulsar=True)
    answer = lab.ask("GET", f"{S}/position/1")
    headers = pulsar_headers(answer)
    assert answer.body == payload
    assert headers["Is-Encrypted"] == str(bool(keys)).lower()
    assert (headers["num-batch-message"], headers["batch-size"]) == ("2", str(len(payload)))


def test_entries_are_found_by_place_and_by_id(lab: HttpLab) -> None:
    lab.done("PUT", S)
    assert lab.status("GET", f"{T}/examinemessage") == 412
    positions = lab.publish(*(([Message(b"k", bytes([65 + at]))], False) for at in range(9)))

    def body(path: str) -> object:
        return lab.ask("GET", f"{T}/{path}").body

    assert body("examinemessage?initialPosition=earliest&messagePosition=2") == b"B"
    assert body("examinemessage?initialPosition=latest&messagePosition=2") == b"H"
    assert body("examinemessage") == b"I"
    assert lab.status("GET", f"{T}/examinemessage?messagePosition=10") == 412
    # In different ledgers: there are six entries in one.
    for at in (0, 8):
        ledger, entry = positions[at]
        assert body(f"ledger/{ledger}/entry/{entry}") == bytes([65 + at])
        assert lab.ask("GET", f"{S}/position/{at + 1}").body == bytes([65 + at])
    assert lab.ask("GET", f"{T}/ledger/0/entry/0").reason == "Message id not found"
    beyond = lab.ask("GET", f"{S}/position/10")
    assert (beyond.status, beyond.reason) == (404, "Message not found")
    assert lab.status("GET", f"{S}/position/0") == 412
    assert lab.status("GET", f"{T}/subscription/nope/position/1") == 404


def test_acknowledged_messages_are_not_in_the_backlog(lab: HttpLab) -> None:
    lab.done("PUT", S)
    lab.publish(*(([Message(b"k", bytes([65 + at]))], False) for at in range(3)))
    lab.done("POST", f"{S}/skip/1")
    assert lab.ask("GET", f"{S}/position/1").body == b"B"


def test_a_partitioned_topic_has_no_messages_by_id(lab: HttpLab) -> None:
    lab.done("PUT", "/persistent/public/default/p/partitions", 2)
    assert lab.status("GET", "/persistent/public/default/p/subscription/s/position/1") == 405
