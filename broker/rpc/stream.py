"""What opens, feeds and ends a stream: one way for Publish, Subscribe and Read.

The first request opens it. Then one task feeds: it hands each further request on; another delivers.
The stream ends, and neither task is left, when

* delivering is over: all is told, or what is fed has ended with an error of its own (the topic was
  unloaded, say);
* a request is refused: what is fed ends with that error, and delivering raises it once it has told
  what was due before;
* either task meets a defect, an exception that is none of ours: it is raised at once, and the call
  ends with INTERNAL and a sentence (ledgerfold/rpc_errors.py);
* the client goes away: gRPC cancels the handler;
* the client takes nothing, and others need the room (broker/ground/outgoing.py): delivering, which
  waits for it, is given up, and if the client does not even take the error, its connection goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from ledgerfold.broker.ground.outgoing import Share
from ledgerfold.broker.ground.traffic import Peer
from ledgerfold.broker.rpc.severing import sever
from ledgerfold.rpc_errors import abort_with
from ledgerfold.rpc_texts import take_request
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError

Context = grpc.aio.ServicerContext[Any, Any]
# What read() gives at the end of a stream; the stubs do not know it.
EOF = cast(Any, grpc.aio).EOF
# For a client that takes nothing to take the error.
_TELL_S = 1.0


class Fed(Protocol):
    """What a stream is of: a producer, a consumer, a reader."""

    def finish(self) -> None:
        """The client has nothing more to say."""
        ...

    def end(self, error: LedgerfoldError) -> None:
        """The stream is to end with `error`."""
        ...


@dataclass(frozen=True)
class Requests:
    """The requests of one kind of stream. `advice`: to who sends too much at once."""

    message: Any
    bytes_max: int
    advice: str

    async def opening(self, context: Context) -> Any | None:
        """What the first request opens. None: the client went away without a word."""
        frame = await context.read()
        if frame is EOF:
            return None
        request = self.parse(frame)
        if request.WhichOneof("step") != "open":
            raise InvalidRequest(f"The first request of a {self._stream} stream is `open`.")
        take_request(request)
        return request.open

    def parse(self, frame: bytes) -> Any:
        """Raises InvalidRequest."""
        if len(frame) > self.bytes_max:
            raise InvalidRequest(
                f"A request of {len(frame)} bytes: {self.bytes_max} is the most. {self.advice}"
            )
        try:
            return self.message.FromString(frame)
        except DecodeError as error:
            name = self.message.DESCRIPTOR.name
            raise InvalidRequest(f"A request of a {self._stream} stream is no {name}.") from error

    @property
    def _stream(self) -> str:
        return str(self.message.DESCRIPTOR.name).removesuffix("Request")


async def exchange(
    context: Context,
    fed: Fed,
    take: Callable[[bytes], Awaitable[None]],
    deliver: Coroutine[Any, Any, None],
    share: Share | None = None,
) -> None:
    """Hands the stream's frames to `take`, and delivers, until that is over.

    `share`: of what all streams may hold. Raises what `deliver` raises, and a defect of `take`.
    """
    delivering = asyncio.create_task(deliver)
    feeding = asyncio.create_task(feed(context, fed, take))
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
    """Tells the client, if it takes that; its connection goes, if it does not."""
    telling = asyncio.ensure_future(abort_with(context, error))
    await asyncio.wait({telling}, timeout=_TELL_S)
    if not telling.done():
        telling.cancel()
        await asyncio.gather(telling, return_exceptions=True)
        await asyncio.to_thread(sever, context.peer())
        return
    telling.result()


async def feed(context: Context, fed: Fed, take: Callable[[bytes], Awaitable[None]]) -> None:
    """Until the client says no more, or `take` refuses a frame."""
    try:
        while (frame := await context.read()) is not EOF:
            await take(frame)
    except LedgerfoldError as error:
        fed.end(error)
    else:
        fed.finish()


def peer_of(context: Context, connected_ms: int, metadata: Mapping[str, str] | None = None) -> Peer:
    """The client, whose address gRPC writes as "ipv4:127.0.0.1:45414" or "ipv6:%5B::1%5D:99"."""
    address = unquote(context.peer().partition(":")[2])
    return Peer(address, connected_ms, metadata or {})
