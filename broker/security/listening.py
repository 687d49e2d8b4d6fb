"""Listens for connections to an asyncio protocol, with or without TLS.

With TLS, the protocol begins after the handshake. asyncio's own servers accept any number of
handshakes, and never change their certificate.

Bounds: a handshake takes at most HANDSHAKE_S; at most HANDSHAKES_MAX run at the same time, and more
are refused. A TLS connection has a buffer of BUFFER_BYTES.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import sslproto
from collections.abc import Callable
from typing import Any, cast

from ledgerfold.broker.security.certificates import Certificates

# The header `Server` of answers, without the versions that libraries would add.
SERVER = "ledgerfold"
HANDSHAKE_S = 10.0
HANDSHAKES_MAX = 1000
BUFFER_BYTES = 64 * 1024
_SHUTDOWN_S = 5.0
_BACKLOG = 1024
_log = logging.getLogger(__name__)
_Factory = Callable[[], asyncio.BaseProtocol]


async def open_port(
    factory: _Factory,
    host: str,
    port: int,
    certificates: Certificates | None,
    handshake_s: float = HANDSHAKE_S,
) -> asyncio.Server:
    """Listens; `factory` makes the protocol of each connection. Raises OSError."""
    loop = asyncio.get_running_loop()
    if certificates is None:
        return await loop.create_server(factory, host, port, backlog=_BACKLOG)
    # 256 KiB each, by default, would be 5 GiB of 20,000 connections.
    cast(Any, sslproto.SSLProtocol).max_size = BUFFER_BYTES
    gates = _Gates(factory, certificates, handshake_s)
    return await loop.create_server(lambda: _Gate(gates), host, port, backlog=_BACKLOG)


class _Gates:
    """The handshakes in progress at one port."""

    def __init__(self, factory: _Factory, certificates: Certificates, handshake_s: float) -> None:
        self.factory, self.certificates, self.handshake_s = factory, certificates, handshake_s
        self.tasks: set[asyncio.Task[None]] = set()


class _Early(asyncio.Protocol):
    """Keeps what arrives with the end of a handshake, before the protocol begins."""

    def __init__(self) -> None:
        self.data, self.is_over = bytearray(), False

    def data_received(self, data: bytes) -> None:
        self.data += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_over = True


class _Gate(asyncio.Protocol):
    """A connection whose handshake is not over."""

    def __init__(self, gates: _Gates) -> None:
        self._gates = gates

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        plain, gates = cast(asyncio.Transport, transport), self._gates
        if len(gates.tasks) >= HANDSHAKES_MAX:
            _log.warning("A connection is refused: %d handshakes are in progress", HANDSHAKES_MAX)
            plain.abort()
            return
        plain.pause_reading()
        task = asyncio.get_running_loop().create_task(self._open(plain))
        gates.tasks.add(task)
        task.add_done_callback(gates.tasks.discard)

    async def _open(self, plain: asyncio.Transport) -> None:
        early, peer = _Early(), plain.get_extra_info("peername")
        try:
            secure = await asyncio.get_running_loop().start_tls(
                plain,
                early,
                self._gates.certificates.current().context,
                server_side=True,
                ssl_handshake_timeout=self._gates.handshake_s,
                ssl_shutdown_timeout=_SHUTDOWN_S,
            )
        except OSError as error:
            # SSLError and ConnectionError are OSErrors: the client does not use TLS, does not trust
            # the certificate, or takes too long.
            _log.info("The TLS handshake with %s failed: %s", peer, error)
            plain.abort()
            return
        except BaseException:
            plain.abort()
            raise
        if secure is None or early.is_over:
            return
        protocol = cast(asyncio.Protocol, self._gates.factory())
        secure.set_protocol(protocol)
        protocol.connection_made(secure)
        if early.data:
            protocol.data_received(bytes(early.data))
