"""An error as it travels: its stable reason, its sentence, and what of it a machine may ask for.

    >>> from ledgerfold.storage.errors import Corruption
    >>> reason, message, attributes = encode_error(Corruption("1/0.log", 72, "its CRC", "another"))
    >>> reason, attributes
    ('DATA_CORRUPT', {'path': '1/0.log', 'offset': '72'})
    >>> type(decode_error(reason, message, attributes)).__name__
    'Corruption'

Pure, and of no protocol: each door to the broker binds it to its own. gRPC's is
ledgerfold/rpc_errors.py.
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


def encode_error(error: LedgerfoldError) -> WireError:
    attributes = {name: str(getattr(error, name)) for name in _ATTRIBUTES if hasattr(error, name)}
    return WireError(error.reason, error.message, attributes)


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
