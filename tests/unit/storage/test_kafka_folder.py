"""A partition's folder: the valid segments after a crash of Kafka's broker, and damage."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledgerfold.storage.errors import Corruption, InvalidRequest, KafkaError
from ledgerfold.storage.kafka.folder import (
    SegmentFile,
    SegmentReading,
    TornTail,
    log_file_name,
    segments_of,
)
from ledgerfold.storage.kafka.records import KafkaRecord, build_batch


def batch(offset: int, value: bytes = b"v") -> bytes:
    return build_batch([KafkaRecord(offset, 1000, b"k", value)], base_offset=offset)


def write(folder: Path, base: int, *offsets: int, suffix: str = "", kind: str = "log") -> Path:
    path = folder / (log_file_name(base, kind) + suffix)
    path.write_bytes(b"".join(batch(each) for each in offsets))
    return path


def found(folder: Path) -> list[tuple[int, str]]:
    return [(each.base_offset, each.path.name.rpartition(".")[2]) for each in segments_of(folder)]


def read(segment: SegmentFile, *, is_last: bool = True) -> tuple[list[int], TornTail | None]:
    reading = SegmentReading(segment, is_last=is_last)
    return [each.header.base_offset for each in reading], reading.torn


FAR = 2**31 - 1


@pytest.mark.parametrize(
    ("base", "offsets", "pieces"),
    [
        (0, [0, FAR], {0: [0, FAR]}),
        (0, [0, 1, FAR + 1, FAR + 2], {0: [0, 1], FAR + 1: [FAR + 1, FAR + 2]}),
        # The pieces begin at their first batches, and so more may fit.
        (0, [100, FAR + 50], {100: [100, FAR + 50]}),
        (7, [FAR + 50], {FAR + 50: [FAR + 50]}),
        (0, [0, FAR + 1, 3 * FAR], {0: [0], FAR + 1: [FAR + 1], 3 * FAR: [3 * FAR]}),
    ],
)
def test_a_segment_with_offsets_too_far_from_its_base_is_split(
    tmp_path: Path, base: int, offsets: list[int], pieces: dict[int, list[int]]
) -> None:
    """As Kafka's cleaner does; in front of another one, and as the last."""
    path = write(tmp_path, base, *offsets)
    for following in ([], [4 * FAR]):
        for each in following:
            write(tmp_path, each, each)
        segments = segments_of(tmp_path)
        expected = {**pieces, **{each: [each] for each in following}}
        told = {each.base_offset: read(each, is_last=False)[0] for each in segments}
        assert told == expected
        sizes = [each.size_bytes for each in segments if each.path == path]
        assert sum(sizes) == path.stat().st_size


def test_a_torn_tail_after_a_split(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 0, FAR + 1)
    path.write_bytes(path.read_bytes() + batch(FAR + 2)[:-5])
    first, last = segments_of(tmp_path)
    assert read(first, is_last=False) == ([0], None)
    offsets, torn = read(last)
    assert (offsets, torn and torn.offset) == ([FAR + 1], 2 * len(batch(0)))


def test_unfinished_files_of_a_cleaning_are_ignored(tmp_path: Path) -> None:
    for base in (0, 10, 20):
        write(tmp_path, base, base)
    write(tmp_path, 10, 10, suffix=".swap")
    write(tmp_path, 0, 0, suffix=".cleaned")
    write(tmp_path, 30, 30, suffix=".deleted")
    assert found(tmp_path) == [(0, "log"), (10, "log"), (20, "log")]


def test_a_swap_file_replaces_the_segments_that_it_covers(tmp_path: Path) -> None:
    for base in (0, 10, 20):
        write(tmp_path, base, base)
    write(tmp_path, 0, 0, 10, suffix=".swap")
    write(tmp_path, 0, suffix=".swap", kind="index")
    assert found(tmp_path) == [(0, "swap"), (20, "log")]


def test_swap_files_below_an_unfinished_file_are_complete(tmp_path: Path) -> None:
    for base in (0, 10, 20):
        write(tmp_path, base, base)
    write(tmp_path, 0, 1, suffix=".swap")
    write(tmp_path, 10, 10, suffix=".swap")
    # An index alone tells that the segment was not finished.
    write(tmp_path, 10, suffix=".cleaned", kind="timeindex")
    assert found(tmp_path) == [(0, "swap"), (10, "log"), (20, "log")]


def test_a_folder_without_segments(tmp_path: Path) -> None:
    write(tmp_path, 0, 0, suffix=".deleted")
    (tmp_path / "partition.metadata").write_text("version: 0\n")
    with pytest.raises(InvalidRequest, match="holds no segment"):
        segments_of(tmp_path)


@pytest.mark.parametrize("left", [b"\x00" * 200, batch(1)[:30], batch(1)[:-1], b"\x00" * 3])
def test_a_torn_tail_is_ignored(tmp_path: Path, left: bytes) -> None:
    path = write(tmp_path, 0, 0)
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes() + left)
    [segment] = segments_of(tmp_path)
    offsets, torn = read(segment)
    assert offsets == [0]
    assert torn is not None
    assert (torn.offset, torn.size_bytes) == (whole, len(left))
    with pytest.raises(Corruption) as raised:
        read(segment, is_last=False)
    assert (raised.value.path, raised.value.offset) == (path.name, whole)


def test_a_last_batch_with_a_wrong_checksum_is_torn(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 0, 1)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    offsets, torn = read(segments_of(tmp_path)[0])
    assert offsets == [0]
    assert torn is not None
    assert "crc" in torn.why


def test_damage_before_intact_batches_is_an_error(tmp_path: Path) -> None:
    path = write(tmp_path, 0, 0, 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2 - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Corruption, match=r"00000000000000000000.log is damaged at byte 0"):
        read(segments_of(tmp_path)[0])


def test_decreasing_offsets_are_damage(tmp_path: Path) -> None:
    write(tmp_path, 0, 5, 5)
    with pytest.raises(Corruption, match="expected an offset from 6 on, found 5"):
        read(segments_of(tmp_path)[0])


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused(tmp_path: Path, magic: int) -> None:
    path = write(tmp_path, 0, 0)
    data = bytearray(path.read_bytes())
    data[16] = magic
    path.write_bytes(data)
    with pytest.raises(KafkaError, match=f"a message of magic {magic} at byte 0"):
        read(segments_of(tmp_path)[0])
