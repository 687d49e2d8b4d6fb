"""The options of a broker about TLS, authentication and authorization.

  >>> SecuritySettings(superuser_roles=("admin",), token_secret_key="hmac.key").authenticates
  True

Names in brackets are those of Pulsar's broker.conf.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

# How often the credentials of open connections are checked.
REFRESH_CHECK_S = 60


@dataclass(frozen=True, slots=True)
class SecuritySettings:
    """The options. A key is a path, or a URL with the scheme `file` or `data`."""

    # PEM files: with both, every listener speaks TLS only [tlsCertificateFilePath,
    # tlsKeyFilePath].
    tls_cert: Path | None = None
    tls_key: Path | None = None
    # The authorities one of which must have signed the certificate of each client
    # [tlsTrustCertsFilePath].
    tls_client_ca: Path | None = None
    # The key that verifies tokens: one for HS256, or one for RS256 or ES256.
    token_secret_key: str | None = None
    token_public_key: str | None = None
    # The claim with the role [tokenAuthClaim], and one that must contain the audience.
    token_auth_claim: str = "sub"
    token_audience: str | None = None
    token_audience_claim: str = "aud"
    token_clock_skew_s: int = 0
    # The roles that may do everything [superUserRoles].
    superuser_roles: tuple[str, ...] = ()
    # The roles that act for other clients, whose roles they name [proxyRoles], and whether those
    # clients must have proved theirs to the broker, too [authenticateOriginalAuthData].
    proxy_roles: tuple[str, ...] = ()
    authenticates_originals: bool = False
    # Whether a role needs permissions [authorizationEnabled]. If not: every authenticated client
    # may do everything.
    authorizes: bool = True
    refresh_check_s: int = REFRESH_CHECK_S
    # Whether metrics need credentials [authenticateMetricsEndpoint].
    protects_metrics: bool = True
    # Whether clients without credentials may do everything, from any address that can reach a
    # listener.
    insecure: bool = False

    @property
    def uses_tls(self) -> bool:
        return self.tls_cert is not None

    @property
    def takes_tokens(self) -> bool:
        return self.token_secret_key is not None or self.token_public_key is not None

    @property
    def authenticates(self) -> bool:
        """True if each client must prove its role."""
        return self.takes_tokens or bool(self.superuser_roles)
