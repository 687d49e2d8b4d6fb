"""A bare connection of the protocol: requests that no Pulsar client would send, and the answers."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from typing import Any

import google_crc32c

from ledgerfold.broker.pulsar.frames import Splitter, encode, parse
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand, MessageMetadata
from tests.support.waiting import WAIT_S, wait_until

CONNECT = BaseCommand(
    type=pulsar_pb2.CONNECT,
    connect=pulsar_pb2.CommandConnect(client_version=b"raw", protocol_version=20),
)


class RawClient:
    """A socket that sends commands and returns the answers."""

    def __init__(
        self, url: str, *, is_connected: bool = True, tls: ssl.SSLContext | None = None
    ) -> None:
        host, _, port = url.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=WAIT_S)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self._splitter, self._frames = Splitter(2**31), list[bytes]()
        if is_connected:
            self.send(CONNECT)
            assert self.read().type == pulsar_pb2.CONNECTED

    def send(self, command: BaseCommand, metadata: MessageMetadata | None = None) -> None:
        self.socket.sendall(
            encode(command) if metadata is None else frame_of(command, metadata, b"x")
        )

    def read(self) -> BaseCommand:
        """Returns the next command, and answers the broker's PINGs, of which one comes every 30 s.

        Raises EOFError at the end of the connection.
        """
        while True:
            while not self._frames:
                data = self.socket.recv(65536)
                if not data:
                    raise EOFError
                self._frames += self._splitter.feed(data)
            found = parse(self._frames.pop(0)).command
            if found.type != pulsar_pb2.PING:
                return found
            self.send(BaseCommand(type=pulsar_pb2.PONG, pong=pulsar_pb2.CommandPong()))

    def read_until(self, is_it: Callable[[BaseCommand], bool]) -> BaseCommand:
        while not is_it(command := self.read()):
            pass
        return command

    def is_closed(self) -> bool:
        """Waits for the end of the connection."""
        try:
            while True:
                self.read()
        except (EOFError, ConnectionError):
            return True

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()


def connected_in_time(connect: Callable[[int], RawClient]) -> RawClient:
    """Returns a client whose token expires soon, but not before the broker gets it.

    `connect` sends CONNECT with a token that expires after so many seconds.
    """
    for after_s in (1, 10, 40):
        client = connect(after_s)
        if client.read().type == pulsar_pb2.CONNECTED:
            return client
        client.socket.close()
    raise AssertionError("Every token had expired when the broker got it.")


def frame_of(command: BaseCommand, metadata: MessageMetadata, payload: bytes) -> bytes:
    encoded, described = command.SerializeToString(), metadata.SerializeToString()
    checked = len(described).to_bytes(4, "big") + described + payload
    size = 4 + len(encoded) + 6 + len(checked)
    return b"".join(
        (
            size.to_bytes(4, "big") + len(encoded).to_bytes(4, "big") + encoded,
            b"\x0e\x01" + int(google_crc32c.value(checked)).to_bytes(4, "big") + checked,
        )
    )


def producer(topic: str, **options: Any) -> BaseCommand:
    opening = pulsar_pb2.CommandProducer(topic=topic, producer_id=1, request_id=1, **options)
    return BaseCommand(type=pulsar_pb2.PRODUCER, producer=opening)


def send(sequence_id: int, **options: Any) -> BaseCommand:
    sent = pulsar_pb2.CommandSend(producer_id=1, sequence_id=sequence_id, **options)
    return BaseCommand(type=pulsar_pb2.SEND, send=sent)


def metadata(sequence_id: int, **options: Any) -> MessageMetadata:
    return MessageMetadata(producer_name=b"raw", sequence_id=sequence_id, publish_time=1, **options)


def subscribe(topic: str, **options: Any) -> BaseCommand:
    opening = pulsar_pb2.CommandSubscribe(
        topic=topic, subscription="s", sub_type=0, consumer_id=1, request_id=2, **options
    )
    return BaseCommand(type=pulsar_pb2.SUBSCRIBE, subscribe=opening)


def flow(permits: int) -> BaseCommand:
    asked = pulsar_pb2.CommandFlow(consumer_id=1, message_permits=permits)
    return BaseCommand(type=pulsar_pb2.FLOW, flow=asked)


def pass_ms(least_ms: int) -> None:
    """Returns when the clock, by which messages are found, has advanced."""
    end_s = time.time() + least_ms / 1000
    wait_until(lambda: time.time() > end_s, "the clock")
