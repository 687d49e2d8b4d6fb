"""The connection to a broker: its channel, and calls that are tried again where that may help.

The streams on it: reconnecting_stream.py.

Everything here runs on one event loop. The asyncio API uses the caller's; the synchronous API
uses the one of io_thread.py.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc

from ledgerfold.broker.client.streams import forks
from ledgerfold.broker.client.streams.address import address_of
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import AlreadyClosed, Timeout
from ledgerfold.v1 import data_pb2, data_pb2_grpc, kafka_pb2, kafka_pb2_grpc

_SERVICE = "/ledgerfold.v1.DataService/"
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # gRPC's own back-off would otherwise stand between a restarted broker and ours.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A broker, or a way to it, that vanished without a word is noticed after 40 s.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)
Answer = TypeVar("Answer")


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """What a client is told once. Seconds and ms as named."""

    # How long opening something, and each single call, may take with all its retries.
    operation_timeout_s: float = 30.0
    backoff_initial_ms: int = 100
    backoff_max_ms: int = 5_000
    # Stamps messages with their publish time.
    clock_ms: Callable[[], int] = wall_clock_ms
    # How often it is asked whether a partitioned topic has more partitions.
    partitions_update_interval_s: float = 60.0


def full_topic_name(topic: str) -> str:
    """Pulsar's expansion of short names. (The broker checks names; this is for showing them.)"""
    if "://" in topic:
        return topic
    return f"persistent://{topic if '/' in topic else f'public/default/{topic}'}"


class Backoff:
    """Waiting times that double up to a bound, with up to a fifth taken off at random."""

    def __init__(
        self, initial_ms: int, max_ms: int, chance: Callable[[], float] = random.random
    ) -> None:
        self._initial_ms, self._max_ms, self._chance = initial_ms, max_ms, chance
        self._next_ms = initial_ms

    def reset(self) -> None:
        self._next_ms = self._initial_ms

    def next_s(self) -> float:
        wait_ms = self._next_ms
        self._next_ms = min(wait_ms * 2, self._max_ms)
        return wait_ms * (1 - self._chance() / 5) / 1000


class Connection:
    """One channel. Made on the event loop that is to carry it."""

    def __init__(self, service_url: str, settings: ClientSettings) -> None:
        forks.check_may_connect()
        self.settings = settings
        self._channel: Any = grpc.aio.insecure_channel(
            address_of(service_url), options=CHANNEL_OPTIONS
        )
        forks.channel_opened(self._channel)
        self.stub: Any = data_pb2_grpc.DataServiceStub(self._channel)
        self._kafka: Any = kafka_pb2_grpc.KafkaServiceStub(self._channel)
        # Bulk directions travel as raw bytes (broker/wire/frames.py).
        self.publish: Any = self._stream("Publish", data_pb2.PublishResponse.FromString)
        self.subscribe: Any = self._stream("Subscribe", None)
        self.read: Any = self._stream("Read", None)

    def _stream(self, method: str, deserializer: Callable[[bytes], Any] | None) -> Any:
        return self._channel.stream_stream(
            _SERVICE + method, request_serializer=None, response_deserializer=deserializer
        )

    def backoff(self) -> Backoff:
        return Backoff(self.settings.backoff_initial_ms, self.settings.backoff_max_ms)

    async def call(self, method: Callable[..., Awaitable[Answer]], request: object) -> Answer:
        """A unary call; tried again while that may help, up to the operation timeout.

        Raises AlreadyClosed when the connection is closed meanwhile.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.operation_timeout_s
        backoff = self.backoff()
        while self._channel is not None:
            left_s = deadline - loop.time()
            try:
                return await method(request, timeout=max(left_s, 0.001))
            except grpc.RpcError as rpc_error:
                error = error_from_rpc(rpc_error)
            except asyncio.CancelledError:
                # A channel that closes cancels its calls; only this task's own end goes on as such.
                task = asyncio.current_task()
                if self._channel is not None or task is None or task.cancelling():
                    raise
                break
            wait_s = backoff.next_s()
            if not error.retryable or isinstance(error, Timeout) or left_s < wait_s:
                raise error
            await asyncio.sleep(wait_s)
        raise AlreadyClosed("The client is closed.")

    async def new_producer_id(self) -> int:
        """One that no producer of a Kafka topic ever had. Raises as `call`."""
        request = kafka_pb2.InitProducerIdRequest()
        response = await self.call(self._kafka.InitProducerId, request)
        return int(response.producer_id)

    async def close(self) -> None:
        """Further calls raise AlreadyClosed. Closing twice is fine."""
        channel, self._channel = self._channel, None
        # Nothing may refer to the channel any more (forks.py).
        gone = forks.Gone("The client is closed.")
        self.stub = self._kafka = self.publish = self.subscribe = self.read = gone
        if channel is not None:
            await channel.close(None)
