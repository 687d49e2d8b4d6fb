"""The key sections of some entries of a segment, without the rest of the file.

A few entries of many are read, so a read of each costs less than the pages of a mapping.

Bound: one key section, or READ_BYTES_MIN.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from ledgerfold.compactor.job.key_columns import Place
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.storage.entry import HEADER_BYTES, EntryHeader, read_header, verify_sections
from ledgerfold.storage.errors import Corruption, InvalidRequest, MissingFile
from ledgerfold.storage.file_window import Window
from ledgerfold.storage.files import REAL
from ledgerfold.storage.native_batch import parse_keys
from ledgerfold.storage.segment import shifted
from ledgerfold.v1.entry_pb2 import NativeKeys

# Small entries are read together.
READ_BYTES_MIN = 4096


class EntryKeys(NamedTuple):
    """An entry without its values. `place`: of the key section."""

    place: Place
    header: EntryHeader
    keys: NativeKeys


def read_keys(segment: InputSegment, offsets: Iterable[int]) -> Iterator[EntryKeys]:
    """Yields the entries that begin at `offsets`, which ascend; headers and keys are verified.

    Raises Corruption, IncompatibleFormat, MissingFile, DiskFailure.
    """
    path, size_bytes = segment.path, segment.record.size_bytes
    try:
        file = REAL.open_read(Path(path))
    except FileNotFoundError as error:
        raise MissingFile(path, "the compaction plan") from error
    with closing(file):
        if file.size_bytes < size_bytes:
            raise MissingFile(path, "the compaction plan")
        window, wanted = Window(file.pread, size_bytes), READ_BYTES_MIN
        for offset in offsets:
            try:
                at = window.place(offset, HEADER_BYTES, wanted)
                header = read_header(window.view, at, path)
                size = header.header_bytes + header.key_bytes
                at = window.place(offset, size, size)
                section, _ = verify_sections(window.view, header, at, path, keys_only=True)
            except Corruption as error:
                raise shifted(error, window.base) from error
            place = Place(path, offset + header.header_bytes)
            try:
                keys = parse_keys(section)
            except InvalidRequest as error:
                raise Corruption(*place, "a native key section", str(error)) from error
            yield EntryKeys(place, header, keys)
            # The next key section is probably not much larger.
            wanted = max(size + size // 8, READ_BYTES_MIN)
