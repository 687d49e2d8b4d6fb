"""Parses the address of a broker.

>>> address_of("pulsar://127.0.0.1:7650")
'127.0.0.1:7650'
"""

from __future__ import annotations

import re

from ledgerfold.storage.errors import InvalidUrl

_SCHEMES = ("ledgerfold", "grpc", "pulsar", "ledgerfold+ssl", "grpc+ssl", "pulsar+ssl")
_ADDRESS = re.compile(r"([A-Za-z0-9_.-]+|\[[0-9A-Fa-f:.]*:[0-9A-Fa-f:.%]*\]):(?P<port>[0-9]{1,5})")
_PORT_MAX = 65_535


def address_of(service_url: str) -> str:
    """Returns the gRPC target of "host:port", with or without one of the schemes. Raises
    InvalidUrl.

    gRPC itself would accept other targets and retry a mistyped one without end.
    """
    if not isinstance(service_url, str):
        raise InvalidUrl(f"A service URL must be a string, not {type(service_url).__name__}.")
    scheme, separator, rest = service_url.partition("://")
    address = (rest if separator else service_url).rstrip("/")
    if "," in address.strip(","):
        raise InvalidUrl(
            f"Service URL {service_url!r} names several brokers. Pass one, as host:port: "
            "brokers do not share topics."
        )
    match = _ADDRESS.fullmatch(address)
    is_known = not separator or scheme in _SCHEMES
    if not is_known or match is None or not 0 < int(match["port"]) <= _PORT_MAX:
        raise InvalidUrl(f"Service URL {service_url!r}: expected host:port.")
    return address
