"""What the wire contract offers is served: generated base classes refuse what has no method."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from ledgerfold.broker.rpc.admin import AdminService
from ledgerfold.broker.server.grpc_server import Server
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.compactor.service import CompactorService
from ledgerfold.v1 import admin_pb2, compactor_pb2, data_pb2
from ledgerfold.v1.admin_pb2_grpc import AdminServiceServicer
from ledgerfold.v1.compactor_pb2_grpc import CompactorServiceServicer


def methods_of(service: ServiceDescriptor) -> list[MethodDescriptor]:
    return list(service.methods)


@pytest.mark.parametrize(
    ("served", "base", "descriptor"),
    [
        (AdminService, AdminServiceServicer, admin_pb2.DESCRIPTOR),
        (CompactorService, CompactorServiceServicer, compactor_pb2.DESCRIPTOR),
    ],
)
def test_every_call_is_served(served: type, base: type, descriptor: Any) -> None:
    """By a method of ours, which streams where the contract says so."""
    for method in methods_of(descriptor.services_by_name[base.__name__.removesuffix("Servicer")]):
        handler = inspect.unwrap(getattr(served, method.name))
        assert handler is not getattr(base, method.name), method.full_name
        streams = inspect.isasyncgenfunction(handler) or inspect.isgeneratorfunction(handler)
        assert streams == method.server_streaming, method.full_name


def test_every_data_call_is_served() -> None:
    """As the stream, or the single call, that the contract says."""

    async def run() -> None:
        handlers = Server(cast(Broker, None))._data_handlers()
        for method in methods_of(data_pb2.DESCRIPTOR.services_by_name["DataService"]):
            path = f"/{method.containing_service.full_name}/{method.name}"
            handler = handlers.service(SimpleNamespace(method=path))
            assert handler is not None, path
            kinds = (handler.request_streaming, handler.response_streaming)
            assert kinds == (method.client_streaming, method.server_streaming), path

    asyncio.run(run())
