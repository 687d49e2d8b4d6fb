"""The key sections of some entries of a segment, without the rest of the file.

Few entries of many are read, so reading each costs less than mapping pages.

Bound: one key section, or READ_BYTES_MIN; or one Pulsar batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ledgerfold.compactor.job.key_columns import Place
from ledgerfold.compactor.job.key_sections import Keys, key_columns
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.storage.entry import HEADER_BYTES, Codec, EntryHeader, read_header, verify_sections
from ledgerfold.storage.errors import Corruption, InvalidRequest, MissingFile
from ledgerfold.storage.file_window import Window
from ledgerfold.storage.files import REAL
from ledgerfold.storage.segment import shifted

# Small entries are read together.
READ_BYTES_MIN = 4096


class EntryKeys(NamedTuple):
    """An entry without its values. `place`: of the key section."""

    place: Place
    header: EntryHeader
    keys: Keys


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
                is_batch = header.codec == Codec.PULSAR and not header.is_plain
                size = header.header_bytes + header.key_bytes
                if is_batch:
                    size = header.size_bytes
                at = window.place(offset, size, size)
                view = window.view
                section, values = verify_sections(view, header, at, path, keys_only=not is_batch)
            except Corruption as error:
                raise shifted(error, window.base) from error
            place = Place(path, offset + header.header_bytes)
            try:
                keys = key_columns(
                    header,
                    section,
                    partial(bytes, values),
                    unsized_empties_survive=segment.unsized_empties_survive,
                )
            except InvalidRequest as error:
                raise Corruption(*place, "a key section", str(error)) from error
            yield EntryKeys(place, header, keys)
            # The next key section is probably not much larger.
            wanted = max(size + size // 8, READ_BYTES_MIN)
