"""The checks of the REST API before a verb: the caller (broker/security/guard.py), then the body.

Strings and lists of a body have the limits of gRPC's requests. The definition of a schema is
bounded by its own limit (broker/topics/schemas.py).

>>> check_values({"adminRoles": ["a", "b"]})
>>> check_values(["x" * 20_000])
Traceback (most recent call last):
  ...
ledgerfold.errors.InvalidRequest: A string of the body has 20000 characters; ...

Credentials are a header `Authorization: Bearer TOKEN`, or the client's certificate. A proxy names
its client's role in X-Original-Principal. The server checks a request before it reads the body.
broker/security/needs.py lists the permission that each route needs; a route without a row needs a
superuser.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ledgerfold.broker.common.names import COMPACTION_CURSOR, PERSISTENT
from ledgerfold.broker.http.answers import Answer, Request
from ledgerfold.broker.http.routes import ADMIN, Route, Verb
from ledgerfold.broker.security.guard import Credentials, Guard, Target, proved_caller
from ledgerfold.broker.security.needs import ROUTES, Need
from ledgerfold.broker.security.tokens import Caller
from ledgerfold.rpc_texts import TEXT_CHARACTERS_MAX, TEXTS_MAX, VALUES_MAX
from ledgerfold.storage.errors import InvalidRequest

_SCHEMAS, _DEFINITION = f"{ADMIN}/schemas/", "schema"


class GuardedVerb:
    """A verb that checks its caller first."""

    def __init__(self, guard: Guard, need: Need, verb: Verb) -> None:
        self._guard, self._need, self._verb = guard, need, verb

    def check(self, request: Request) -> None:
        """Checks the caller of a request, whose body does not matter.

        Raises AuthenticationFailed, AuthorizationFailed, InvalidRequest.
        """
        of_cursor = request.names.get("subscription") == COMPACTION_CURSOR
        need = Need.ADMIN if of_cursor else self._need
        caller = proved_caller(request.identity)
        assert caller is not None
        self._guard.check(caller, need, target_of(request))

    async def __call__(self, request: Request) -> Answer | None:
        self.check(request)
        return await self._verb(request)


def guarded(guard: Guard, route: Route) -> Route:
    """Returns the route with a verb that checks its caller."""
    method, path, verb = route
    need = ROUTES.get((method, path), Need.SUPERUSER)
    if need is Need.NOTHING or (path == "/metrics" and not guard.protects_metrics):
        return route
    return method, path, GuardedVerb(guard, need, verb)


def caller_of(guard: Guard, headers: Mapping[str, str], certificate_role: str | None) -> Caller:
    """Returns the caller of a request. Raises AuthenticationFailed, AuthorizationFailed."""
    header = headers.get("Authorization")
    caller = guard.proved(Credentials.of_header(header, certificate_role))
    original = headers.get("X-Original-Principal", "")
    # A proxy that forwards the credentials of its client names that client, too.
    return guard.acting(caller, "" if original == caller.role else original)


def target_of(request: Request) -> Target:
    """Returns the topic, namespace or tenant that a request names. Raises InvalidRequest."""
    names = request.names
    if "topic" in names:
        domain = names.get("domain", PERSISTENT)
        return Target.topic_named(f"{domain}://{request.namespace}/{names['topic']}")
    if "namespace" in names:
        return Target.namespace_named(request.namespace)
    return Target(names.get("tenant", ""))


def limited(route: Route) -> Route:
    """Returns the route with a verb that checks the body first."""
    method, path, verb = route

    async def checked(request: Request) -> Answer | None:
        body = request.body
        if path.startswith(_SCHEMAS) and isinstance(body, dict):
            body = {name: value for name, value in body.items() if name != _DEFINITION}
        check_values(body)
        return await verb(request)

    return method, path, checked


def check_values(body: Any) -> None:
    """Raises InvalidRequest for a string, a list or an object that is too long."""
    waiting, values = [body], 0
    while waiting:
        value = waiting.pop()
        if isinstance(value, str) and len(value) > TEXT_CHARACTERS_MAX:
            raise InvalidRequest(
                f"A string of the body has {len(value)} characters; at most {TEXT_CHARACTERS_MAX} "
                f"are allowed. It begins with {value[:100]!r}."
            )
        if not isinstance(value, list | dict):
            continue
        values += len(value)
        if len(value) > TEXTS_MAX or values > VALUES_MAX:
            raise InvalidRequest(
                f"The lists of the body are too long: at most {TEXTS_MAX} values are allowed in "
                f"one, and {VALUES_MAX} in all."
            )
        if isinstance(value, dict):
            waiting += value
            waiting += value.values()
        else:
            waiting += value
