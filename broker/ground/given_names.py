"""What the names must be that clients give: of subscriptions, producers, consumers and the like.

Pulsar takes nearly anything: spaces, slashes, any script. So does a broker here, but for what
cannot be told apart, listed or typed again: nothing at all, "." and "..", control characters and
ends of lines, and more than NAME_CHARACTERS_MAX characters.

Names are checked where they come into being. The metadata may hold others, which an earlier version
took: they stay what they are, and are listed and called by a stand-in.

    >>> check_name("A subscription", "my/own sub ü")
    >>> check_name("A subscription", "..")
    Traceback (most recent call last):
        ...
    ledgerfold.storage.errors.InvalidRequest: A subscription cannot be named '..': ...
    >>> shown("fine"), shown("two\\nlines")
    ('fine', 'two?lines~edc8c128')
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

from ledgerfold.broker.ground.names import TopicName
from ledgerfold.storage.errors import InvalidRequest

NAME_CHARACTERS_MAX = 1024
PROPERTIES_MAX = 100
PROPERTIES_CHARACTERS_MAX = 16 * 1024
# Control characters, and what ends a line beside them.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_STAND_IN = re.compile(r"\.[0-9a-f]{8}/")
_NO_NAMES = ("", ".", "..")
_SHOWN_CHARACTERS = 40
_HASH_DIGITS = 8


def check_name(kind: str, name: str) -> None:
    """`kind`: of what, as a sentence begins. Raises InvalidRequest."""
    why = _why_not(name)
    if why:
        raise InvalidRequest(f"{kind} cannot be named {name!r}: {why}.")


def _why_not(name: str) -> str:
    if name in _NO_NAMES:
        return "a name is not empty, and neither '.' nor '..'"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"it has {len(name)} characters; {NAME_CHARACTERS_MAX} is the most"
    if _CONTROL.search(name):
        return "it has control characters, or ends of lines, in it"
    return ""


def check_topic(name: str) -> None:
    """Of a full name: tenant and namespace, beside their form. Raises InvalidRequest.

    Its last part has its bounds in its form (names.py).
    """
    parsed = TopicName.parse(name)
    check_namespace(parsed.namespace)


def check_namespace(name: str) -> None:
    """Of "tenant/namespace". Raises InvalidRequest."""
    tenant, _, namespace = name.partition("/")
    check_name("A tenant", tenant)
    check_name("A namespace", namespace)


def check_properties(kind: str, properties: Mapping[str, str]) -> None:
    """Raises InvalidRequest."""
    for key in properties:
        check_name(f"A property of {kind}", key)
    characters = sum(map(len, properties)) + sum(map(len, properties.values()))
    if len(properties) > PROPERTIES_MAX or characters > PROPERTIES_CHARACTERS_MAX:
        raise InvalidRequest(
            f"The {len(properties)} properties of {kind} have {characters} characters. "
            f"{PROPERTIES_MAX} properties of {PROPERTIES_CHARACTERS_MAX} characters are the most."
        )


def shown(name: str) -> str:
    """By what a name is listed: itself, or a stand-in for one that would be refused today."""
    return _stand_in(name, "?", "~") if _why_not(name) else name


def shown_topic(name: str) -> str:
    """The same of a full name, of a partition's, too."""
    parsed = TopicName.parse(name)
    tenant, namespace = (
        _stand_in(part, ".", ".") if _why_not(part) else part
        for part in (parsed.tenant, parsed.namespace_local)
    )
    if (tenant, namespace) == (parsed.tenant, parsed.namespace_local):
        return name
    return str(parsed._replace(tenant=tenant, namespace_local=namespace))


def is_stand_in(topic: str) -> bool:
    """Whether a full name may be what shown_topic() makes of another one."""
    return _STAND_IN.search(topic) is not None


def called(name: str, names: Iterable[str]) -> str | None:
    """Which of `names`, that the metadata hold, is listed as `name`."""
    return next((each for each in names if shown(each) == name), None)


def _stand_in(name: str, instead: str, before_hash: str) -> str:
    """Its beginning, and what tells it from others that begin so."""
    hashed = hashlib.sha256(name.encode()).hexdigest()[:_HASH_DIGITS]
    return f"{_CONTROL.sub(instead, name[:_SHOWN_CHARACTERS])}{before_hash}{hashed}"
