"""TLS at the ports of asyncio: versions, handshakes, certificates that change."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ledgerfold.broker.security import listening
from ledgerfold.broker.security.certificates import Certificates, common_name
from ledgerfold.broker.security.listening import open_port
from ledgerfold.storage.errors import InvalidRequest
from tests.support.security_lab import Authority, Pair
from tests.support.waiting import WAIT_S, wait_until


class Echo(asyncio.Protocol):
    """Sends back what comes; to "who?", the common name of the client's certificate."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        if data == b"who?":
            certificate = self.transport.get_extra_info("peercert")
            data = str(common_name(certificate)).encode()
        self.transport.write(data)


class Port:
    """A port of the protocol, on a loop in a thread. Usually, no handshake reaches its limit while
    a test waits.
    """

    def __init__(self, certificates: Certificates, handshake_s: float = 2 * WAIT_S) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        opening = open_port(Echo, "127.0.0.1", 0, certificates, handshake_s)
        self._server = asyncio.run_coroutine_threadsafe(opening, self.loop).result(WAIT_S)
        self.number = int(self._server.sockets[0].getsockname()[1])

    def ask(self, context: ssl.SSLContext, text: bytes = b"hello") -> tuple[bytes, Any]:
        """Returns the answer, and the certificate of the port. Raises OSError."""

        async def asking() -> tuple[bytes, Any]:
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.number, ssl=context, server_hostname="localhost"
            )
            try:
                writer.write(text)
                answer = await reader.read(100)
                if not answer:
                    raise ConnectionResetError("nothing")
                return answer, writer.get_extra_info("peercert")
            finally:
                writer.transport.abort()

        return asyncio.run(asyncio.wait_for(asking(), WAIT_S))

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            for _ in range(5):
                await asyncio.sleep(0)

        asyncio.run_coroutine_threadsafe(end(), self.loop).result(WAIT_S)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


OpenPort = Callable[..., Port]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def port() -> Iterator[OpenPort]:
    opened: list[Port] = []

    def make(certificates: Certificates, **options: Any) -> Port:
        opened.append(Port(certificates, **options))
        return opened[-1]

    yield make
    for each in opened:
        each.close()


def trusting(authority: Authority, own: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.file))
    if own is not None:
        context.load_cert_chain(own.certificate, own.key)
    return context


def of(pair: Pair, client_ca: Path | None = None) -> Certificates:
    return Certificates(pair.certificate, pair.key, client_ca)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_supported_tls_versions(
    authority: Authority, port: OpenPort, version: ssl.TLSVersion
) -> None:
    context = trusting(authority)
    context.minimum_version = context.maximum_version = version
    opened = port(of(authority.sign("broker")))
    assert opened.ask(context, b"x" * 90)[0] == b"x" * 90


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_a_downgrade_is_refused(
    authority: Authority, port: OpenPort, version: ssl.TLSVersion
) -> None:
    """A downgrade: also a client that would accept anything gets no older version."""
    context = trusting(authority)
    context.set_ciphers("ALL:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    opened = port(of(authority.sign("broker")))
    with pytest.raises((ssl.SSLError, ConnectionError)):
        opened.ask(context)


def test_a_handshake_has_a_time_limit(authority: Authority, port: OpenPort) -> None:
    """Slow loris: a client that connects and says nothing, or a byte, is closed."""
    opened = port(of(authority.sign("broker")), handshake_s=0.05)

    async def silent() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", opened.number)
        writer.write(b"\x16")
        try:
            return await asyncio.wait_for(reader.read(), WAIT_S)
        except ConnectionResetError:
            return b""
        finally:
            writer.transport.abort()

    assert asyncio.run(silent()) == b""

    def is_served() -> bool:
        # On a busy machine, an honest handshake takes longer than the limit, too.
        with contextlib.suppress(OSError):
            return opened.ask(trusting(authority))[0] == b"hello"
        return False

    wait_until(is_served, "another client")


def test_handshakes_in_progress_are_bounded(
    authority: Authority, port: OpenPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "HANDSHAKES_MAX", 3)
    opened = port(of(authority.sign("broker")))

    async def crowd() -> int:
        """Returns how many of four silent clients are closed at once."""
        connected = [await asyncio.open_connection("127.0.0.1", opened.number) for _ in range(4)]
        reading = [asyncio.ensure_future(reader.read()) for reader, _ in connected]
        done, waiting = await asyncio.wait(
            reading, timeout=WAIT_S, return_when=asyncio.FIRST_COMPLETED
        )
        for _, writer in connected:
            writer.transport.abort()
        await asyncio.gather(*done, *waiting, return_exceptions=True)
        return len(done)

    assert asyncio.run(crowd()) == 1


def test_a_client_without_tls_is_disconnected(authority: Authority, port: OpenPort) -> None:
    opened = port(of(authority.sign("broker")))

    async def plain() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", opened.number)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        try:
            return await asyncio.wait_for(reader.read(), WAIT_S)
        except ConnectionResetError:
            return b""
        finally:
            writer.transport.abort()

    assert b"hello" not in asyncio.run(plain())


def test_client_certificates(authority: Authority, port: OpenPort, tmp_path: Path) -> None:
    opened = port(of(authority.sign("broker"), authority.file))
    own = trusting(authority, authority.sign("billing"))
    assert opened.ask(own, b"who?")[0] == b"billing"
    with pytest.raises((ssl.SSLError, ConnectionError)):
        opened.ask(trusting(authority))
    # Of another authority with the same name.
    (tmp_path / "other").mkdir()
    stranger = Authority(tmp_path / "other").sign("billing")
    with pytest.raises((ssl.SSLError, ConnectionError)):
        opened.ask(trusting(authority, stranger))


def test_a_changed_certificate_applies_to_new_connections(
    authority: Authority, port: OpenPort, caplog: pytest.LogCaptureFixture
) -> None:
    pair = authority.sign("before", "broker")
    opened, context = port(of(pair)), trusting(authority)
    assert common_name(opened.ask(context)[1]) == "before"
    authority.sign("after", "broker")
    assert common_name(opened.ask(context)[1]) == "after"
    # A certificate and a key that do not belong together, as in the middle of a change.
    last = authority.sign("last", "other")
    pair.certificate.write_bytes(last.certificate.read_bytes())
    with caplog.at_level(logging.ERROR):
        assert common_name(opened.ask(context)[1]) == "after"
        assert common_name(opened.ask(context)[1]) == "after"
    assert len(caplog.messages) == 1
    assert "stays in use" in caplog.messages[0]
    pair.key.write_bytes(last.key.read_bytes())
    assert common_name(opened.ask(context)[1]) == "last"
    pair.key.unlink()
    assert common_name(opened.ask(context)[1]) == "last"


def test_a_start_refuses_invalid_certificates(authority: Authority, tmp_path: Path) -> None:
    pair, other = authority.sign("one"), authority.sign("two")
    with pytest.raises(InvalidRequest, match="Not usable for TLS"):
        Certificates(pair.certificate, other.key)
    with pytest.raises(OSError, match="No such file"):
        Certificates(pair.certificate, tmp_path / "missing")
    with pytest.raises(InvalidRequest, match="Not usable for TLS"):
        Certificates(pair.certificate, pair.key, pair.key)
