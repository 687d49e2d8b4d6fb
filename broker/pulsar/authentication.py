"""The credentials of a connection: those of CONNECT, and new ones in time (AUTH_CHALLENGE).

As in Pulsar: when a token has expired, the broker asks the client for a new one, of the same role.
If the client has not answered by the next check, or does not support this, the connection is
closed. A proxy names the role of its client. If the broker checks the client's credentials, too,
the proxy must forward them, and the client is asked for new tokens. Source: Pulsar's ServerCnx and
AuthorizationService.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

from ledgerfold.broker.pulsar.link import Link
from ledgerfold.broker.security.certificates import common_name
from ledgerfold.broker.security.guard import Credentials, Guard, Target, Use
from ledgerfold.broker.security.needs import Need
from ledgerfold.broker.security.tokens import Caller
from ledgerfold.storage.errors import AuthenticationFailed, InvalidRequest, LedgerfoldError
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import AuthData, CommandAuthResponse, CommandConnect

TOKEN = "token"
# The data of Pulsar's AuthData.REFRESH_AUTH_DATA_BYTES.
_REFRESH = b"PulsarAuthRefresh"


class Authentication:
    """The credentials of one connection. `refuse` says why, and closes it."""

    def __init__(
        self,
        guard: Guard,
        link: Link,
        transport: asyncio.Transport,
        refuse: Callable[[LedgerfoldError], None],
    ) -> None:
        self._guard, self._link, self._refuse = guard, link, refuse
        self._certificate_role = common_name(transport.get_extra_info("peercert"))
        self._open = ExitStack()
        self._use: Use | None = None
        self._can_refresh = self._has_asked = self._is_forwarded = False

    def connect(self, connect: CommandConnect) -> None:
        """Takes the credentials of CONNECT. Raises AuthenticationFailed, AuthorizationFailed."""
        token = connect.auth_data if connect.auth_method_name == TOKEN else None
        caller = self._acting(self._guard.proved(self._credentials(token)), connect)
        self._link.caller = caller
        can_renew = caller.original is None or self._is_forwarded
        self._can_refresh = can_renew and connect.feature_flags.supports_auth_refresh
        use = Use(caller, Need.ROLE, Target(), self._expired)
        self._use = self._open.enter_context(self._guard.use(use))

    def take(self, response: CommandAuthResponse) -> None:
        """Takes the answer to a challenge. Raises AuthenticationFailed, InvalidRequest."""
        if self._use is None or not self._has_asked:
            raise InvalidRequest("The broker did not request this AUTH_RESPONSE.")
        before, token = self._use.caller, response.response.auth_data
        renewed = self._guard.proved(self._credentials(token))
        if renewed.role != (before.original if self._is_forwarded else before.role):
            raise AuthenticationFailed("The new token is of another role.")
        caller = before._replace(expires_ms=renewed.expires_ms)
        self._use.caller = self._link.caller = caller
        self._has_asked = False

    def _acting(self, caller: Caller, connect: CommandConnect) -> Caller:
        """Returns the caller with the role of its client, if it is a proxy."""
        guard, is_proxy = self._guard, connect.HasField("proxy_version")
        original = connect.original_principal
        if not (original and guard.authenticates_originals):
            return guard.acting(caller, original, is_proxy=is_proxy)
        has_token = connect.original_auth_method == TOKEN
        client = guard.proved(Credentials(connect.original_auth_data if has_token else None))
        self._is_forwarded = True
        acting = guard.acting(caller, client.role, is_proxy=is_proxy)
        return acting._replace(expires_ms=client.expires_ms)

    def closed(self) -> None:
        self._open.close()

    def _credentials(self, token: bytes | None) -> Credentials:
        text = None if token is None else token.decode(errors="replace")
        return Credentials(text, self._certificate_role)

    def _expired(self, error: LedgerfoldError) -> None:
        if self._has_asked or not self._can_refresh:
            self._refuse(error)
            return
        self._has_asked = True
        challenge = pulsar_pb2.CommandAuthChallenge(
            server_version="Ledgerfold",
            challenge=AuthData(auth_method_name=TOKEN, auth_data=_REFRESH),
        )
        self._link.send(challenge)
