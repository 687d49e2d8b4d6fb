"""An entry's messages, decoded: what every codec gives, and what it must know how to do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from ledgerfold.storage.entry import Buffer, EntryHeader


def key_bytes(key: bytes | str) -> bytes:
    """A key as it is stored. A file name, say, that is no text keeps its bytes."""
    return key if isinstance(key, bytes) else key.encode(errors="surrogateescape")


class StoredMessage(NamedTuple):
    """One message of an entry, decoded. `batch_index` -1: published alone."""

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
    """An entry's messages, column by column; rows are 0..rows-1 in order of batch index."""

    @property
    def rows(self) -> int: ...

    @property
    def producer_name(self) -> str: ...

    @property
    def schema_version(self) -> bytes: ...

    def batch_index(self, row: int) -> int:
        """-1 for a message that was published alone."""
        ...

    def key(self, row: int) -> bytes | None: ...

    def key_is_base64(self, row: int) -> bool: ...

    def value(self, row: int) -> bytes:
        """Empty for a null value."""
        ...

    def value_bytes(self, row: int) -> int:
        """The value's size. Needs no value section."""
        ...

    def contents(self) -> list[bytes]:
        """All values, in order of rows."""
        ...

    def is_null(self, row: int) -> bool: ...

    def event_time_ms(self, row: int) -> int:
        """0 when not set."""
        ...

    def sequence_id(self, row: int) -> int: ...

    def properties(self, row: int) -> dict[str, str]: ...

    def ordering_key(self, row: int) -> bytes | None: ...

    def messages(self) -> Iterator[StoredMessage]: ...


class EntryCodec(Protocol):
    """What a codec must know how to do."""

    def decode(
        self, header: EntryHeader, key_section: Buffer, value_section: Buffer
    ) -> DecodedBatch: ...

    def first_key(self, key_section: Buffer) -> bytes | None:
        """The key that key-shared dispatch goes by: the first message's."""
        ...

    def last_batch_index(self, header: EntryHeader, key_section: Buffer) -> int:
        """That of the last message; -1 for one that was published alone."""
        ...
