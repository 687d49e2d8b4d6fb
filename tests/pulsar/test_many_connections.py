"""Many connections to the ports of one broker: it serves on, and closes those that say nothing."""

from __future__ import annotations

import contextlib
import resource
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from ledgerfold import AuthenticationToken
from ledgerfold.admin import Admin
from ledgerfold.v1 import pulsar_pb2
from tests.pulsar.recorded import RawClient
from tests.pulsar.test_guarded_commands import connect
from tests.support.broker_process import BrokerProcess
from tests.support.security_lab import Authority, Tokens, tls_options
from tests.support.waiting import WAIT_S

CONNECTIONS = 2000
PING = pulsar_pb2.BaseCommand(type=pulsar_pb2.PING, ping=pulsar_pb2.CommandPing())


@pytest.fixture
def descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 2 * CONNECTIONS + 1000), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.slow
@pytest.mark.usefixtures("descriptors")
def test_two_thousand_connections(tmp_path: Path) -> None:
    """Half are clients with TLS and a token, half say nothing at the ports of TLS and gRPC."""
    authority, tokens = Authority(tmp_path), Tokens(tmp_path)
    arguments = (
        *("--compactor", "off", "--pulsar-listen", "127.0.0.1:0", *tokens.options),
        *tls_options(authority.sign("broker")),
    )
    context = ssl.create_default_context(cafile=str(authority.file))
    with (
        BrokerProcess(tmp_path / "data", arguments=arguments) as broker,
        contextlib.ExitStack() as opened,
    ):
        before_bytes = _resident_bytes(broker.pid)
        url, hello = str(broker.ready["pulsar"]), connect(tokens.of("admin"))
        silent = [_dial(each) for each in (url, broker.url) for _ in range(CONNECTIONS // 4)]
        for each in silent:
            opened.callback(each.close)
        clients = list[RawClient]()
        for _ in range(CONNECTIONS // 2):
            client = RawClient(url, is_connected=False, tls=context)
            clients.append(opened.enter_context(client))
            client.send(hello)
        assert all(client.read().HasField("connected") for client in clients)
        with Admin(
            f"ledgerfold+ssl://{broker.url}",
            tls_trust_certs_file_path=str(authority.file),
            authentication=AuthenticationToken(tokens.of("admin")),
        ) as admin:
            assert admin.broker_info().streams == CONNECTIONS // 2
        grown_bytes = _resident_bytes(broker.pid) - before_bytes
        assert grown_bytes < CONNECTIONS // 2 * 256 * 1024
        # A silent client is disconnected within 10 s; one that has begun is not.
        for each in silent:
            each.settimeout(WAIT_S)
            with contextlib.suppress(ConnectionResetError):
                while each.recv(100):
                    pass
        clients[0].send(PING)
        assert clients[0].read().HasField("pong")


def _dial(url: str) -> socket.socket:
    host, _, port = url.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=WAIT_S)


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


@pytest.mark.slow
def test_a_silent_client_is_disconnected(tmp_path: Path) -> None:
    """Also without TLS."""
    arguments = ("--compactor", "off", "--pulsar-listen", "127.0.0.1:0")
    with (
        BrokerProcess(tmp_path / "data", arguments=arguments) as broker,
        _dial(str(broker.ready["pulsar"])) as silent,
    ):
        silent.settimeout(WAIT_S)
        assert silent.recv(100) == b""
