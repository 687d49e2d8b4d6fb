"""Authorizes requests: maps credentials to a role, and a role to its permissions. No other module
authorizes.

As in Pulsar: a superuser may do everything, an admin of a tenant everything in it, and any other
role what it was granted (broker/topics/permissions.py). A proxy role acts for the roles of its
clients: both roles need each permission. broker/security/needs.py lists the permission that each
request needs; broker/rpc, broker/pulsar and broker/http ask the guard before they handle a request.

Producers, consumers and readers are checked when they open, and not for each message. As in Pulsar,
they are checked again when a grant of their namespace was removed, and ended if nothing else
permits them; credentials that expire end them at the next check, every `refresh_check_s`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from google.protobuf.message import Message

from ledgerfold.broker.common.names import TopicName, full_topic, parse_namespace
from ledgerfold.broker.common.security_settings import SecuritySettings
from ledgerfold.broker.security.needs import Need
from ledgerfold.broker.security.tokens import (
    Caller,
    TokenVerifier,
    public_key,
    read_key,
    secret_key,
)
from ledgerfold.broker.topics.namespaces import Namespaces
from ledgerfold.storage.errors import (
    AuthenticationFailed,
    AuthorizationFailed,
    InvalidRequest,
    LedgerfoldError,
)
from ledgerfold.v1.records_pb2 import Action

_PRODUCE, _CONSUME = Action.ACTION_PRODUCE, Action.ACTION_CONSUME
_ENOUGH: dict[Need, frozenset[int]] = {
    Need.PRODUCE: frozenset({_PRODUCE}),
    Need.CONSUME: frozenset({_CONSUME}),
    Need.LOOKUP: frozenset({_PRODUCE, _CONSUME}),
    Need.LIST: frozenset({_PRODUCE, _CONSUME}),
}
_DOING = {
    Need.PRODUCE: "produce to",
    Need.CONSUME: "consume from",
    Need.LOOKUP: "look up",
    Need.LIST: "list the topics of",
    Need.ADMIN: "administer",
    Need.SUPERUSER: "administer",
}
# So many uses are checked before others have their turn.
_BATCH = 50
_log = logging.getLogger(__name__)


# A request's caller, or why its credentials prove none. None: the broker does not authenticate.
Identity: TypeAlias = Caller | LedgerfoldError | None


class Target(NamedTuple):
    """The subject of a request. Empty: everything."""

    tenant: str = ""
    namespace: str = ""
    topic: str = ""

    @classmethod
    def topic_named(cls, name: str) -> Target:
        """Raises InvalidRequest."""
        full = full_topic(name)
        parsed = TopicName.parse(full)
        return cls(parsed.tenant, parsed.namespace, full)

    @classmethod
    def namespace_named(cls, name: str) -> Target:
        """Raises InvalidRequest."""
        return cls(parse_namespace(name).partition("/")[0], name)


def target_of(request: Message) -> Target:
    """Returns the topic, namespace or tenant that a protobuf request names. Raises InvalidRequest.

    >>> from ledgerfold.v1.admin_pb2 import ListTenantsRequest, UnloadTopicRequest
    >>> target_of(UnloadTopicRequest(topic="orders")).namespace
    'public/default'
    >>> target_of(ListTenantsRequest())
    Target(tenant='', namespace='', topic='')
    """
    tenant, namespace, topic = names_in(request)
    if topic:
        return Target.topic_named(topic)
    if namespace:
        return Target.namespace_named(namespace)
    return Target(tenant)


def names_in(request: Message) -> tuple[str, str, str]:
    """Returns the tenant, the namespace and the topic that a request names, each "" if it does
    not."""
    named = getattr(request, "scope", request)
    tenant, namespace, topic = (getattr(named, each, "") for each in Target._fields)
    return tenant, namespace, topic


@dataclass(frozen=True, slots=True)
class Credentials:
    """The proof that a client shows. `certificate_role`: its verified certificate's common name."""

    token: str | None = None
    certificate_role: str | None = None

    @classmethod
    def of_header(cls, header: str | None, certificate_role: str | None) -> Credentials:
        """Takes a header `Authorization: Bearer TOKEN`."""
        return cls(parameter_of(header, "bearer"), certificate_role)


def parameter_of(header: str | None, scheme: str) -> str | None:
    """Returns what follows a scheme in a header `Authorization`; None if it has another, or none.

    As in RFC 9110, the case of a scheme does not matter.

    >>> parameter_of("BEARER abc", "bearer"), parameter_of("Basic abc", "bearer")
    ('abc', None)
    """
    found, space, parameter = (header or "").partition(" ")
    return parameter.strip() if space and found.lower() == scheme else None


def identity_of(caller: Callable[[], Caller]) -> Identity:
    """Verifies credentials, once for a request: it counts, valid or not, before it is answered."""
    try:
        return caller()
    except LedgerfoldError as error:
        return error


def proved_caller(identity: Identity) -> Caller | None:
    """Returns the caller. Raises the error of credentials that are not valid."""
    if isinstance(identity, LedgerfoldError):
        raise identity
    return identity


def client_of(address: str, identity: Identity) -> str:
    """Returns whose requests a request counts with: a role's, if one is proved, or an address's.

    A proxy's requests count with those of the role that it names.
    """
    if not isinstance(identity, Caller):
        return address
    return f"the role {(identity.original or identity.role)[:200]!r}"


def verifier_of(settings: SecuritySettings) -> TokenVerifier | None:
    """Reads the key of tokens. Raises InvalidRequest, OSError."""
    if settings.token_secret_key is not None:
        key = secret_key(read_key(settings.token_secret_key))
    elif settings.token_public_key is not None:
        key = public_key(read_key(settings.token_public_key))
    else:
        return None
    return TokenVerifier(
        key,
        auth_claim=settings.token_auth_claim,
        audience=settings.token_audience,
        audience_claim=settings.token_audience_claim,
        clock_skew_s=settings.token_clock_skew_s,
    )


@dataclass(eq=False, slots=True)
class Use:
    """An open producer, consumer, reader or connection. `end` ends it, or renews its caller."""

    caller: Caller
    need: Need
    target: Target
    end: Callable[[LedgerfoldError], None]


class Guard:
    """The decisions of one broker that authenticates. `caller` and `check` are thread-safe."""

    def __init__(
        self, settings: SecuritySettings, namespaces: Namespaces, now_ms: Callable[[], int]
    ) -> None:
        """Raises InvalidRequest, OSError: of the key."""
        self._settings, self._namespaces, self._now_ms = settings, namespaces, now_ms
        self._verifier = verifier_of(settings)
        self._superusers = frozenset(settings.superuser_roles)
        self._uses: set[Use] = set()
        namespaces.permissions.on_removed.add(self.check_grants)

    @property
    def protects_metrics(self) -> bool:
        return self._settings.protects_metrics

    @property
    def authenticates_originals(self) -> bool:
        return self._settings.authenticates_originals

    def caller(self, credentials: Credentials) -> Caller:
        """Returns the client that the credentials identify, at a port that no proxy uses.

        Raises AuthenticationFailed, AuthorizationFailed.
        """
        return self.acting(self.proved(credentials))

    def proved(self, credentials: Credentials) -> Caller:
        """Returns the role that the credentials prove. Raises AuthenticationFailed."""
        if self._verifier is not None and credentials.token is not None:
            return self._verifier.verify(credentials.token)
        if credentials.certificate_role:
            return Caller(credentials.certificate_role)
        if self._verifier is None:
            raise AuthenticationFailed(
                "This broker authenticates its clients: use a client certificate."
            )
        raise AuthenticationFailed("This broker authenticates its clients: send a token.")

    def acting(self, caller: Caller, original: str = "", *, is_proxy: bool = False) -> Caller:
        """Returns a caller that acts for `original`, if it is a proxy: only a proxy may, and must.

        `is_proxy`: the client says that it is one. Raises AuthorizationFailed.
        """
        if not self._settings.authorizes:
            return caller
        original, proxies = original.strip(), self._settings.proxy_roles
        if caller.role not in proxies:
            if original or is_proxy:
                raise AuthorizationFailed(
                    f"The role {caller.role!r} is not a proxy role, so it cannot act for another."
                )
            return caller
        if not original or original in proxies:
            raise AuthorizationFailed(
                f"The role {caller.role!r} is a proxy role: it must name the role of its client, "
                "which must not be a proxy role."
            )
        return caller._replace(original=original)

    def check(self, caller: Caller, need: Need, target: Target) -> None:
        """Raises AuthorizationFailed unless the caller has what a request needs."""
        if need in (Need.NOTHING, Need.ROLE, Need.OPENED) or not self._settings.authorizes:
            return
        for role in (caller.role, caller.original):
            if role is None or role in self._superusers or self._is_permitted(role, need, target):
                continue
            named = target.topic or target.namespace or target.tenant
            what = named if named and need is not Need.SUPERUSER else "the broker"
            raise AuthorizationFailed(f"The role {role[:200]!r} may not {_DOING[need]} {what}.")

    def _is_permitted(self, role: str, need: Need, target: Target) -> bool:
        if need is Need.SUPERUSER or not target.tenant:
            return False
        if role in self._namespaces.admin_roles(target.tenant):
            return True
        if need is Need.ADMIN or not target.namespace:
            return False
        permissions = self._namespaces.permissions
        return bool(permissions.actions(target.namespace, target.topic, role) & _ENOUGH[need])

    # What is open

    @contextmanager
    def use(self, use: Use) -> Iterator[Use]:
        """Registers a use for the duration of the block, and ends it at once when it is no longer
        permitted."""
        self._uses.add(use)
        try:
            self._check_use(use)
            yield use
        finally:
            self._uses.discard(use)

    async def check_grants(self, namespace: str) -> None:
        """Ends uses of a namespace that nothing permits any more."""
        uses = [each for each in self._uses if each.target.namespace == namespace]
        for number, use in enumerate(uses, 1):
            if use in self._uses:
                self._check_use(use)
            if number % _BATCH == 0:
                await asyncio.sleep(0)

    def _check_use(self, use: Use) -> None:
        try:
            self.check(use.caller, use.need, use.target)
        except AuthorizationFailed as error:
            use.end(error)

    def check_expired(self) -> None:
        """Ends uses whose credentials have expired."""
        now_ms = self._now_ms()
        for use in tuple(self._uses):
            if use.caller.expires_ms is not None and use.caller.expires_ms <= now_ms:
                use.end(AuthenticationFailed("The token has expired: connect with a new one."))

    async def run(self) -> None:
        """Checks for expired credentials, periodically."""
        while True:
            await asyncio.sleep(self._settings.refresh_check_s)
            try:
                self.check_expired()
            except Exception:
                _log.exception("A check of credentials failed")


def check_settings(settings: SecuritySettings) -> None:
    """Raises InvalidRequest for options that do not go together."""
    if (settings.tls_cert is None) != (settings.tls_key is None):
        raise InvalidRequest("--tls-cert and --tls-key must be used together.")
    if settings.tls_client_ca is not None and not settings.uses_tls:
        raise InvalidRequest("--tls-client-ca needs --tls-cert and --tls-key.")
    if settings.token_secret_key is not None and settings.token_public_key is not None:
        raise InvalidRequest("Use --token-secret-key or --token-public-key, not both.")
    if not settings.takes_tokens and settings.token_audience is not None:
        raise InvalidRequest("--token-audience needs --token-secret-key or --token-public-key.")
    proves = settings.takes_tokens or settings.tls_client_ca is not None
    if settings.superuser_roles and not proves:
        raise InvalidRequest(
            "--superuser-roles needs proof of roles: add --token-secret-key, --token-public-key "
            "or --tls-client-ca."
        )
    if settings.proxy_roles and not settings.authenticates:
        raise InvalidRequest(
            "--proxy-roles needs --superuser-roles, and tokens or client certificates."
        )
    if settings.takes_tokens and settings.authorizes and not settings.superuser_roles:
        raise InvalidRequest(
            "No client could grant permissions to others: name a role in --superuser-roles."
        )
