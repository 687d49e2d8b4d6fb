"""How the calls of a service reach their handlers, as its descriptor says.

    add_generic_rpc_handlers((service_handlers(SERVICE, {"GetClock": get_clock, ...}),))

A handler takes the request and gives the response, or yields the responses. One whose client
streams takes the call's context instead: frames are raw bytes then (broker/wire/frames.py). What a
handler raises ends its call (ledgerfold/rpc_errors.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ledgerfold.broker.ground.outgoing import Outgoing
from ledgerfold.broker.wire.frames import FRAME_BYTES_MAX
from ledgerfold.rpc_errors import errors_told_to
from ledgerfold.rpc_texts import cut_texts, take_request
from ledgerfold.storage.errors import InvalidRequest

Handler = Callable[[Any], Any]


def service_handlers(
    service: ServiceDescriptor, handlers: Mapping[str, Handler], outgoing: Outgoing | None = None
) -> grpc.GenericRpcHandler[Any, Any]:
    """`outgoing`: which streams there may be. Raises KeyError when a method has no handler."""
    streams = outgoing or Outgoing()
    methods = {
        each.name: _method_handler(each, handlers[each.name], streams) for each in service.methods
    }
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _method_handler(
    method: MethodDescriptor, handler: Handler, outgoing: Outgoing
) -> grpc.RpcMethodHandler[Any, Any]:
    async def exchange(_: object, context: Any) -> None:
        async with errors_told_to(context):
            with outgoing.stream():
                await handler(context)

    async def yield_responses(data: bytes, context: Any) -> AsyncIterator[Any]:
        async with errors_told_to(context):
            with outgoing.stream():
                async for response in handler(_parsed(method, data)):
                    yield response

    async def respond(data: bytes, context: Any) -> Any:
        async with errors_told_to(context):
            response = await handler(_parsed(method, data))
            if response.ByteSize() > FRAME_BYTES_MAX:
                cut_texts(response)
            return response

    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(exchange)
    serialize = GetMessageClass(method.output_type).SerializeToString
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(yield_responses, None, serialize)
    return grpc.unary_unary_rpc_method_handler(respond, None, serialize)


def _parsed(method: MethodDescriptor, data: bytes) -> Any:
    """Raises InvalidRequest.

    NOTE: not by gRPC, which answers UNKNOWN and logs a traceback for each piece of garbage.
    """
    try:
        request = GetMessageClass(method.input_type).FromString(data)
    except DecodeError as error:
        raise InvalidRequest(f"This is no {method.input_type.name}: {error}.") from error
    take_request(request)
    return request
