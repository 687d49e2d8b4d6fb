"""The key section of an entry of any codec, as native columns."""

from __future__ import annotations

from collections.abc import Callable

from ledgerfold.compactor.job.pulsar_keys import KeySection, pulsar_keys
from ledgerfold.storage.codec import unknown_codec
from ledgerfold.storage.entry import Codec, EntryHeader
from ledgerfold.storage.native_batch import parse_keys
from ledgerfold.v1.entry_pb2 import NativeKeys

Keys = NativeKeys | KeySection


def key_columns(
    header: EntryHeader,
    section: bytes,
    values: Callable[[], bytes],
    *,
    unsized_empties_survive: bool = False,
) -> Keys:
    """Returns the key columns of an entry. `values`: returns its value section, if it is needed.

    Raises InvalidRequest; IncompatibleFormat if a later build wrote the entry.
    """
    if header.codec == Codec.PULSAR:
        return pulsar_keys(header, section, values, unsized_empties_survive)
    if header.codec != Codec.NATIVE:
        raise unknown_codec(header)
    return parse_keys(section)


def is_opaque(keys: Keys) -> bool:
    """Returns whether the entry survives or dies as a whole: one row stands for all messages."""
    return isinstance(keys, KeySection) and keys.is_opaque
