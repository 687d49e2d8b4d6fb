"""The broker's certificate for TLS, read again when its files change.

New connections use the files' current contents; open connections are not affected. Files that
cannot be used, such as a key that does not belong to the certificate, change nothing and are
logged, once. TLS 1.2 is the lowest version. The files are looked at for each connection: that is
one `stat` for each file.
"""

from __future__ import annotations

import logging
import ssl
import threading
from dataclasses import dataclass
from pathlib import Path

from ledgerfold.storage.errors import InvalidRequest

_log = logging.getLogger(__name__)
_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True)
class Loaded:
    """The files' contents. `client_ca`: the authorities that sign the clients' certificates."""

    certificate: bytes
    key: bytes
    client_ca: bytes | None
    context: ssl.SSLContext


class Certificates:
    """The files of one broker. Thread-safe."""

    def __init__(self, certificate: Path, key: Path, client_ca: Path | None = None) -> None:
        """Raises InvalidRequest, OSError."""
        self._files = (certificate, key, *(() if client_ca is None else (client_ca,)))
        self._lock = threading.Lock()
        self._stamp = self._looked_at()
        self._loaded = self._load()

    @property
    def requires_client_certificate(self) -> bool:
        """True if clients must show certificates."""
        return self._loaded.client_ca is not None

    def current(self) -> Loaded:
        """Returns what the files have; if it cannot be used, what they had before."""
        with self._lock:
            stamp = self._looked_at()
            if stamp != self._stamp:
                self._stamp = stamp
                try:
                    self._loaded = self._load()
                    _log.info("The certificate in %s is used from now on", self._files[0])
                except (InvalidRequest, OSError) as error:
                    _log.error("The previous certificate stays in use: %s", error)
            return self._loaded

    def _looked_at(self) -> _Stamp:
        """Returns values that differ between versions of the files; () if one is missing."""
        try:
            statuses = [each.stat() for each in self._files]
        except OSError:
            return ()
        return tuple((each.st_mtime_ns, each.st_size, each.st_ino) for each in statuses)

    def _load(self) -> Loaded:
        certificate, key, *more = self._files
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION
        try:
            # With an empty password: no user is there to type one.
            context.load_cert_chain(certificate, key, "")
            for each in more:
                context.load_verify_locations(each)
        except (ssl.SSLError, ValueError) as error:
            names = ", ".join(map(str, self._files))
            raise InvalidRequest(f"Not usable for TLS: {names}: {error}") from error
        if more:
            context.verify_mode = ssl.CERT_REQUIRED
        client_ca = more[0].read_bytes() if more else None
        return Loaded(certificate.read_bytes(), key.read_bytes(), client_ca, context)


def common_name(certificate: object) -> str | None:
    """Returns the common name of a verified peer's certificate, as `getpeercert` returns it.

    >>> common_name({"subject": ((("organizationName", "Us"),), (("commonName", "billing"),))})
    'billing'
    """
    subject = certificate.get("subject", ()) if isinstance(certificate, dict) else ()
    return next((value for part in subject for name, value in part if name == "commonName"), None)
