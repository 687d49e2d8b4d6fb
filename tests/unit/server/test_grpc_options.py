"""gRPC ignores an option that it does not know: a misspelt one fails here."""

from __future__ import annotations

from pathlib import Path

import pytest
from grpc._cython import cygrpc

from ledgerfold.broker.client.streams.connection import CHANNEL_OPTIONS
from ledgerfold.broker.server.grpc_server import CONNECTIONS_MAX, OPTIONS
from ledgerfold.broker.worker.connection import CHANNEL_OPTIONS as WORKER_OPTIONS


@pytest.fixture(scope="module")
def core() -> bytes:
    """Returns gRPC's compiled core, which contains the names of all options."""
    return Path(cygrpc.__file__).read_bytes()


@pytest.mark.parametrize(
    "name",
    sorted({CONNECTIONS_MAX, *(name for name, _ in (*OPTIONS, *CHANNEL_OPTIONS, *WORKER_OPTIONS))}),
)
def test_grpc_supports_the_option(core: bytes, name: str) -> None:
    """Otherwise, for example, the server would disconnect clients that ping an idle connection."""
    assert name.encode() in core


def test_an_unsupported_option_is_detected(core: bytes) -> None:
    """A canary, close to a real one."""
    assert b"grpc.http2.min_recv_ping_interval_without_data_ms" not in core
