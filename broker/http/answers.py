"""Requests and answers of the REST API's verbs, and the HTTP status of each error.

A refusal has Pulsar's status code, and a body `{"reason": "..."}` from which Pulsar's clients take
their message. Statuses, and reasons in Pulsar's own words, were observed on Pulsar 4.0.7.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from ledgerfold.broker.security.guard import Identity
from ledgerfold.storage import errors
from ledgerfold.storage.error_codec import encode_error

JSON = "application/json"
NO_CONTENT = 204
_INT_MAX = 2**63 - 1
# The status of each class and its subclasses; the first match counts.
_STATUSES: tuple[tuple[type[errors.LedgerfoldError], int], ...] = (
    (errors.TopicNotFound, 404),
    (errors.SubscriptionNotFound, 404),
    (errors.MessageNotFound, 404),
    (errors.TopicExists, 409),
    (errors.SubscriptionExists, 409),
    (errors.NothingExpired, 409),
    (errors.CompactionRunning, 409),
    (errors.AuthenticationFailed, 401),
    (errors.AuthorizationFailed, 403),
    (errors.NotAllowed, 405),
    (errors.RequestError, 412),
    (errors.CompactorUnavailable, 503),
    (errors.CompactionQueueFull, 503),
    (errors.CompactionFenced, 503),
    (errors.Timeout, 504),
    (errors.TooManyRequests, 429),
    (errors.ServiceError, 503),
    (errors.LedgerfoldError, 500),
)


class Refusal(Exception):
    """A request that is answered with `status` and a reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@contextmanager
def answering(
    kind: type[errors.LedgerfoldError], status: int, reason: str | None = None
) -> Iterator[None]:
    """Gives an error of the block the status that Pulsar has for it here, and the reason if it has
    one.
    """
    try:
        yield
    except kind as error:
        raise Refusal(status, reason or error.message) from None


@dataclass(frozen=True, slots=True)
class Answer:
    """A response. The default has no content."""

    status: int = NO_CONTENT
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = field(default_factory=dict)


def to_json(value: Any) -> bytes:
    """Encodes as Pulsar does, without spaces: scripts look for `"status":"SUCCESS"`."""
    encoded = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return encoded.encode(errors="backslashreplace")


def shown(value: Any) -> Answer:
    """Returns the answer to a GET. None: nothing is set, and the body is empty."""
    if value is None:
        return Answer(200)
    return Answer(200, to_json(value))


def text(words: str) -> Answer:
    return Answer(200, words.encode())


def refused(status: int, reason: str) -> Answer:
    return Answer(status, to_json({"reason": reason}))


def refused_for(error: errors.LedgerfoldError) -> Answer:
    """Returns the answer for an error of the broker."""
    answer = refused(status_of(error), _words(error))
    if answer.status == 401:
        return replace(answer, headers={"WWW-Authenticate": "Bearer"})
    if answer.status == 429:
        return replace(answer, headers={"Retry-After": "1"})
    return answer


def status_of(error: errors.LedgerfoldError) -> int:
    return next(status for kind, status in _STATUSES if isinstance(error, kind))


def _words(error: errors.LedgerfoldError) -> str:
    """Returns Pulsar's words where clients may look for them, otherwise the error's own."""
    match error:
        case errors.TopicIsPartitioned():
            pass
        case errors.TopicNotFound(topic=topic):
            return f"Topic {topic} not found"
        case errors.TopicExists():
            return "This topic already exists"
        case errors.SubscriptionNotFound(topic=topic, subscription=name):
            return f"Subscription {name} not found for topic {topic}"
        case errors.MessageNotFound():
            return "Message id not found"
        case errors.SubscriptionExists():
            return "Subscription already exists for topic"
    # The text is of bounded length.
    return encode_error(error)[1]


class WrittenFloat(float):
    """A number of a body that is not whole. As in Pulsar, a property keeps its text.

    >>> WrittenFloat("1E2"), WrittenFloat("1E2").text
    (100.0, '1E2')
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


@dataclass(frozen=True, slots=True)
class Request:
    """A request that matched a route.

    `names`: the variable parts of the path, decoded. `body`: parsed JSON, None without a body.
    `headers`: by name, in upper or lower case. `identity`: None on a broker without authentication.
    """

    names: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    identity: Identity = None

    @property
    def topic(self) -> str:
        names = self.names
        return f"{names['domain']}://{names['tenant']}/{names['namespace']}/{names['topic']}"

    @property
    def namespace(self) -> str:
        return f"{self.names['tenant']}/{self.names['namespace']}"

    def flag(self, name: str) -> bool:
        """Returns a query parameter that is true or false, false by default."""
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int | None = None) -> int:
        """Returns a number of the path or the query. Raises Refusal."""
        found = self.names.get(name, self.query.get(name))
        if found is None and default is not None:
            return default
        return whole_number(name, found)


def whole_number(what: str, value: Any) -> int:
    """Returns an integer given as a number or as text. Raises Refusal."""
    if isinstance(value, int) and not isinstance(value, bool):
        number = value
    elif isinstance(value, str) and value.isascii() and value.removeprefix("-").isdigit():
        # Longer texts would take long to parse.
        number = int(value) if len(value) < 20 else _INT_MAX + 1
    else:
        raise Refusal(400, f"{what} must be a whole number.")
    if not -_INT_MAX <= number <= _INT_MAX:
        raise Refusal(400, f"{what} is out of range.")
    return number
