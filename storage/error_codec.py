"""The encoding of errors on the wire: a stable reason, a message, and machine-readable attributes.

    >>> from ledgerfold.storage.errors import Corruption
    >>> reason, message, attributes = encode_error(Corruption("1/0.log", 72, "its CRC", "another"))
    >>> reason, attributes
    ('DATA_CORRUPT', {'path': '1/0.log', 'offset': '72'})
    >>> type(decode_error(reason, message, attributes)).__name__
    'Corruption'

Pure, and independent of any protocol: each protocol binds it to its own. gRPC's binding is
ledgerfold/rpc_errors.py. An encoded error always fits into a header: HTTP/2 clients drop larger
ones and report "Stream removed" to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from ledgerfold.storage.errors import LedgerfoldError

# The attributes that are sent, as text, and the functions that parse them.
_ATTRIBUTES: dict[str, Callable[[str], str | int]] = {
    "topic": str,
    "subscription": str,
    "path": str,
    "offset": int,
    "stage": str,
    "ledger_id": int,
    "strategy": str,
    "worker_died": str(True).__eq__,
    "is_full": str(True).__eq__,
    "kafka_code": int,
    "kafka_class": str,
}


# Sizes in an HTTP/2 header, where a byte that is not printable ASCII takes three.
MESSAGE_BYTES_MAX = 2500
ATTRIBUTE_BYTES_MAX = 250
_OMITTED = " ... "
# Control characters, which a terminal or a log would interpret.
_CONTROL = {each: f"\\x{each:02x}" for each in (*range(0x20), *range(0x7F, 0xA0))}
_ESCAPES = str.maketrans({each: text for each, text in _CONTROL.items() if chr(each) not in "\n\t"})


class WireError(NamedTuple):
    """An error as it is sent."""

    reason: str
    message: str
    attributes: dict[str, str]


def _classes() -> dict[str, type[LedgerfoldError]]:
    """Returns one class per reason: the base class that introduced it."""
    classes: dict[str, type[LedgerfoldError]] = {}
    queue: list[type[LedgerfoldError]] = [LedgerfoldError]
    while queue:
        cls = queue.pop(0)
        classes.setdefault(cls.reason, cls)
        queue.extend(cls.__subclasses__())
    return classes


CLASSES = _classes()


def encode_error(
    error: LedgerfoldError, shortened: Callable[[str], str] = lambda text: text
) -> WireError:
    """Encodes `error`. `shortened` abridges each text as the caller's protocol needs."""
    texts = {name: str(getattr(error, name)) for name in _ATTRIBUTES if hasattr(error, name)}
    attributes = {
        name: _bounded(shortened(text), ATTRIBUTE_BYTES_MAX) for name, text in texts.items()
    }
    message = _bounded(shortened(error.message), MESSAGE_BYTES_MAX)
    return WireError(error.reason, message, attributes)


def _bounded(text: str, most: int) -> str:
    """Elides the middle of a text that is too long: an error's advice is at its end."""
    text = text.translate(_ESCAPES)
    if _header_bytes(text) <= most:
        return text
    half = (most - len(_OMITTED)) // 2
    return f"{_beginning(text, half)}{_OMITTED}{_beginning(text[::-1], half)[::-1]}"


def _beginning(text: str, most: int) -> str:
    """Returns the longest prefix that a header of `most` bytes can hold."""
    text = text[:most]
    while (over := _header_bytes(text) - most) > 0:
        # No character takes more than twelve.
        text = text[: -(over // 12 + 1)]
    return text


def _header_bytes(text: str) -> int:
    data = text.encode(errors="replace")
    return len(data) + 2 * sum(not 0x20 <= byte <= 0x7E for byte in data)


def decode_error(reason: str, message: str, attributes: Mapping[str, str]) -> LedgerfoldError:
    """Restores the broker's error: an instance of the class with its reason, and the attributes
    that were sent.

    An unknown reason, of a newer version, becomes a LedgerfoldError.
    """
    cls = CLASSES.get(reason, LedgerfoldError)
    # The class's constructor builds the message from attributes; here the message exists already.
    error = cls.__new__(cls, message)
    Exception.__init__(error, message)
    error.from_broker = True
    for name, text in attributes.items():
        if name in _ATTRIBUTES:
            with suppress(ValueError):
                setattr(error, name, _ATTRIBUTES[name](text))
    return error
