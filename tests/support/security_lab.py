"""Certificates, keys and tokens of tests, in a folder."""

from __future__ import annotations

import datetime
import ipaddress
import time
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ledgerfold.broker.security.tokens import new_secret, new_token, secret_key

# A broker that looks for expired tokens often. Within this time a client answers a challenge.
RENEWING = ("--pulsar-config", "authenticationRefreshCheckSeconds=2")
_FROM, _DAYS = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC), 36_500


@dataclass(frozen=True)
class Pair:
    """The files of a certificate and its key."""

    certificate: Path
    key: Path


class Authority:
    """An authority that signs certificates for 127.0.0.1 and localhost."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder, self._name = folder, _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._serial = 1
        builder = self._builder(self._name, self._key).add_extension(
            x509.BasicConstraints(ca=True, path_length=None), critical=True
        )
        self.file = folder / f"{name}.pem"
        self.file.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))

    def sign(self, common_name: str, file_name: str | None = None) -> Pair:
        """Writes a new certificate and key."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        builder = self._builder(_named(common_name), key).add_extension(
            x509.SubjectAlternativeName(names), critical=False
        )
        stem = file_name or common_name
        pair = Pair(self._folder / f"{stem}.pem", self._folder / f"{stem}.key")
        pair.certificate.write_bytes(_pem(builder.sign(self._key, hashes.SHA256())))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> Any:
        self._serial += 1
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(self._serial)
            .not_valid_before(_FROM)
            .not_valid_after(_FROM + datetime.timedelta(days=_DAYS))
        )


class Tokens:
    """A secret key in a folder, and tokens that it signs."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "hmac.key"
        self.file.write_bytes(new_secret())

    @cached_property
    def key(self) -> Any:
        return secret_key(self.file.read_bytes())

    def of(self, role: str, **claims: Any) -> str:
        return new_token(self.key, role, claims)

    def expiring(self, role: str, after_s: int) -> str:
        """Returns a token that expires by the machine's clock, within a second after `after_s`."""
        return self.of(role, exp=time.time_ns() // 10**9 + 1 + after_s)

    @property
    def options(self) -> tuple[str, ...]:
        """The options of a broker whose superuser is `admin`."""
        return ("--token-secret-key", str(self.file), "--superuser-roles", "admin")


def tls_options(server: Pair) -> tuple[str, ...]:
    return ("--tls-cert", str(server.certificate), "--tls-key", str(server.key))


def _named(common_name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
