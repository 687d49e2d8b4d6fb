"""The protection of a broker: its certificates and its guard, as its options say.

A broker without authentication listens on the loopback only, unless the operator insists.
"""

from __future__ import annotations

import ipaddress
import logging
import socket
from collections.abc import Mapping
from typing import NamedTuple

from ledgerfold.broker.common.clock import WallClock
from ledgerfold.broker.common.security_settings import SecuritySettings
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.security.certificates import Certificates
from ledgerfold.broker.security.guard import Guard, check_settings, verifier_of
from ledgerfold.broker.security.hosts import Hosts, name_of
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import InvalidRequest

_log = logging.getLogger(__name__)


class Protection(NamedTuple):
    """None: no TLS, and no authentication."""

    certificates: Certificates | None
    guard: Guard | None


def protection_of(broker: Broker) -> Protection:
    """Raises InvalidRequest, OSError: of the files."""
    settings = broker.settings.security
    certificates = _certificates(settings)
    if not settings.authenticates:
        return Protection(certificates, None)
    # Credentials expire by the machine's clock.
    return Protection(certificates, Guard(settings, broker.namespaces, WallClock().now_ms))


def _certificates(settings: SecuritySettings) -> Certificates | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    return Certificates(settings.tls_cert, settings.tls_key, settings.tls_client_ca)


def check_protection(settings: SecuritySettings, listens: Mapping[str, str]) -> None:
    """Checks the options before a start. `listens`: the addresses by their options.

    Raises InvalidRequest, OSError.
    """
    check_settings(settings)
    _certificates(settings)
    verifier_of(settings)
    exposed = [option for option, address in listens.items() if not is_loopback(address)]
    if not exposed:
        return
    named = ", ".join(f"{option} {listens[option]}" for option in exposed)
    is_open = not settings.authenticates and settings.tls_client_ca is None
    if is_open and not settings.insecure:
        raise InvalidRequest(
            f"{named}: any client that reaches it could read and delete everything. Authenticate "
            "clients (--token-secret-key or --token-public-key, --superuser-roles), listen on "
            "127.0.0.1, or add --insecure."
        )
    if not settings.uses_tls and not is_open:
        _log.warning("%s: tokens and messages travel unencrypted; use --tls-cert.", named)


def hosts_of(settings: BrokerSettings, guard: Guard | None, listen: str) -> Hosts | None:
    """Returns the hosts that requests at `listen` may name; None: any, because clients authenticate
    (`guard`), or come from other machines, by names that the broker does not know."""
    if guard is not None or not is_loopback(listen):
        return None
    clients = [settings.pulsar_advertise or "", *settings.pulsar_listeners.values()]
    return Hosts([*settings.ui_names, *map(name_of, (listen, *clients))])


def is_loopback(address: str) -> bool:
    """Returns whether "host:port" can be reached from this machine only.

    >>> is_loopback("127.0.0.1:7650"), is_loopback("[::1]:7650"), is_loopback("0.0.0.0:7650")
    (True, True, False)
    """
    host = address.rpartition(":")[0].strip("[]")
    try:
        infos = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError:
        return False
    addresses = [str(each[4][0]).partition("%")[0] for each in infos]
    return all(ipaddress.ip_address(each).is_loopback for each in addresses)
