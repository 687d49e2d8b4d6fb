"""Bidirectional streams that reconnect automatically.

A `ReconnectingStream` is one bidirectional call that is reopened, with backoff, whenever it breaks
with an error that a retry can resolve (storage/errors.py, `retryable`). As in Pulsar, a stream that
was open also survives failed authentication: a token may be renewed late, or its function fail for
a while. The subclasses decide what is resent or resumed: publish_stream.py, read_stream.py,
subscribe_stream.py. Everything runs on the event loop of the connection.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import Any, TypeVar

import grpc
from google.protobuf.message import DecodeError

from ledgerfold.broker.client.streams.connection import Connection, is_cancelled
from ledgerfold.rpc_errors import error_from_rpc
from ledgerfold.storage.errors import (
    AlreadyClosed,
    AuthenticationFailed,
    InvalidRequest,
    LedgerfoldError,
    Moved,
    ProducerBusy,
    SubscriptionBusy,
    Timeout,
    Unavailable,
)

_log = logging.getLogger(__name__)
# Errors that end an opening, but not a stream that was open: after a lost connection the name may
# still be held by this client's previous call (tests/unit/client/test_client_producer.py, the busy
# name), and credentials may be renewed.
_TRANSIENT = (AuthenticationFailed, ProducerBusy, SubscriptionBusy)
# Maximum time that a close waits for the broker to end the call.
CLOSE_GRACE_S = 5.0
Answer = TypeVar("Answer")
_END: Any = vars(grpc.aio)["EOF"]


class ReconnectingStream(ABC):
    """A bidirectional call that is reopened until it is closed or fails permanently."""

    def __init__(self, connection: Connection, description: str) -> None:
        self.connection = connection
        # Names the stream in errors and logs: "producer p of topic t".
        self.description = description
        self.loop = asyncio.get_running_loop()
        self.is_connected = False
        # The time, on the loop's clock, at which the last connection ended.
        self._lost_s = self.loop.time()
        # The error that ended the stream permanently.
        self.error: LedgerfoldError | None = None
        self._wake = asyncio.Event()
        self._may_connect = asyncio.Event()
        self._may_connect.set()
        self._disconnected = asyncio.Event()
        self._disconnected.set()
        self._opened: asyncio.Future[None] = self.loop.create_future()
        self._closing = False
        # The broker has accepted the call, and opens the stream later.
        self._is_queued = False
        # Whether that was the case at any time since open() last checked.
        self._was_queued = False
        # The call was cancelled locally, to open another one.
        self._is_dropped = False
        self._exchange: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._last_error: LedgerfoldError | None = None

    # Methods that a subclass implements.

    @abstractmethod
    def _start_call(self) -> Any:
        """Starts the call."""

    @abstractmethod
    def _open_frame(self) -> bytes:
        """Returns the first request, serialized."""

    @abstractmethod
    def _on_open(self, response: Any) -> None:
        """Handles the first response."""

    def _is_waiting(self, response: Any) -> bool:
        """Returns whether a response says that the stream is opened later."""
        return False

    @abstractmethod
    def _on_response(self, response: Any) -> None:
        """Handles a later response."""

    @abstractmethod
    def _next_frame(self) -> bytes | None:
        """Returns the next request, serialized; None if there is nothing to send."""

    @abstractmethod
    def _on_disconnect(self) -> None:
        """Handles the end of a call; another one may follow."""

    @abstractmethod
    def _on_end(self, error: LedgerfoldError) -> None:
        """Handles the permanent end of the stream."""

    # Methods for users, on the event loop.

    async def open(self) -> None:
        """Connects. Raises the broker's error, or the last failure after the timeout.

        There is no timeout while the broker lets the stream wait; if the connection is lost then,
        another timeout begins.
        """
        self._task = self.loop.create_task(self._run())
        timeout_s = self.connection.settings.operation_timeout_seconds
        try:
            while True:
                done, _ = await asyncio.wait({self._opened}, timeout=timeout_s)
                if done or not self._was_queued:
                    break
                self._was_queued = self._is_queued
        except asyncio.CancelledError:
            await self._stop()
            raise
        if not done:
            error = self._no_answer()
            await self._stop()
            raise error
        self._opened.result()

    async def answered(self, answer: asyncio.Future[Answer]) -> Answer:
        """Waits for the broker's answer, across lost connections.

        Raises the last failure, or Timeout, after the operation timeout.
        """
        timeout_s = self.connection.settings.operation_timeout_seconds
        try:
            return await asyncio.wait_for(answer, timeout_s)
        except TimeoutError:
            raise self._no_answer() from None

    def _no_answer(self) -> LedgerfoldError:
        if self._last_error is not None and not self.is_connected:
            return self._last_error
        timeout_s = self.connection.settings.operation_timeout_seconds
        return Timeout(f"No answer within {timeout_s:g} s for the {self.description}.")

    async def out_of_reach(self, grace_s: float) -> None:
        """Returns when there has been no connection for `grace_s`."""
        while True:
            now_s = self.loop.time()
            left_s = grace_s - (0 if self.is_connected else now_s - self._lost_s)
            if left_s <= 0:
                return
            await asyncio.sleep(left_s)

    def raise_ended(self) -> None:
        """Raises the error that ended the stream permanently, if it has ended."""
        if self.error is not None:
            raise self.error

    def wake(self) -> None:
        """Wakes the sender: there is something to send."""
        self._wake.set()

    async def close(self, grace_s: float = CLOSE_GRACE_S) -> None:
        """Sends what is pending and waits for the broker to end the call, at most `grace_s`."""
        self._closing = True
        self._wake.set()
        if self._task is not None and self.is_connected:
            await asyncio.wait({self._task}, timeout=grace_s)
        await self._stop()

    async def pause(self) -> None:
        """Ends the call and opens no other until `resume`."""
        self._may_connect.clear()
        self.drop()
        await self._disconnected.wait()

    def resume(self) -> None:
        self._may_connect.set()

    def drop(self) -> None:
        """Ends the call and opens another one at once.

        NOTE: cancels the task, not the call: gRPC's write, for one, does not notice that a call was
        cancelled before the channel was connected (tests/unit/client/test_reconnecting_stream.py).
        """
        if self._exchange is not None:
            self._is_dropped = True
            self._exchange.cancel()

    async def _stop(self) -> None:
        self._closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        self._end(AlreadyClosed(f"The {self.description} is closed."))

    def _end(self, error: LedgerfoldError) -> None:
        if self.error is None:
            self.error = error
            if not self._opened.done():
                self._opened.set_exception(error)
                self._opened.exception()  # marks it as retrieved: a cancelled open does not
            self._on_end(error)

    def _restart(self) -> None:
        """Restarts a stream that has ended. Raises AlreadyClosed."""
        if self._closing:
            raise AlreadyClosed(f"The {self.description} is closed.")
        self.error = None
        self._task = self.loop.create_task(self._run())

    # The stream's task.

    async def _run(self) -> None:
        try:
            await self._keep_up()
        except Exception as error:  # a bug: callers that wait for the stream must be notified
            _log.exception("The %s failed.", self.description)
            self._end(LedgerfoldError(f"The {self.description} failed: {error!r}"))

    async def _keep_up(self) -> None:
        backoff = self.connection.backoff()
        while not self._closing:
            while not self._may_connect.is_set():
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
            level = logging.INFO if error.retryable else logging.WARNING
            text = "The %s is not connected: %s Next try in %.1f s."
            _log.log(level, text, self.description, error, wait_s)
            await asyncio.sleep(wait_s)

    def _is_worth_a_retry(self, error: LedgerfoldError) -> bool:
        return error.retryable or (self._opened.done() and isinstance(error, _TRANSIENT))

    async def _one_call(self) -> tuple[LedgerfoldError, bool]:
        """Makes one call. Returns the error that ended it, and whether the broker had
        accepted it.
        """
        self._disconnected.clear()
        self._is_dropped = False
        call = None
        try:
            call = self._start_call()
            self._exchange = self.loop.create_task(self._exchange_on(call))
            return await self._end_of(self._exchange), self.is_connected
        except LedgerfoldError as error:  # there are no credentials, or no channel any more
            return error, False
        finally:
            if call is not None:
                call.cancel()
            self._exchange = None
            self._is_queued = False
            if self.is_connected:
                self.is_connected = False
                self._lost_s = self.loop.time()
                self._on_disconnect()
            self._disconnected.set()

    async def _end_of(self, exchange: asyncio.Task[None]) -> LedgerfoldError:
        try:
            await exchange
            return Unavailable("The broker ended the stream.")
        except grpc.RpcError as error:
            return _error_of(error)
        except LedgerfoldError as error:
            return error
        except DecodeError as error:
            return InvalidRequest(f"The broker sent an invalid response: {error}")
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            # The exchange was cancelled, not this task: pause() or drop().
            return Moved("The call was dropped.")

    async def _exchange_on(self, call: Any) -> None:
        """Runs until the broker ends the call. Raises any error that ends it."""
        with suppress(asyncio.InvalidStateError):  # a call that ended: read() raises the reason
            await call.write(self._open_frame())
        response = await call.read()
        while response is not _END and self._is_waiting(response):
            self._is_queued = self._was_queued = True
            response = await call.read()
        self._is_queued = False
        if response is not _END:
            self.is_connected = True
            self._on_open(response)
            if not self._opened.done():
                self._opened.set_result(None)
            await self._converse(call)

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
            # The reading side gets the error and ends the call.
            return


def _error_of(error: grpc.RpcError) -> LedgerfoldError:
    """Returns the error that ended a stream.

    NOTE: gRPC itself may end a call whose connection broke with INTERNAL, without metadata from the
    broker.
    """
    if error.code() is grpc.StatusCode.INTERNAL and not tuple(error.trailing_metadata() or ()):
        return Unavailable(error.details() or "The connection broke.")
    return error_from_rpc(error)
