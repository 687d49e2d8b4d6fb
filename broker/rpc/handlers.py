"""The registration of a service's handlers, according to its descriptor.

  add_generic_rpc_handlers((service_handlers(SERVICE, {"GetClock": get_clock, ...}),))

A handler takes the request and returns the response, None for an empty one, or yields the
responses. For a call whose client streams it takes the call's context instead: frames are raw bytes
then (broker/wire/frames.py). An error raised by a handler ends its call (ledgerfold/rpc_errors.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ledgerfold.broker.common.outgoing import Outgoing
from ledgerfold.broker.common.request_rates import RequestRates
from ledgerfold.broker.rpc.guarded import GuardedMethod
from ledgerfold.broker.security.guard import Guard
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.wire.frames import FRAME_BYTES_MAX
from ledgerfold.rpc_errors import abort_on_error
from ledgerfold.rpc_texts import cut_texts, take_request
from ledgerfold.storage.errors import InvalidRequest, LimitExceeded
from ledgerfold.v1 import admin_pb2, kafka_pb2

Handler = Callable[[Any], Any]
_LESS = "If the call allows it, ask for one namespace or topic, for a page, or with a limit."
_CALLS = {
    method.input_type.name: method.name
    for contract in (admin_pb2, kafka_pb2)
    for service in contract.DESCRIPTOR.services_by_name.values()
    for method in service.methods
}


class Handlers:
    """The handlers of the calls about one subject."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker


def calls_of(*served: object) -> dict[str, Handler]:
    """Returns the public methods of the objects by the names of their calls in the wire contract.

    A method serves the call whose request it takes, by the type of its parameter `request`.
    """
    return {
        _CALLS[request.rpartition(".")[2]]: getattr(each, name)
        for each in served
        for name, method in vars(type(each)).items()
        if not name.startswith("_")
        if (request := getattr(method, "__annotations__", {}).get("request"))
    }


def service_handlers(
    service: ServiceDescriptor,
    handlers: Mapping[str, Handler],
    outgoing: Outgoing | None = None,
    guard: Guard | None = None,
    rates: RequestRates | None = None,
) -> grpc.GenericRpcHandler[Any, Any]:
    """Returns the service's gRPC handler. Raises KeyError if a method has no handler.

    `outgoing`: limits the number of streams. `guard`: decides who may call. `rates`: limits calls.
    """
    streams = outgoing or Outgoing()
    methods = {
        each.name: _method_handler(
            each, handlers[each.name], streams, GuardedMethod(guard, each, rates)
        )
        for each in service.methods
    }
    return grpc.method_handlers_generic_handler(service.full_name, methods)


def _method_handler(
    method: MethodDescriptor,
    handler: Handler,
    outgoing: Outgoing,
    guarded: GuardedMethod,
) -> grpc.RpcMethodHandler[Any, Any]:
    answer_type = GetMessageClass(method.output_type)
    empty = answer_type()

    async def exchange(_: object, context: Any) -> None:
        async with abort_on_error(context), guarded.stream(context) as checked:
            with outgoing.stream():
                await handler(checked)

    async def yield_responses(data: bytes, context: Any) -> AsyncIterator[Any]:
        async with abort_on_error(context), guarded.watched(context) as opened:
            request = _parsed(method, data)
            opened(request)
            take_request(request)
            with outgoing.stream():
                async for response in handler(request):
                    yield response

    async def respond(data: bytes, context: Any) -> Any:
        async with abort_on_error(context):
            caller = guarded.admit(context)
            request = _parsed(method, data)
            guarded.check(caller, request)
            take_request(request)
            response = await handler(request)
            if response is None:
                return empty
            if response.ByteSize() > FRAME_BYTES_MAX:
                cut_texts(response)
                _check_size(method, response.ByteSize())
            return response

    if method.client_streaming:
        return grpc.stream_stream_rpc_method_handler(exchange)
    serialize = answer_type.SerializeToString
    if method.server_streaming:
        return grpc.unary_stream_rpc_method_handler(yield_responses, None, serialize)
    return grpc.unary_unary_rpc_method_handler(respond, None, serialize)


def _check_size(method: MethodDescriptor, size_bytes: int) -> None:
    """Raises LimitExceeded for an answer that gRPC would not send."""
    if size_bytes > FRAME_BYTES_MAX:
        raise LimitExceeded(
            f"Bytes of the answer to {method.name}", size_bytes, FRAME_BYTES_MAX, _LESS
        )


def _parsed(method: MethodDescriptor, data: bytes) -> Any:
    """Parses a request, and looks at nothing in it: its caller may not be permitted.

    NOTE: not by gRPC, which answers UNKNOWN and logs a traceback for each malformed request. Raises
    InvalidRequest.
    """
    try:
        return GetMessageClass(method.input_type).FromString(data)
    except DecodeError as error:
        raise InvalidRequest(f"Not a valid {method.input_type.name}: {error}.") from error
