"""Frames in pieces, damaged, repeated and cut: each gives frames or an InvalidRequest."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.broker.pulsar.frames import (
    Splitter,
    encode,
    encode_with_payload,
    message_id,
    parse,
    parse_message,
)
from ledgerfold.storage.errors import InvalidRequest, WrongChecksum
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand, MessageMetadata

LIMIT = 100_000
METADATA = MessageMetadata(producer_name=b"p", sequence_id=1, publish_time=2)
COMMANDS = (
    BaseCommand(type=pulsar_pb2.PING, ping=pulsar_pb2.CommandPing()),
    BaseCommand(type=pulsar_pb2.FLOW, flow={"consumer_id": 1, "message_permits": 1000}),
    BaseCommand(
        type=pulsar_pb2.ACK,
        ack={"consumer_id": 1, "ack_type": 0, "message_id": [message_id(1, -1)]},
    ),
    BaseCommand(type=pulsar_pb2.LOOKUP, lookup={"topic": "t", "request_id": 2**64 - 1}),
)
SENT = encode_with_payload(
    BaseCommand(type=pulsar_pb2.SEND, send={"producer_id": 1, "sequence_id": 1}),
    METADATA.SerializeToString(),
    b"payload" * 10,
)
SESSION = b"".join(map(encode, COMMANDS)) + SENT


def test_a_session_of_frames_is_parsed() -> None:
    frames = Splitter(LIMIT).feed(SESSION)
    assert [parse(each).command for each in frames[:-1]] == list(COMMANDS)
    message = parse_message(parse(frames[-1]).payload)
    assert (message.metadata, bytes(message.payload)) == (METADATA, b"payload" * 10)


@given(st.lists(st.integers(0, len(SESSION)), max_size=20))
def test_fragments_give_the_same_frames(cuts: list[int]) -> None:
    splitter, found = Splitter(LIMIT), list[bytes]()
    at = 0
    for end in [*sorted(cuts), len(SESSION)]:
        found += splitter.feed(SESSION[at:end])
        at = end
    assert found == Splitter(LIMIT).feed(SESSION)
    assert splitter.held == 0


@given(st.integers(0, len(SESSION) - 1), st.integers(1, 255))
def test_a_changed_byte_is_detected_or_has_no_effect(at: int, flip: int) -> None:
    damaged = bytearray(SESSION)
    damaged[at] ^= flip
    try:
        for frame in Splitter(LIMIT).feed(bytes(damaged)):
            parsed = parse(frame)
            if parsed.command.type == pulsar_pb2.SEND:
                parse_message(parsed.payload)
    except InvalidRequest:
        pass


@given(st.integers(0, len(SENT) - 1))
def test_a_damaged_payload_is_found(at: int) -> None:
    """From the checksum on, no byte can change unnoticed."""
    frame = Splitter(LIMIT).feed(SENT)[0]
    payload = bytearray(parse(frame).payload)
    at = 2 + at % (len(payload) - 2)
    payload[at] ^= 0x10
    with pytest.raises(InvalidRequest):
        parse_message(bytes(payload))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(noise: bytes) -> None:
    splitter = Splitter(LIMIT)
    try:
        for frame in splitter.feed(noise):
            parse(frame)
            parse_message(frame)
    except InvalidRequest:
        pass
    assert splitter.held <= len(noise)


def test_a_too_large_frame_is_refused_early() -> None:
    for size in (0, 3, LIMIT + 1, 2**32 - 1):
        with pytest.raises(InvalidRequest, match="A frame has"):
            Splitter(LIMIT).feed(size.to_bytes(4, "big"))


def test_a_wrong_checksum_has_a_separate_error_class() -> None:
    payload = bytearray(parse(Splitter(LIMIT).feed(SENT)[0]).payload)
    payload[-1] ^= 1
    with pytest.raises(WrongChecksum):
        parse_message(bytes(payload))


def test_invalid_text_is_refused() -> None:
    frame = encode(BaseCommand(type=pulsar_pb2.LOOKUP, lookup={"topic": "tt", "request_id": 1}))
    with pytest.raises(InvalidRequest, match="topic of a command is not UTF-8"):
        parse(frame[4:].replace(b"tt", b"\xff\xfe"))
