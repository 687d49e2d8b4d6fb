"""An error as it travels: its stable reason, its sentence, and what of it a machine may ask for.

    >>> from ledgerfold.storage.errors import Corruption
    >>> reason, message, attributes = encode_error(Corruption("1/0.log", 72, "its CRC", "another"))
    >>> reason, attributes
    ('DATA_CORRUPT', {'path': '1/0.log', 'offset': '72'})
    >>> type(decode_error(reason, message, attributes)).__name__
    'Corruption'

Pure, and of no protocol: each door to the broker binds it to its own. gRPC's is
ledgerfold/rpc_errors.py. Whatever the error says, it has the size of a header: what has not, an
HTTP/2 client drops, and tells its caller of a "Stream removed".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from ledgerfold.storage.errors import LedgerfoldError

# Attributes that travel, as text, and what makes them of it again.
_ATTRIBUTES: dict[str, Callable[[str], str | int]] = {
    "topic": str,
    "subscription": str,
    "path": str,
    "offset": int,
    "stage": str,
    "ledger_id": int,
    "strategy": str,
    "worker_died": str(True).__eq__,
    "kafka_code": int,
    "kafka_class": str,
}


# As a header of HTTP/2 counts them: a byte that is no plain ASCII is written as three.
MESSAGE_BYTES_MAX = 2500
ATTRIBUTE_BYTES_MAX = 250
_OMITTED = " ... "
# What a terminal or a log would heed.
_CONTROL = {each: f"\\x{each:02x}" for each in (*range(0x20), *range(0x7F, 0xA0))}
_UNHEEDED = str.maketrans(
    {each: text for each, text in _CONTROL.items() if chr(each) not in "\n\t"}
)


class WireError(NamedTuple):
    """What is told of an error at the other end."""

    reason: str
    message: str
    attributes: dict[str, str]


def _classes() -> dict[str, type[LedgerfoldError]]:
    """One class per reason: the one that brought it in, where others inherit it."""
    found: dict[str, type[LedgerfoldError]] = {}
    queue: list[type[LedgerfoldError]] = [LedgerfoldError]
    while queue:
        cls = queue.pop(0)
        found.setdefault(cls.reason, cls)
        queue.extend(cls.__subclasses__())
    return found


CLASSES = _classes()


def encode_error(
    error: LedgerfoldError, shortened: Callable[[str], str] = lambda text: text
) -> WireError:
    """`shortened`: what the caller's door leaves of a text."""
    told = {name: str(getattr(error, name)) for name in _ATTRIBUTES if hasattr(error, name)}
    attributes = {
        name: _bounded(shortened(text), ATTRIBUTE_BYTES_MAX) for name, text in told.items()
    }
    message = _bounded(shortened(error.message), MESSAGE_BYTES_MAX)
    return WireError(error.reason, message, attributes)


def _bounded(text: str, most: int) -> str:
    """The text, without its midst if it is too long: an error says at its end what to do."""
    text = text.translate(_UNHEEDED)
    if _header_bytes(text) <= most:
        return text
    half = (most - len(_OMITTED)) // 2
    return f"{_beginning(text, half)}{_OMITTED}{_beginning(text[::-1], half)[::-1]}"


def _beginning(text: str, most: int) -> str:
    """As much of it as a header of that size holds."""
    text = text[:most]
    while (over := _header_bytes(text) - most) > 0:
        # No character takes more than twelve.
        text = text[: -(over // 12 + 1)]
    return text


def _header_bytes(text: str) -> int:
    data = text.encode(errors="replace")
    return len(data) + 2 * sum(not 0x20 <= byte <= 0x7E for byte in data)


def decode_error(reason: str, message: str, attributes: Mapping[str, str]) -> LedgerfoldError:
    """The broker's error again: of the class whose reason it is, with what attributes came along.

    A reason that nobody knows, of a newer version, makes a LedgerfoldError.
    """
    cls = CLASSES.get(reason, LedgerfoldError)
    # Its own constructor makes the message of attributes; here the message is there already.
    error = cls.__new__(cls, message)
    Exception.__init__(error, message)
    error.from_broker = True
    for name, text in attributes.items():
        if name in _ATTRIBUTES:
            with suppress(ValueError):
                setattr(error, name, _ATTRIBUTES[name](text))
    return error
