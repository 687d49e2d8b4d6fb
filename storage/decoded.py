"""The interface of a codec: an entry that it decodes."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Protocol

from ledgerfold.storage.entry import Buffer, EntryHeader


def key_bytes(key: bytes | str) -> bytes:
    """Returns a key as stored. Undecodable bytes in a string, as in file names, are preserved."""
    return key if isinstance(key, bytes) else key.encode(errors="surrogateescape")


def decoded_key(key: bytes) -> bytes:
    """Decodes a key that a client has sent in base64; returns other keys unchanged.

    >>> decoded_key(b"AAE="), decoded_key(b"?")
    (b'\\x00\\x01', b'?')
    """
    try:
        return base64.b64decode(key, validate=True)
    except binascii.Error:
        return key


class Routing(NamedTuple):
    """The part of an entry that dispatch to consumers needs.

    `key`: the first message's ordering key, or its key; None: it has neither. `deliver_at_ms`: the
    time before which shared subscriptions do not deliver it; 0: at once.
    """

    key: bytes | None
    deliver_at_ms: int = 0


def property_texts(pairs: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Returns properties as text. Clients in C++ may send any bytes: invalid UTF-8 is escaped.

    >>> property_texts([(b"k", b"caf\\xe9")])
    {'k': 'caf\\\\xe9'}
    """
    return {
        name.decode(errors="backslashreplace"): content.decode(errors="backslashreplace")
        for name, content in pairs
    }


class StoredMessage(NamedTuple):
    """A decoded message of an entry. `batch_index` is -1 if it was published alone."""

    batch_index: int
    batch_size: int
    key: bytes | None
    key_is_base64: bool
    value: bytes
    value_is_null: bool
    properties: dict[str, str]
    event_time_ms: int
    sequence_id: int
    ordering_key: bytes | None

    @property
    def is_tombstone(self) -> bool:
        return not self.value


class DecodedBatch(Protocol):
    """The decoded messages of an entry, by column, under one codec.

    Rows 0..rows-1 are in order of batch index.
    """

    __slots__ = ()
    rows: int
    # The number of messages before a compaction removed any.
    batch_size: int
    # Shared subscriptions do not deliver the entry before this time. 0: at once.
    deliver_at_ms: int = 0

    def __init__(self, header: EntryHeader, key_section: Buffer, value_section: Buffer) -> None:
        """Decodes an entry; the sections are parsed when they are needed."""
        ...

    @staticmethod
    def routing(header: EntryHeader, key_section: Buffer) -> Routing:
        """Returns what dispatch to consumers needs. Raises InvalidRequest."""
        ...

    @staticmethod
    def last_batch_index(header: EntryHeader, key_section: Buffer) -> int:
        """Returns the batch index of the last message; -1 if it was published alone."""
        ...

    @property
    def producer_name(self) -> str: ...

    @property
    def schema_version(self) -> bytes: ...

    def batch_index(self, row: int) -> int:
        """Returns the batch index; -1 for a message that was published alone."""
        ...

    def key(self, row: int) -> bytes | None: ...

    def key_is_base64(self, row: int) -> bool: ...

    def value(self, row: int) -> bytes:
        """Returns the value; empty for a null value."""
        ...

    def value_bytes(self, row: int) -> int:
        """Returns the size of the value. Does not need the value section."""
        ...

    def contents(self) -> list[bytes]:
        """Returns all values, in order of rows."""
        ...

    def is_null(self, row: int) -> bool: ...

    def event_time_ms(self, row: int) -> int:
        """Returns the event time; 0 if not set."""
        ...

    def sequence_id(self, row: int) -> int: ...

    def properties(self, row: int) -> dict[str, str]: ...

    def ordering_key(self, row: int) -> bytes | None: ...

    def messages(self) -> Iterator[StoredMessage]:
        for row in range(self.rows):
            yield StoredMessage(
                batch_index=self.batch_index(row),
                batch_size=self.batch_size,
                key=self.key(row),
                key_is_base64=self.key_is_base64(row),
                value=self.value(row),
                value_is_null=self.is_null(row),
                properties=self.properties(row),
                event_time_ms=self.event_time_ms(row),
                sequence_id=self.sequence_id(row),
                ordering_key=self.ordering_key(row),
            )
