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
from google.protobuf.message_factory import GetMessageClass

from ledgerfold.rpc_errors import errors_told_to

Handler = Callable[[Any], Any]


def service_handlers(
    service: ServiceDescriptor, handlers: Mapping[str, Handler]
) -> grpc.GenericRpcHandler[Any, Any]:
    """Raises KeyError when a method has no handler."""
    methods = {each.name: _method_handler(each, handlers[each.name]) for each in service.methods}
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _method_handler(method: MethodDescriptor, handler: Handler) -> grpc.RpcMethodHandler[Any, Any]:
    async def exchange(_: object, context: Any) -> None:
        async with errors_told_to(context):
            await handler(context)

    async def yield_responses(request: Any, context: Any) -> AsyncIterator[Any]:
        async with errors_told_to(context):
            async for response in handler(request):
                yield response

    async def respond(request: Any, context: Any) -> Any:
        async with errors_told_to(context):
            return await handler(request)

    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(exchange)
    parse = GetMessageClass(method.input_type).FromString
    serialize = GetMessageClass(method.output_type).SerializeToString
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(yield_responses, parse, serialize)
    return grpc.unary_unary_rpc_method_handler(respond, parse, serialize)
