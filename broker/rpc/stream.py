"""The common part of the Publish, Subscribe and Read streams: opening, requests, responses, end.

The first request opens the stream. Two tasks follow: one passes on each further request, the other
delivers. The stream ends, and both tasks with it, when

* delivery ends: everything was sent, or the receiver of requests ended with its own error (for
  example, the topic was unloaded);
* a request is refused: the receiver ends with that error, and delivery raises it after sending
  everything that was due before;
* either task finds a defect, an exception that is not a LedgerfoldError: it is raised at once, and
  the call ends with INTERNAL and a message (ledgerfold/rpc_errors.py);
* the client disconnects: gRPC cancels the handler;
* the client does not read, and others need the room (broker/common/outgoing.py): delivery, which
  waits for the client, is abandoned. If the client does not read the error either, its connection
  is shut down, because gRPC keeps the queued responses until they are read, and its Python server
  cannot withdraw a write. The client's other streams end, too; a live client reconnects them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import stat
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, cast
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from ledgerfold.broker.common.outgoing import Share
from ledgerfold.broker.common.traffic import Peer
from ledgerfold.rpc_errors import abort_with
from ledgerfold.rpc_texts import take_request
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError

Context = grpc.aio.ServicerContext[Any, Any]
# The result of read() at the end of a stream; missing in the stubs.
EOF = cast(Any, grpc.aio).EOF
# The time for a stalled client to read the error.
_ERROR_S = 1.0
# Linux, and elsewhere.
_DESCRIPTORS = (Path("/proc/self/fd"), Path("/dev/fd"))
_log = logging.getLogger(__name__)


class Receiver(Protocol):
    """The receiver of a stream's requests: a producer, a consumer, a reader."""

    def finish(self) -> None:
        """Notes that the client has finished sending."""
        ...

    def end(self, error: LedgerfoldError) -> None:
        """Makes the stream end with `error`."""
        ...


@dataclass(frozen=True)
class Requests:
    """The requests of one kind of stream.

    `advice`: added to the error for a request that is too large.
    """

    message: Any
    bytes_max: int
    advice: str

    async def opening(self, context: Context) -> Any | None:
        """Returns the opening of the first request, and sends the headers of the answer.

        None if the client disconnected before sending it.
        """
        frame = await context.read()
        if frame is EOF:
            return None
        request = self.parse(frame)
        if request.WhichOneof("step") != "open":
            raise InvalidRequest(f"The first request of a {self._stream} stream must be `open`.")
        take_request(request)
        # Otherwise the first write sends the headers. If it were cancelled, gRPC would send them
        # again with the error, which fails: the call would never end.
        await context.send_initial_metadata(())
        return request.open

    def parse(self, frame: bytes) -> Any:
        """Parses a request. Raises InvalidRequest."""
        if len(frame) > self.bytes_max:
            raise InvalidRequest(
                f"A request has {len(frame)} bytes; the maximum is {self.bytes_max}. {self.advice}"
            )
        try:
            return self.message.FromString(frame)
        except DecodeError as error:
            name = self.message.DESCRIPTOR.name
            raise InvalidRequest(
                f"A request of a {self._stream} stream is not a {name}."
            ) from error

    @property
    def _stream(self) -> str:
        return str(self.message.DESCRIPTOR.name).removesuffix("Request")


async def exchange(
    context: Context,
    receiver: Receiver,
    take: Callable[[bytes], Awaitable[None]],
    deliver: Coroutine[Any, Any, None],
    share: Share | None = None,
) -> None:
    """Passes the stream's frames to `take`, and delivers, until the stream ends.

    `share`: its part of the limit of all streams. Raises what `deliver` raises, and defects of
    `take`.
    """
    delivering = asyncio.create_task(deliver)
    feeding = asyncio.create_task(feed(context, receiver, take))
    pending = {delivering, feeding}
    if share is not None:
        share.on_overrun(delivering.cancel)
    try:
        while delivering in pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            if share is not None and share.error is not None:
                break
            for task in (delivering, feeding):
                if task in done:
                    task.result()
    finally:
        delivering.cancel()
        feeding.cancel()
        await asyncio.gather(delivering, feeding, return_exceptions=True)
    if share is not None and share.error is not None:
        await _break_off(context, share.error)


async def _break_off(context: Context, error: LedgerfoldError) -> None:
    """Sends the error to the client; shuts down its connection if it does not read it."""
    sending = asyncio.ensure_future(abort_with(context, error))
    await asyncio.wait({sending}, timeout=_ERROR_S)
    if not sending.done():
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)
        await asyncio.to_thread(sever, context.peer())
        return
    sending.result()


async def feed(
    context: Context, receiver: Receiver, take: Callable[[bytes], Awaitable[None]]
) -> None:
    """Passes on frames until the client has finished or `take` refuses one."""
    try:
        while (frame := await context.read()) is not EOF:
            await take(frame)
    except LedgerfoldError as error:
        receiver.end(error)
    else:
        receiver.finish()


def peer_of(context: Context, connected_ms: int, metadata: Mapping[str, str] | None = None) -> Peer:
    """Returns the client."""
    return Peer(address_of(context), connected_ms, metadata or {})


def address_of(context: Context) -> str:
    """Returns the address of the client, with its port.

    GRPC formats addresses like "ipv4:127.0.0.1:45414" or "ipv6:%5B::1%5D:99".
    """
    return unquote(context.peer().partition(":")[2])


def sever(peer: str) -> bool:
    """Shuts down the connection of gRPC's peer ("ipv4:127.0.0.1:45414").

    Returns whether it was found.
    Scans all open files: to be run on a thread.
    """
    address = _socket_address(peer)
    folder = next((each for each in _DESCRIPTORS if each.is_dir()), None)
    if address is None or folder is None:
        return False
    _log.warning("The connection of %s is shut down: it reads nothing", peer)
    shut_down = [_shut_down(int(each), address) for each in os.listdir(folder)]
    return any(shut_down)


def _socket_address(peer: str) -> tuple[str, int] | None:
    kind, _, rest = peer.partition(":")
    host, _, port = unquote(rest).rpartition(":")
    if kind not in ("ipv4", "ipv6") or not port.isdecimal():
        return None
    return host.strip("[]"), int(port)


def _shut_down(descriptor: int, address: tuple[str, int]) -> bool:
    """Shuts down the descriptor if it is a connection to `address`.

    It works on a duplicate, because the number may be reused meanwhile.
    """
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return False
        with socket.socket(fileno=os.dup(descriptor)) as opened:
            if _plain(opened.getpeername()[:2]) != address:
                return False
            opened.shutdown(socket.SHUT_RDWR)
    except OSError:
        # Closed meanwhile, or not connected.
        return False
    return True


def _plain(name: object) -> object:
    """Strips ::ffff: of an IPv4 client on a dual-stack socket, which gRPC does not show."""
    if isinstance(name, tuple) and str(name[0]).startswith("::ffff:"):
        return name[0].removeprefix("::ffff:"), name[1]
    return name
