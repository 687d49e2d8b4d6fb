"""TLS and authentication of a client, with the names of Pulsar's Python client.

    >>> AuthenticationToken("a.b.c").metadata()
    (('authorization', 'Bearer a.b.c'),)
    >>> ClientCredentials().is_tls("ledgerfold+ssl://b.example.org:7650")
    True

A broker's certificate is verified with its host name. With `tls_validate_hostname=False` the client
fetches the certificate first, and accepts the name in it; with `tls_allow_insecure_connection` it
also trusts that certificate.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ledgerfold.broker.client.messages.argument_types import check_fields
from ledgerfold.broker.client.streams.address import address_of
from ledgerfold.storage.errors import AuthenticationFailed, InvalidRequest, Unavailable

Metadata = tuple[tuple[str, str], ...]
_FETCH_S = 10.0


class Authentication:
    """The proof of a client's role."""

    # PEM files of a certificate and its key.
    certificate_path: str | None = None
    private_key_path: str | None = None

    def metadata(self) -> Metadata:
        """Returns what each call carries."""
        return ()


class AuthenticationToken(Authentication):
    """A token, or a function that returns one, which each new stream and call asks.

    The function must not block: it runs in the client's I/O thread, or on the event loop. If it
    raises, opening fails with AuthenticationFailed; what is open tries to connect again.
    """

    def __init__(self, token: str | Callable[[], str]) -> None:
        if isinstance(token, str):
            _check_token(token)
        elif not callable(token):
            raise InvalidRequest("A token is a string, or a function that returns one.")
        self._token = token

    def metadata(self) -> Metadata:
        token: object = self._token if isinstance(self._token, str) else self._token()
        if not isinstance(token, str):
            raise InvalidRequest(f"The function of the token returned {type(token).__name__}.")
        _check_token(token)
        return (("authorization", f"Bearer {token}"),)


def _check_token(token: str) -> None:
    if not token.isascii() or not token.isprintable():
        raise InvalidRequest("A token has only printable ASCII characters.")


class AuthenticationTLS(Authentication):
    """A certificate, whose common name is the role."""

    def __init__(self, certificate_path: str, private_key_path: str) -> None:
        self.certificate_path, self.private_key_path = certificate_path, private_key_path


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientCredentials:
    """The arguments of `Client` and `Admin` about TLS and authentication."""

    authentication: Authentication | None = None
    # The same as the scheme `ledgerfold+ssl`.
    use_tls: bool = False
    # The authorities that sign certificates of brokers (PEM); None: those of gRPC.
    tls_trust_certs_file_path: str | None = None
    tls_allow_insecure_connection: bool = False
    tls_validate_hostname: bool = True
    # The client's own certificate and key (PEM).
    tls_certificate_file_path: str | None = None
    tls_private_key_file_path: str | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if not isinstance(self.authentication, Authentication | None):
            raise InvalidRequest(
                "authentication must be an AuthenticationToken, an AuthenticationTLS or None, not "
                f"{self.authentication!r:.100}."
            )

    def address_in(self, service_url: str) -> str:
        """Returns "host:port". Raises InvalidUrl; InvalidRequest if TLS is set up and not used."""
        address = address_of(service_url)
        if not self.is_tls(service_url) and (unused := self._for_tls()):
            raise InvalidRequest(
                f"{unused} has no effect without TLS, which {service_url} does not use: begin the "
                "URL with ledgerfold+ssl://."
            )
        return address

    def _for_tls(self) -> str:
        """Returns the name of an argument that is given and has an effect only with TLS, or ""."""
        if isinstance(self.authentication, AuthenticationTLS):
            return "AuthenticationTLS"
        arguments = (each for each in fields(ClientCredentials) if each.name.startswith("tls_"))
        given = (each.name for each in arguments if getattr(self, each.name) != each.default)
        return next(given, "")

    def is_tls(self, service_url: str) -> bool:
        return self.use_tls or service_url.partition("://")[0].endswith("+ssl")

    def metadata(self) -> Metadata | None:
        """Returns what each call carries; None: nothing. Raises AuthenticationFailed."""
        if self.authentication is None:
            return None
        try:
            return self.authentication.metadata() or None
        except (Exception, SystemExit) as error:  # user code: a stream must be able to ask it again
            raise AuthenticationFailed(f"The client has no credentials: {error!r:.500}") from error

    @property
    def accepts_any_name(self) -> bool:
        return self.tls_allow_insecure_connection or not self.tls_validate_hostname


def credentials_of(
    name: str, called: Callable[..., Any], options: dict[str, Any]
) -> ClientCredentials:
    """Returns the remaining arguments of a call as credentials.

    Raises InvalidRequest for an unknown one. It lists all optional arguments of `called`, which the
    caller knows as `name`.
    """
    known = {each.name for each in fields(ClientCredentials)}
    unknown = sorted(options.keys() - known)
    if unknown:
        known |= (called.__kwdefaults__ or {}).keys()
        raise InvalidRequest(
            f"{name} has no argument {unknown[0][:100]}. Arguments: {', '.join(sorted(known))}."
        )
    return ClientCredentials(**options)


@dataclass(frozen=True)
class ChannelTarget:
    """The address and the way in which a channel connects. `credentials` None: without TLS."""

    address: str
    credentials: Any = None
    options: tuple[tuple[str, Any], ...] = ()

    def channel(self, api: Any, options: tuple[tuple[str, Any], ...]) -> Any:
        """Opens a channel of `grpc` or `grpc.aio`."""
        if self.credentials is None:
            return api.insecure_channel(self.address, options=options)
        return api.secure_channel(self.address, self.credentials, options=(*options, *self.options))


def target_of(service_url: str, client: ClientCredentials) -> ChannelTarget:
    """Raises InvalidUrl, InvalidRequest: of a file; Unavailable.

    It waits for the broker if its name is not verified.
    """
    address = client.address_in(service_url)
    if not client.is_tls(service_url):
        return ChannelTarget(address)
    import grpc

    own = client.authentication or Authentication()
    certificate = _read(client.tls_certificate_file_path or own.certificate_path)
    key = _read(client.tls_private_key_file_path or own.private_key_path)
    if (certificate is None) != (key is None):
        raise InvalidRequest("A client certificate needs its private key, and the reverse.")
    roots, options = _read(client.tls_trust_certs_file_path), list[tuple[str, Any]]()
    if client.accepts_any_name:
        shown = _shown_certificate(address)
        options.append(("grpc.ssl_target_name_override", _name_in(shown)))
        if client.tls_allow_insecure_connection:
            roots = ssl.DER_cert_to_PEM_cert(shown).encode()
    credentials = grpc.ssl_channel_credentials(roots, key, certificate)
    return ChannelTarget(address, credentials, tuple(options))


def _read(path: str | None) -> bytes | None:
    if path is None:
        return None
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise InvalidRequest(f"{path}: {error.strerror}.") from error


def _shown_certificate(address: str) -> bytes:
    """Returns the certificate that a broker shows, in DER. Raises Unavailable."""
    host, _, port = address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with (
            socket.create_connection((host.strip("[]"), int(port)), _FETCH_S) as plain,
            context.wrap_socket(plain) as secure,
        ):
            certificate = secure.getpeercert(binary_form=True)
    except OSError as error:
        raise Unavailable(f"{address} presents no certificate: {error}") from error
    assert certificate is not None
    return certificate


def _name_in(certificate: bytes) -> str:
    """Returns a name of a certificate in DER. Raises InvalidRequest."""
    from cryptography import x509

    parsed = x509.load_der_x509_certificate(certificate)
    names = list[str]()
    try:
        alternative = parsed.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        names += alternative.get_values_for_type(x509.DNSName)
        names += map(str, alternative.get_values_for_type(x509.IPAddress))
    except x509.ExtensionNotFound:
        common = parsed.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        names += (str(each.value) for each in common)
    if not names:
        raise InvalidRequest("The broker's certificate has no name.")
    return names[0].replace("*", "any")
