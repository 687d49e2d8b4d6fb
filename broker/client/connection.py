"""The connection to a broker: channel, calls, and streams that come back by themselves.

A `KeptStream` is one bidirectional call that is opened again, with back-off, whenever it breaks in
a way that a retry can mend (storage/errors.py, `retryable`). What is resent or resumed then is the
subclass's: publish_stream.py, read_stream.py, subscribe_stream.py.

Everything here runs on one event loop. The asyncio API uses the caller's; the synchronous API
uses the one of io_thread.py.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError
from ledgerfold.v1 import data_pb2, data_pb2_grpc

from broker.status_map import error_from_rpc
from storage.errors import (
    AlreadyClosed,
    InvalidRequest,
    LedgerfoldError,
    Moved,
    ProducerBusy,
    SubscriptionBusy,
    Timeout,
    Unavailable,
)

_log = logging.getLogger(__name__)
_SERVICE = "/ledgerfold.v1.DataService/"
_SCHEMES = ("ledgerfold", "grpc", "pulsar")
# How long a close waits for the broker to say that it has seen everything.
CLOSE_GRACE_S = 5.0
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
_END: Any = vars(grpc.aio)["EOF"]


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


def address_of(service_url: str) -> str:
    """The gRPC target of "host:port", with or without one of the schemes. Raises InvalidRequest."""
    scheme, separator, rest = service_url.partition("://")
    if separator and scheme not in _SCHEMES:
        raise InvalidRequest(f"Service URL {service_url!r}: write it as host:port.")
    address = (rest if separator else service_url).rstrip("/")
    if not address:
        raise InvalidRequest("An empty service URL: write it as host:port.")
    return address


def full_topic_name(topic: str) -> str:
    """Pulsar's expansion of short names. (The broker checks names; this is for showing them.)"""
    if "://" in topic:
        return topic
    return f"persistent://{topic if '/' in topic else f'public/default/{topic}'}"


def _error_of(error: grpc.RpcError) -> LedgerfoldError:
    """What ended a stream.

    NOTE: a write that meets a connection which just broke is INTERNAL to gRPC's Python layer, with
    nothing from the broker in it (tests/grpc/test_client_reconnect.py, "kill").
    """
    if error.code() is grpc.StatusCode.INTERNAL and not tuple(error.trailing_metadata() or ()):
        return Unavailable(error.details() or "The connection broke.")
    return error_from_rpc(error)


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
        self.settings = settings
        self._channel = grpc.aio.insecure_channel(address_of(service_url), options=CHANNEL_OPTIONS)
        self.stub = data_pb2_grpc.DataServiceStub(self._channel)
        # Bulk directions travel as raw bytes (broker/frames.py).
        self.publish = self._stream("Publish", data_pb2.PublishResponse.FromString)
        self.subscribe = self._stream("Subscribe", None)
        self.read = self._stream("Read", None)

    def _stream(self, method: str, deserializer: Callable[[bytes], Any] | None) -> Any:
        return self._channel.stream_stream(
            _SERVICE + method, request_serializer=None, response_deserializer=deserializer
        )

    def backoff(self) -> Backoff:
        return Backoff(self.settings.backoff_initial_ms, self.settings.backoff_max_ms)

    async def call(self, method: Callable[..., Awaitable[Answer]], request: object) -> Answer:
        """A unary call; tried again while that may help, up to the operation timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self.settings.operation_timeout_s
        backoff = self.backoff()
        while True:
            left_s = deadline - loop.time()
            try:
                return await method(request, timeout=max(left_s, 0.001))
            except grpc.RpcError as rpc_error:
                error = error_from_rpc(rpc_error)
            wait_s = backoff.next_s()
            if not error.retryable or isinstance(error, Timeout) or left_s < wait_s:
                raise error
            await asyncio.sleep(wait_s)

    async def close(self) -> None:
        await self._channel.close(None)


class KeptStream(ABC):
    """A bidirectional call that is kept up until it is closed or can never succeed."""

    def __init__(self, connection: Connection, what: str) -> None:
        self.connection = connection
        # Names the stream in errors and logs: "producer p of topic t".
        self.what = what
        self.loop = asyncio.get_running_loop()
        self.is_connected = False
        # Why it ended for good.
        self.error: LedgerfoldError | None = None
        self._wake = asyncio.Event()
        self._may_connect = asyncio.Event()
        self._may_connect.set()
        self._disconnected = asyncio.Event()
        self._disconnected.set()
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._closing = False
        # The call was ended from this side, to begin another one.
        self._is_dropped = False
        self._call: Any = None
        self._task: asyncio.Task[None] | None = None
        self._last_error: LedgerfoldError | None = None

    # What a subclass says.

    @abstractmethod
    def _start_call(self) -> Any:
        """Begins the call."""

    @abstractmethod
    def _open_frame(self) -> bytes:
        """The first request, serialized."""

    @abstractmethod
    def _on_open(self, response: Any) -> None:
        """The first response came."""

    @abstractmethod
    def _on_response(self, response: Any) -> None:
        """A later response came."""

    @abstractmethod
    def _next_frame(self) -> bytes | None:
        """The next request to send, serialized; None when there is none."""

    @abstractmethod
    def _on_disconnect(self) -> None:
        """The call ended; another one may follow."""

    @abstractmethod
    def _on_end(self, error: LedgerfoldError) -> None:
        """The stream ended for good."""

    # What its users call, on the loop.

    async def open(self) -> None:
        """Connects. Raises what the broker answers, or the last failure after the timeout."""
        self._task = self.loop.create_task(self._run())
        timeout_s = self.connection.settings.operation_timeout_s
        try:
            done, _ = await asyncio.wait({self._opened}, timeout=timeout_s)
        except asyncio.CancelledError:
            await self._stop()
            raise
        if not done:
            error = self._last_error or Timeout(
                f"No answer within {timeout_s:g} s for the {self.what}."
            )
            await self._stop()
            raise error
        self._opened.result()

    def wake(self) -> None:
        """There is something to send."""
        self._wake.set()

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Sends what is left, waits for the broker to end the call, at most `grace_s`."""
        self._closing = True
        self._wake.set()
        if self._task is not None and self.is_connected:
            await asyncio.wait({self._task}, timeout=grace_s)
        await self._stop()

    async def pause(self) -> None:
        """Ends the call and makes no other until `resume`."""
        self._may_connect.clear()
        self.drop()
        await self._disconnected.wait()

    def resume(self) -> None:
        self._may_connect.set()

    def drop(self) -> None:
        """Ends the call; another one begins at once."""
        if self._call is not None:
            self._is_dropped = True
            self._call.cancel()

    async def _stop(self) -> None:
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._end(AlreadyClosed(f"The {self.what} is closed."))

    def _end(self, error: LedgerfoldError) -> None:
        if self.error is None:
            self.error = error
            if not self._opened.done():
                self._opened.set_exception(error)
                self._opened.exception()  # an open that was given up does not ask
            self._on_end(error)

    # The life of the stream.

    async def _run(self) -> None:
        try:
            await self._keep_up()
        except Exception as error:  # a defect: whoever waits for the stream must hear of it
            _log.exception("The %s failed.", self.what)
            self._end(LedgerfoldError(f"The {self.what} failed: {error!r}"))

    async def _keep_up(self) -> None:
        backoff = self.connection.backoff()
        while not self._closing:
            await self._may_connect.wait()
            error, was_open = await self._one_call()
            if self._closing:
                break
            if not self._is_worth_a_retry(error):
                self._end(error)
                return
            self._last_error = error
            if was_open:
                backoff.reset()
            if self._is_dropped:
                continue
            wait_s = backoff.next_s()
            _log.info("The %s is not connected: %s Next try in %.1f s.", self.what, error, wait_s)
            await asyncio.sleep(wait_s)

    def _is_worth_a_retry(self, error: LedgerfoldError) -> bool:
        # NOTE: after a lost connection it may be our own former self that is in the way
        # (tests/unit/client/test_producer.py, the busy name).
        is_own = self._opened.done() and isinstance(error, ProducerBusy | SubscriptionBusy)
        return error.retryable or is_own

    async def _one_call(self) -> tuple[LedgerfoldError, bool]:
        """Why the call ended, and whether the broker had accepted it."""
        was_open = False
        self._disconnected.clear()
        self._is_dropped = False
        self._call = self._start_call()
        try:
            await self._call.write(self._open_frame())
            response = await self._call.read()
            if response is not _END:
                was_open = self.is_connected = True
                self._on_open(response)
                if not self._opened.done():
                    self._opened.set_result(None)
                await self._converse(self._call)
            return Unavailable("The broker ended the stream."), was_open
        except grpc.RpcError as error:
            return _error_of(error), was_open
        except LedgerfoldError as error:
            return error, was_open
        except asyncio.InvalidStateError:
            return Unavailable("The call ended while it was opened."), was_open
        except DecodeError as error:
            return InvalidRequest(f"The broker sent what is no response: {error}"), was_open
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Not this task but the call was cancelled: pause() or drop().
            return Moved("The call was dropped."), was_open
        finally:
            self._call.cancel()
            self._call = None
            if was_open:
                self.is_connected = False
                self._on_disconnect()
            self._disconnected.set()

    async def _converse(self, call: Any) -> None:
        self._wake.set()
        sender = self.loop.create_task(self._send(call))
        try:
            while (response := await call.read()) is not _END:
                self._on_response(response)
        finally:
            sender.cancel()
            await asyncio.wait({sender})

    async def _send(self, call: Any) -> None:
        try:
            while True:
                await self._wake.wait()
                self._wake.clear()
                while (frame := self._next_frame()) is not None:
                    await call.write(frame)
                if self._closing:
                    await call.done_writing()
                    return
        except (grpc.RpcError, asyncio.InvalidStateError):
            # The reading side learns why, and ends the call.
            return
