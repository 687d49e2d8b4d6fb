"""What opens, feeds and ends a stream: one way for Publish, Subscribe and Read.

The first request opens it. Then one task feeds: it hands each further request on; another delivers.
The stream ends, and neither task is left, when

* delivering is over: all is told, or what is fed has ended with an error of its own (the topic was
  unloaded, say);
* a request is refused: what is fed ends with that error, and delivering raises it once it has told
  what was due before;
* either task meets a defect, an exception that is none of ours: it is raised at once, and the call
  ends with INTERNAL and a sentence (ledgerfold/rpc_errors.py);
* the client goes away: gRPC cancels the handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from ledgerfold.broker.ground.traffic import Peer
from ledgerfold.rpc_texts import take_request
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError

Context = grpc.aio.ServicerContext[Any, Any]
# What read() gives at the end of a stream; the stubs do not know it.
EOF = cast(Any, grpc.aio).EOF


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
) -> None:
    """Hands the stream's frames to `take`, and delivers, until that is over.

    Raises what `deliver` raises, and a defect of `take`.
    """
    delivering = asyncio.create_task(deliver)
    feeding = asyncio.create_task(feed(context, fed, take))
    pending = {delivering, feeding}
    try:
        while delivering in pending:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in (delivering, feeding):
                if task in done:
                    task.result()
    finally:
        delivering.cancel()
        feeding.cancel()
        await asyncio.gather(delivering, feeding, return_exceptions=True)


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
