"""Limits of the strings and lists in the bodies of the REST API: those of gRPC's requests.

They are checked after the caller is authorized (broker/http/guarded.py). The definition of a schema
is bounded by its own limit (broker/topics/schemas.py).

>>> check_values({"adminRoles": ["a", "b"]})
>>> check_values(["x" * 20_000])
Traceback (most recent call last):
  ...
ledgerfold.storage.errors.InvalidRequest: A string of the body has 20000 characters; ...
"""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.http.answers import Answer, Request
from ledgerfold.broker.http.routes import ADMIN, Route
from ledgerfold.rpc_texts import TEXT_CHARACTERS_MAX, TEXTS_MAX, VALUES_MAX
from ledgerfold.storage.errors import InvalidRequest

_SCHEMAS, _DEFINITION = f"{ADMIN}/schemas/", "schema"


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
