"""Keys are scanned without their values, with any sizes; damage ends the scan with an error."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.storage import key_scan
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import HEADER_BYTES, Compression, Position, read_header, stamp
from ledgerfold.storage.errors import Corruption
from ledgerfold.storage.files import REAL
from ledgerfold.storage.key_scan import KeyVersion, scan_keys, versions_of
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.segment import SegmentWriter
from ledgerfold.v1.records_pb2 import SegmentRecord
from tests.support.property_tests import examples

Row = tuple[bytes | None, bytes | None, int]
ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, b"", b"k", b"kk", b"other\xff", b"x" * 300]),
        st.sampled_from([None, b"", b"1", b"v" * 700]),
        st.sampled_from([0, 5]),
    ),
    min_size=1,
    max_size=4,
)


def write(folder: Path, batches: list[list[Row]]) -> SegmentRecord:
    (folder / "1").mkdir(parents=True)
    writer = SegmentWriter(folder, 1, 0)
    for number, rows in enumerate(batches):
        builder = NativeBatchBuilder("p")
        for key, value, event_ms in rows:
            builder.add(value, key, event_time_ms=event_ms, key_is_base64=key == b"kk")
        built = builder.build(
            sequence_id=number, publish_time_ms=9, compression=Compression.ZSTD, plain=False
        )
        entry = stamp(built, 1, number, append_time_ms=9, producer_number=1)
        writer.append(read_header(entry), entry)
    return writer.seal()


def scanned(folder: Path, segment: SegmentRecord, key: bytes | None) -> Iterator[KeyVersion]:
    file = REAL.open_read(folder / segment.path)
    for header, keys in scan_keys(file.pread, segment):
        yield from versions_of(header, keys, key)


@given(st.lists(ROWS, min_size=1, max_size=6), st.sampled_from([100, 300, 4096]))
@settings(max_examples=examples(40))
def test_a_scan_finds_the_same_versions_as_decoding(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[Row]], block_bytes: int
) -> None:
    """With blocks smaller and larger than entries: the same as reading everything."""
    folder = tmp_path_factory.mktemp("segments")
    segment = write(folder, batches)
    data, offset, expected = (folder / segment.path).read_bytes(), 0, []
    while offset < len(data):
        header = read_header(data, offset)
        for each in decode(data[offset : offset + header.size_bytes]).messages():
            version = KeyVersion(
                header.position, each.batch_index, 9, each.event_time_ms, len(each.value),
                each.key_is_base64,
            )  # fmt: skip
            expected.append((each.key, version))
        offset += header.size_bytes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_scan, "BLOCK_BYTES", block_bytes)
        patch.setattr(key_scan, "HOP_BYTES", 80)
        for key in (None, b"", b"k", b"kk", b"absent"):
            found = list(scanned(folder, segment, key))
            assert found == [version for has, version in expected if has == key]


def test_large_values_are_not_read(tmp_path: Path) -> None:
    """A scan of a segment of large values reads a small part of it."""
    incompressible = random.Random(1).randbytes(100_000)
    segment = write(tmp_path, [[(b"k", incompressible, 0)]] * 5)
    file, read = REAL.open_read(tmp_path / segment.path), 0

    def pread(size: int, offset: int) -> bytes:
        nonlocal read
        read += size
        return file.pread(size, offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(key_scan, "BLOCK_BYTES", 512)
        patch.setattr(key_scan, "HOP_BYTES", 256)
        assert len(list(scan_keys(pread, segment))) == 5
    assert read < segment.size_bytes / 100


def test_damage_is_an_error_with_its_place(tmp_path: Path) -> None:
    """Every bit of headers and key sections counts; a file that ends early is damage, too."""
    segment = write(tmp_path, [[(b"k", b"", 0)], [(b"k", b"", 0)]])
    path = tmp_path / segment.path
    whole = path.read_bytes()
    second = read_header(whole).size_bytes
    key_section_end = second + HEADER_BYTES + read_header(whole, second).key_bytes
    for at in range(second, key_section_end):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 4,)) + whole[at + 1 :])
        with pytest.raises(Corruption) as error:
            list(scanned(tmp_path, segment, b"k"))
        assert error.value.offset >= second
    path.write_bytes(whole[:-1])
    short = SegmentRecord()
    short.CopyFrom(segment)
    short.size_bytes -= 1
    with pytest.raises(Corruption):
        list(scanned(tmp_path, short, b"k"))
    assert next(scanned(tmp_path, segment, b"k")).position == Position(1, 0)
