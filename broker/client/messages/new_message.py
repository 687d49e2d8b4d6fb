"""Messages to be sent, and the checks on them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import NamedTuple, cast

from ledgerfold.broker.client.messages.argument_types import is_text
from ledgerfold.storage.decoded import key_bytes
from ledgerfold.storage.entry import Buffer
from ledgerfold.storage.errors import InvalidRequest, NotAllowed

INT64_MAX = 2**63 - 1
# Bytes of a message in its entry in addition to its key and value: offsets, size, flags.
ROW_BYTES = 9


class NewMessage(NamedTuple):
    """A message to be sent.

    `value` None: a null value. `sequence_id` -1: the next sequence id. `deliver_at_ms`: not before
    that time on Shared and KeyShared subscriptions; 0: at once.
    """

    value: bytes | None
    key: bytes | None
    sequence_id: int = -1
    properties: dict[str, str] | None = None
    event_time_ms: int = 0
    ordering_key: bytes | None = None
    # The caller gave the key as bytes; `key` is their base64, as Pulsar's Java client sends it.
    key_is_base64: bool = False
    deliver_at_ms: int = 0

    @property
    def size_bytes(self) -> int:
        size = len(self.value or b"") + len(self.key or b"") + ROW_BYTES
        if self.properties:
            size += sum(len(name) + len(text) + 8 for name, text in self.properties.items())
        if self.event_time_ms:
            size += 8
        return size if self.ordering_key is None else size + len(self.ordering_key) + 4


def checked_message(
    content: Buffer | None,
    properties: dict[str, str] | None,
    partition_key: str | bytes | None,
    ordering_key: str | bytes | None,
    sequence_id: int | None,
    replication_clusters: Sequence[str] | None = None,
    disable_replication: bool | None = None,
    event_timestamp: int | None = None,
    deliver_at: int | None = None,
    deliver_after: timedelta | None = None,
    *,
    clock_ms: Callable[[], int],
) -> NewMessage:
    """Builds a message from the arguments of a send. Raises InvalidRequest, NotAllowed.

    `clock_ms`: the time that `deliver_after` is counted from.
    """
    if content is not None and not isinstance(content, bytes | bytearray | memoryview):
        raise InvalidRequest(f"The content must be bytes or None, not {type(content).__name__}.")
    check_properties(properties)
    _check_number("sequence_id", sequence_id)
    _check_number("event_timestamp", event_timestamp)
    _check_replication(replication_clusters, disable_replication)
    return NewMessage(
        value=None if content is None else bytes(content),
        key=base64.b64encode(partition_key)
        if isinstance(partition_key, bytes)
        else _key("partition_key", partition_key),
        sequence_id=-1 if sequence_id is None else sequence_id,
        properties=dict(properties) if properties else None,
        event_time_ms=event_timestamp or 0,
        ordering_key=_key("ordering_key", ordering_key),
        key_is_base64=isinstance(partition_key, bytes),
        deliver_at_ms=_delivery_time(deliver_at, deliver_after, clock_ms),
    )


def _check_number(subject: str, number: object) -> None:
    is_number = isinstance(number, int) and not isinstance(number, bool)
    if number is not None and not (is_number and 0 <= cast(int, number) <= INT64_MAX):
        raise InvalidRequest(f"{subject} {number!r:.100} is not an integer from 0 to {INT64_MAX}.")


def _check_replication(clusters: object, is_disabled: object) -> None:
    if clusters:
        raise NotAllowed("Replication to other clusters is not emulated (replication_clusters=).")
    if not (is_disabled is None or isinstance(is_disabled, bool)):
        raise InvalidRequest(
            f"disable_replication must be True or False, not {is_disabled!r:.100}."
        )


def _delivery_time(
    deliver_at: int | None, deliver_after: timedelta | None, clock_ms: Callable[[], int]
) -> int:
    """Returns the time of delivery; 0 for immediate delivery. As in Pulsar, `deliver_after` has
    priority, and a time in the past means immediate delivery.
    """
    if deliver_after is None:
        _check_number("deliver_at", deliver_at)
        return deliver_at or 0
    if not isinstance(deliver_after, timedelta):
        raise InvalidRequest(f"deliver_after must be a timedelta, not {deliver_after!r:.100}.")
    delay_ms = deliver_after // timedelta(milliseconds=1)
    return clock_ms() + delay_ms if delay_ms > 0 else 0


def check_properties(properties: object, what: str = "Properties") -> None:
    """Raises InvalidRequest unless these are properties, or None. `what`: begins the error."""
    if properties is None:
        return
    if not isinstance(properties, Mapping):
        raise InvalidRequest(f"{what} must be a dict of strings, not {type(properties).__name__}.")
    for name, text in properties.items():
        if not is_text(name) or not is_text(text):
            raise InvalidRequest(
                f"Property {name!r}: names and values must be strings of valid Unicode."
            )


def _key(subject: str, text: str | bytes | None) -> bytes | None:
    if text is None or isinstance(text, bytes):
        return text
    if not isinstance(text, str):
        raise InvalidRequest(f"{subject} must be a string or bytes, not {type(text).__name__}.")
    try:
        return key_bytes(text)
    except UnicodeEncodeError:
        raise InvalidRequest(f"{subject} {text!r} cannot be encoded as UTF-8.") from None
