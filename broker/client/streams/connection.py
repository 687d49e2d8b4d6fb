"""The connection to a broker: its channel, and unary calls with retries.

reconnecting_stream.py has the streams on it. Everything here runs on one event loop: the caller's
for the asyncio API, the one of broker/client/sync/io_thread.py for the synchronous API.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import grpc
from google.protobuf.message import Message

from ledgerfold.broker.client.messages.arguments import check_least
from ledgerfold.broker.client.messages.message_id import MessageId
from ledgerfold.broker.client.streams import forks
from ledgerfold.broker.client.streams.credentials import (
    ChannelTarget,
    ClientCredentials,
    target_of,
)
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import AlreadyClosed, Timeout, TopicNotFound
from ledgerfold.v1 import (
    admin_pb2,
    admin_pb2_grpc,
    data_pb2,
    data_pb2_grpc,
    kafka_pb2,
    kafka_pb2_grpc,
)

_SERVICE = "/ledgerfold.v1.DataService/"
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # gRPC's own backoff must not delay the connection to a restarted broker beyond ours.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # A broker that is unreachable without a closed connection is detected after 40 s.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)


def wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class ClientSettings(ClientCredentials):
    """The arguments of `Client` (see there)."""

    service_url: str
    _: KW_ONLY
    # Limit for opening a producer, reader or consumer, and for each call, including retries.
    operation_timeout_seconds: float = 30
    starting_backoff_interval_ms: int = 100
    max_backoff_interval_ms: int = 5_000
    partitions_update_interval_seconds: float = 60
    clock_ms: Callable[[], int] = wall_clock_ms

    def __post_init__(self) -> None:
        ClientCredentials.__post_init__(self)
        self.address_in(self.service_url)
        check_least(self, 0, "operation_timeout_seconds", "partitions_update_interval_seconds")
        check_least(self, 1, "starting_backoff_interval_ms", "max_backoff_interval_ms")


def full_topic_name(topic: str) -> str:
    """Expands a short topic name as Pulsar does, for display. (The broker checks names.)"""
    if "://" in topic:
        return topic
    return f"persistent://{topic if '/' in topic else f'public/default/{topic}'}"


class Backoff:
    """Delays that double up to a bound, each reduced at random by up to a fifth."""

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


def is_cancelled() -> bool:
    """Returns whether the current task was cancelled, not only what it awaits."""
    task = asyncio.current_task()
    return task is None or task.cancelling() > 0


def methods_of(channel: Any) -> dict[str, Any]:
    """Returns the methods by the names of their requests: each method has its own request type."""
    services = (
        (admin_pb2, "AdminService", admin_pb2_grpc.AdminServiceStub(channel)),
        (data_pb2, "DataService", data_pb2_grpc.DataServiceStub(channel)),
        (kafka_pb2, "KafkaService", kafka_pb2_grpc.KafkaServiceStub(channel)),
    )
    return {
        method.input_type.full_name: getattr(stub, method.name)
        for contract, name, stub in services
        for method in contract.DESCRIPTOR.services_by_name[name].methods
    }


class Connection:
    """A gRPC channel. Create it on the event loop that runs it.

    `target`: by default that of the settings, which may take a request to the broker.
    """

    def __init__(self, settings: ClientSettings, target: ChannelTarget | None = None) -> None:
        forks.check_may_connect()
        self.settings = settings
        target = target or target_of(settings.service_url, settings)
        self._channel: Any = target.channel(grpc.aio, CHANNEL_OPTIONS)
        forks.channel_opened(self._channel)
        self._methods = methods_of(self._channel)
        # Bulk directions travel as raw bytes (broker/wire/frames.py).
        self.publish: Any = self._stream("Publish", data_pb2.PublishResponse.FromString)
        self.subscribe: Any = self._stream("Subscribe", None)
        self.read: Any = self._stream("Read", None)

    def _stream(self, method: str, deserializer: Callable[[bytes], Any] | None) -> Any:
        opened = self._channel.stream_stream(
            _SERVICE + method, request_serializer=None, response_deserializer=deserializer
        )
        if self.settings.authentication is None:
            return lambda: StreamCall(opened())
        return lambda: StreamCall(opened(metadata=self.settings.metadata()))

    def backoff(self) -> Backoff:
        settings = self.settings
        return Backoff(settings.starting_backoff_interval_ms, settings.max_backoff_interval_ms)

    async def call(self, request: Message) -> Any:
        """Makes a unary call, with retries up to the operation timeout.

        Raises AlreadyClosed if the connection is closed during the call.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.operation_timeout_seconds
        backoff = self.backoff()
        while self._channel is not None:
            left_s = deadline - loop.time()
            try:
                method = self._methods[request.DESCRIPTOR.full_name]
                metadata = self.settings.metadata()
                return await method(request, timeout=max(left_s, 0.001), metadata=metadata)
            except grpc.RpcError as rpc_error:
                error = error_from_rpc(rpc_error)
            except asyncio.CancelledError:
                # Closing the channel cancels its calls; only the cancellation of this task is
                # passed on.
                if self._channel is not None or is_cancelled():
                    raise
                break
            wait_s = backoff.next_s()
            if not error.retryable or isinstance(error, Timeout) or left_s < wait_s:
                raise error
            await asyncio.sleep(wait_s)
        raise AlreadyClosed("The client is closed.")

    async def new_producer_id(self) -> int:
        """Returns a new producer id, unique among producers of Kafka topics. Raises as `call`."""
        request = kafka_pb2.InitProducerIdRequest()
        response = await self.call(request)
        return int(response.producer_id)

    async def partition_count(self, topic: str) -> int:
        """Returns the partition count; 0: the topic is not partitioned, or does not exist yet."""
        response = await self.call(data_pb2.GetPartitionsRequest(topic=topic))
        return int(response.partitions)

    async def last_message_id(self, topic: str, read_compacted: bool) -> MessageId:
        """Returns the id of the last message; `MessageId.earliest` (all parts -1) if the topic is
        empty.
        """
        request = data_pb2.GetLastMessageIdRequest(topic=topic, read_compacted=read_compacted)
        response = await self.call(request)
        return MessageId.of_record(response.message_id)

    async def is_kafka_topic(self, topic: str) -> bool:
        """Returns whether the topic exists and is a Kafka topic. Clients never create Kafka
        topics.
        """
        request = data_pb2.GetLastMessageIdRequest(topic=topic)
        try:
            response = await self.call(request)
        except TopicNotFound:
            return False
        return bool(response.codec == data_pb2.ENTRY_CODEC_KAFKA)

    async def without_latest(
        self, topic: str, place: MessageId | int, read_compacted: bool
    ) -> MessageId | int:
        """Returns the current last message id for `MessageId.latest`, and any other place
        unchanged.

        Unlike "latest", an id stays the same after a lost connection.
        """
        if place != MessageId.latest:
            return place
        try:
            return await self.last_message_id(topic, read_compacted)
        except TopicNotFound:
            return MessageId.earliest

    async def close(self) -> None:
        """Closes the channel; further calls raise AlreadyClosed. Idempotent."""
        channel, self._channel = self._channel, None
        # No reference to the channel may remain (forks.py).
        self._methods = {}
        gone = forks.Invalidated("The client is closed.")
        self.publish = self.subscribe = self.read = gone
        if channel is not None:
            await channel.close(None)


class StreamCall:
    """A bidirectional call of grpc.aio without a request serializer.

    It ends with the broker's reason, even while a request is being written.
    """

    def __init__(self, call: Any) -> None:
        self._call = call
        # Not public: another version of grpcio may not have it.
        self._core_call = getattr(call, "_cython_call", None)
        self.read = call.read
        self.done_writing = call.done_writing
        self.cancel = call.cancel

    async def write(self, frame: bytes) -> None:
        """Raises asyncio.InvalidStateError if the call has ended: read() raises the reason.

        NOTE: `write` of grpc.aio would replace the broker's status by INTERNAL, "Internal error
        from Core", when Core learns of the end before Python does.
        """
        if self._core_call is None:
            await self._call.write(frame)
            return
        await self._call.wait_for_connection()
        try:
            await self._core_call.send_serialized_message(frame)
        except grpc.aio.InternalError as error:
            raise asyncio.InvalidStateError("The call has ended.") from error
