"""Tests that exactly the calls of the wire contract are served."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any, cast

import pytest
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor

from ledgerfold.broker.rpc.admin import admin_calls
from ledgerfold.broker.rpc.data import data_calls
from ledgerfold.broker.rpc.handlers import service_handlers
from ledgerfold.broker.server.grpc_server import ADMIN_SERVICE, DATA_SERVICE
from ledgerfold.compactor.service import CompactorService
from ledgerfold.v1 import compactor_pb2
from ledgerfold.v1.compactor_pb2_grpc import CompactorServiceServicer
from tests.model.broker_lab import BrokerLab


def methods_of(service: ServiceDescriptor) -> list[MethodDescriptor]:
    return list(service.methods)


@pytest.mark.parametrize(
    ("service", "calls"), [(ADMIN_SERVICE, admin_calls), (DATA_SERVICE, data_calls)]
)
def test_every_call_of_the_broker_is_served(service: ServiceDescriptor, calls: Any) -> None:
    """As the stream, or the single call, that the contract says."""
    lab = BrokerLab()
    found = calls(lab.broker)
    assert sorted(found) == sorted(method.name for method in methods_of(service))
    handlers = service_handlers(service, found)
    for method in methods_of(service):
        details = SimpleNamespace(method=f"/{service.full_name}/{method.name}")
        handler = cast(Any, handlers.service(cast(Any, details)))
        kinds = (handler.request_streaming, handler.response_streaming)
        assert kinds == (method.client_streaming, method.server_streaming), method.full_name
        yields = inspect.isasyncgenfunction(found[method.name])
        assert yields == (method.server_streaming and not method.client_streaming)
    lab.stop()


def test_every_call_of_the_compactor_is_served() -> None:
    """By a method that streams if the contract says so."""
    for method in methods_of(compactor_pb2.DESCRIPTOR.services_by_name["CompactorService"]):
        handler = getattr(CompactorService, method.name)
        assert handler is not getattr(CompactorServiceServicer, method.name), method.full_name
        assert inspect.isasyncgenfunction(handler) == method.server_streaming, method.full_name
