"""A connection of Pulsar's binary protocol: parsing, handling of commands, and closing.

Frames are handled in order, one at a time. A command that waits for the broker (a producer, a
subscription, a seek) continues as a task. An entry for which the log has no room holds back the
whole connection. A malformed or oversized frame closes it, and nothing else.

Bounds: not more than one frame and READ_AHEAD_BYTES wait to be handled; then nothing is read. No
command is handled while the commands that wait for the broker exceed WAITING_BYTES_MAX, because
schemas are large.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from typing import cast

from ledgerfold.broker.pulsar.authentication import Authentication
from ledgerfold.broker.pulsar.consuming import Consuming
from ledgerfold.broker.pulsar.errors import (
    Refusal,
    error_answer,
    number_for_producer,
    number_for_unsubscribe,
    refusal_by,
)
from ledgerfold.broker.pulsar.frames import (
    NO_REQUEST,
    Frame,
    Splitter,
    command,
    encode,
    parse,
)
from ledgerfold.broker.pulsar.link import Link
from ledgerfold.broker.pulsar.lookups import Lookups
from ledgerfold.broker.pulsar.producing import Producing
from ledgerfold.broker.pulsar.schemas import SchemaCommands
from ledgerfold.broker.pulsar.shared import Shared
from ledgerfold.broker.pulsar.watching import Watching
from ledgerfold.broker.security.guard import target_of
from ledgerfold.broker.security.needs import COMMANDS, Need
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand

READ_AHEAD_BYTES = 1024 * 1024
WAITING_BYTES_MAX = 32 * 1024 * 1024
# Other tasks run after frames of one connection have taken this long.
SLICE_S = 0.002
# The limit of a frame before CONNECT, when the client is unknown.
FIRST_FRAME_BYTES_MAX = 64 * 1024
PROTOCOL_VERSION = 20
# Pulsar's connectionLivenessCheckTimeoutMillis.
ALIVE_S = 5.0
_PONG = encode(command(pulsar_pb2.CommandPong()))
_PING = encode(command(pulsar_pb2.CommandPing()))
_log = logging.getLogger(__name__)
_Handler = Callable[[BaseCommand], Awaitable[None]]
# The field of each command, and its handler.
_Handlers = dict[int, tuple[str, _Handler]]


class Connection(asyncio.Protocol):
    """One client."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._splitter = Splitter(FIRST_FRAME_BYTES_MAX)
        self._frames: deque[bytes] = deque()
        # Of complete frames; of commands that wait for the broker; of those and an incomplete one,
        # as counted for all connections.
        self._frames_bytes = self._waiting_bytes = self._held_bytes = 0
        self._arrived, self._answered = asyncio.Event(), asyncio.Event()
        self._has_received, self._lost = asyncio.Event(), asyncio.Event()
        self._is_paused = self.is_connected = False
        self.began_s = self.received_s = shared.now_s()
        self._authentication: Authentication | None = None

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        shared = self._shared
        self._link = link = Link(shared.broker, self._transport, shared.guard)
        if shared.guard is not None:
            self._authentication = Authentication(shared.guard, link, self._transport, self._refuse)
        self._producing = Producing(link, shared.producers, shared.end_silent)
        self._consuming = Consuming(link, shared.batch_acks, shared.end_silent)
        self._watching = Watching(link, shared.topic_lists)
        self._immediate, self._as_tasks = self._handlers(
            Lookups(
                link,
                shared.url(self._transport),
                is_advertised=shared.advertised is not None,
            )
        )
        shared.opened(self)
        self._reading = asyncio.get_running_loop().create_task(self._read())

    def data_received(self, data: bytes) -> None:
        self.received_s = self._shared.now_s()
        self._has_received.set()
        try:
            frames = self._splitter.feed(data)
        except InvalidRequest as error:
            self._refuse(error)
            return
        finally:
            self._count_held()
        if frames:
            self._frames.extend(frames)
            self._frames_bytes += sum(map(len, frames))
            self._count_held()
            self._arrived.set()
        if self._frames_bytes > READ_AHEAD_BYTES and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()
        self._shared.check_held()

    def _count_held(self) -> None:
        """Counts what was received and is not handled, until the connection is lost."""
        if self._link.is_closed:
            return
        held_bytes = self._splitter.held + self._frames_bytes + self._waiting_bytes
        self._shared.held_bytes += held_bytes - self._held_bytes
        self._held_bytes = held_bytes

    def pause_writing(self) -> None:
        self._link.pause()

    def resume_writing(self) -> None:
        self._link.resume()

    def connection_lost(self, exc: Exception | None) -> None:
        self._reading.cancel()
        self._shared.closed(self)
        self._shared.held_bytes -= self._held_bytes
        self._frames.clear()
        self._link.closed(self._end)
        self._lost.set()
        # A caller of end_silent() need not wait for a frame.
        self._has_received.set()

    def _end(self) -> None:
        self._producing.closed()
        self._consuming.closed()
        self._watching.closed()
        if self._authentication is not None:
            self._authentication.closed()

    # Called for all connections

    @property
    def held_bytes(self) -> int:
        """The size of the received bytes that are not handled yet."""
        return self._held_bytes

    @property
    def is_held_back(self) -> bool:
        """Returns whether the broker does not read what the client sends, although the client reads
        what the broker sends.
        """
        return self._is_paused and self._link.is_writable

    def look_for_ends(self) -> None:
        self._consuming.look_for_ends()

    def ping(self) -> None:
        if self.is_connected:
            self._link.write(_PING)

    @property
    def address(self) -> str:
        return self._link.address

    async def end_silent(self) -> bool:
        """Pings the client, and closes the connection if it is silent for ALIVE_S.

        Returns whether the connection has ended.
        """
        self._has_received.clear()
        self.ping()
        try:
            await asyncio.wait_for(self._has_received.wait(), ALIVE_S)
        except TimeoutError:
            if self.is_held_back:
                return False
            self.abort(f"it was silent for {ALIVE_S:.0f} s, and another client waits for its end")
            await self._lost.wait()
        return self._lost.is_set()

    def close(self) -> None:
        """Closes the connection once everything written was sent."""
        self._link.close()

    def abort(self, why: str) -> None:
        _log.warning("The connection of %s is closed: %s", self._link.address, why)
        self._link.abort()

    # Frames

    async def _read(self) -> None:
        try:
            while True:
                await self._arrived.wait()
                self._arrived.clear()
                began_s = self._shared.now_s()
                while self._frames:
                    frame = self._frames.popleft()
                    await self._link.writable()
                    while self._waiting_bytes > WAITING_BYTES_MAX:
                        self._answered.clear()
                        await self._answered.wait()
                    await self._handle(parse(frame), len(frame))
                    self._handled(len(frame))
                    del frame
                    if self._shared.now_s() - began_s > SLICE_S:
                        await asyncio.sleep(0)
                        began_s = self._shared.now_s()
        except LedgerfoldError as error:
            self._refuse(error)
        except Exception:
            _log.exception("The connection of %s is closed", self._link.address)
            self._link.abort()

    def _handled(self, size_bytes: int) -> None:
        self._frames_bytes -= size_bytes
        self._count_held()
        if self._is_paused and self._frames_bytes <= READ_AHEAD_BYTES:
            self._is_paused = False
            self.received_s = self._shared.now_s()
            self._transport.resume_reading()

    def _refuse(self, error: LedgerfoldError) -> None:
        """Sends the error, and closes the connection."""
        _log.warning("The connection of %s is closed: %s", self._link.address, error)
        self._link.send(error_answer(NO_REQUEST, error))
        self._link.close()

    async def _handle(self, frame: Frame, size_bytes: int) -> None:
        """Handles a frame. Raises InvalidRequest."""
        request = frame.command
        if not self.is_connected:
            self._connect(request)
            return
        if request.type == pulsar_pb2.SEND:
            _check_field(request, "send")
            await self._producing.send(frame)
        elif request.type == pulsar_pb2.PING:
            self._link.write(_PONG)
        elif (at_once := self._immediate.get(request.type)) is not None:
            await self._answer_at_once(request, *at_once)
        elif (as_task := self._as_tasks.get(request.type)) is not None:
            _check_field(request, as_task[0])
            self._wait(size_bytes)
            answering = self._link.spawn(self._answer(request, *as_task))
            answering.add_done_callback(lambda _: self._wait(-size_bytes))
        elif request.type == pulsar_pb2.AUTH_RESPONSE and self._authentication is not None:
            _check_field(request, "auth_response")
            self._authentication.take(request.auth_response)
        elif request.type != pulsar_pb2.PONG:
            # Newer clients may send other commands.
            _log.info("%s sent the unknown command %d", self._link.address, request.type)

    def _wait(self, size_bytes: int) -> None:
        """Counts a command that waits for the broker, or no longer does."""
        self._waiting_bytes += size_bytes
        self._count_held()
        self._answered.set()

    async def _answer_at_once(self, request: BaseCommand, field: str, handler: _Handler) -> None:
        _check_field(request, field)
        try:
            await handler(request)
        except LedgerfoldError as error:
            if field not in _REFUSALS:
                raise
            self._link.send(_REFUSALS[field](getattr(request, field).request_id, error))

    async def _answer(self, request: BaseCommand, field: str, handler: _Handler) -> None:
        """Handles a command that has an answer. A refusal is an answer, too."""
        try:
            self._link.check_room()
            await handler(request)
        except LedgerfoldError as error:
            request_id = getattr(request, field).request_id
            self._link.send(_REFUSALS.get(field, error_answer)(request_id, error))

    def _connect(self, request: BaseCommand) -> None:
        if request.type != pulsar_pb2.CONNECT or not request.HasField("connect"):
            raise InvalidRequest("The first command of a connection is CONNECT.")
        connect, link = request.connect, self._link
        try:
            if self._authentication is not None:
                self._authentication.connect(connect)
            # Otherwise credentials are ignored, as by a Pulsar without authentication: programs
            # that pass them connect unchanged.
        finally:
            if link.broker.rates is not None:
                link.broker.rates.take(link.client)
        link.client_version = connect.client_version[:200].decode(errors="replace")
        self.is_connected = True
        self._splitter.frame_bytes_max = self._shared.frame_bytes_max
        answer = pulsar_pb2.CommandConnected(
            server_version="Ledgerfold",
            protocol_version=min(connect.protocol_version, PROTOCOL_VERSION),
            max_message_size=link.broker.settings.message_bytes_max,
            feature_flags=pulsar_pb2.FeatureFlags(
                supports_auth_refresh=True,
                supports_topic_watchers=True,
                supports_get_partitioned_metadata_without_auto_creation=True,
            ),
        )
        link.send(answer)

    def _handlers(self, lookups: Lookups) -> tuple[_Handlers, _Handlers]:
        """Returns the handlers of commands that are done at once, and of commands that may wait."""
        producing, consuming, types = self._producing, self._consuming, pulsar_pb2
        schemas = SchemaCommands(self._link)
        looking_up: _Handlers = {
            types.PARTITIONED_METADATA: ("partitioned_metadata", lookups.partitions),
            types.LOOKUP: ("lookup", lookups.lookup),
        }
        # They wait for nothing, except for faults.
        may_wait = self._link.broker.faults is not None
        at_once: _Handlers = {
            types.FLOW: ("flow", consuming.flow),
            types.ACK: ("ack", consuming.acknowledge),
            types.REDELIVER_UNACKNOWLEDGED_MESSAGES: ("redeliver", consuming.redeliver),
            types.CONSUMER_STATS: ("consumer_stats", consuming.stats),
            types.GET_SCHEMA: ("get_schema", schemas.get),
            types.TC_CLIENT_CONNECT_REQUEST: ("tc_client_connect_request", lookups.transactions),
            **({} if may_wait else looking_up),
        }
        as_tasks: _Handlers = {
            types.PRODUCER: ("producer", producing.open),
            types.CLOSE_PRODUCER: ("close_producer", producing.close),
            types.SUBSCRIBE: ("subscribe", consuming.open),
            types.CLOSE_CONSUMER: ("close_consumer", consuming.close),
            types.UNSUBSCRIBE: ("unsubscribe", consuming.unsubscribe),
            types.GET_OR_CREATE_SCHEMA: ("get_or_create_schema", schemas.get_or_create),
            types.SEEK: ("seek", consuming.seek),
            types.GET_LAST_MESSAGE_ID: ("get_last_message_id", consuming.last_message_id),
            types.GET_TOPICS_OF_NAMESPACE: ("get_topics_of_namespace", lookups.topics),
            types.WATCH_TOPIC_LIST: ("watch_topic_list", self._watching.watch),
            types.WATCH_TOPIC_LIST_CLOSE: ("watch_topic_list_close", self._watching.close),
            **(looking_up if may_wait else {}),
        }
        return self._checked(at_once), self._checked(as_tasks)

    def _checked(self, handlers: _Handlers) -> _Handlers:
        """Adds the checks of each command: what it needs, and the rate of requests, if any."""
        return {
            type_: (field, self._with_checks(type_, field, handler))
            for type_, (field, handler) in handlers.items()
        }

    def _with_checks(self, type_: int, field: str, handler: _Handler) -> _Handler:
        need = COMMANDS.get(pulsar_pb2.CommandType.Name(type_), Need.SUPERUSER)
        has_need = self._authentication is not None and need is not Need.OPENED
        rates = self._link.broker.rates if field in _COUNTED else None
        if not has_need and rates is None:
            return handler

        async def checked(request: BaseCommand) -> None:
            if rates is not None:
                rates.take(self._link.client)
            if has_need:
                self._link.check(need, target_of(getattr(request, field)))
            await handler(request)

        return checked


# The commands that count as requests: they have an answer, and close nothing.
_COUNTED = frozenset(
    {
        "partitioned_metadata", "lookup", "get_schema", "producer", "subscribe", "unsubscribe",
        "get_or_create_schema", "seek", "get_last_message_id", "get_topics_of_namespace",
        "watch_topic_list",
    }
)  # fmt: skip
# The answers of commands that have an error of their own; others have ERROR.
_REFUSALS: dict[str, Refusal] = {
    "producer": refusal_by(pulsar_pb2.CommandError, number_for_producer),
    "partitioned_metadata": refusal_by(pulsar_pb2.CommandPartitionedMetadataResponse, response=1),
    "lookup": refusal_by(pulsar_pb2.CommandLookupResponse, response=2),
    "get_schema": refusal_by(pulsar_pb2.CommandGetSchemaResponse),
    "get_or_create_schema": refusal_by(pulsar_pb2.CommandGetOrCreateSchemaResponse),
    "unsubscribe": refusal_by(pulsar_pb2.CommandError, number_for_unsubscribe),
}


def _check_field(request: BaseCommand, field: str) -> None:
    if not request.HasField(field):
        raise InvalidRequest(f"The command {request.type} has no {field}.")
