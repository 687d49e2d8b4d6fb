"""Compares headers and key sections read many at a time with those read one by one."""

from __future__ import annotations

import mmap
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.compactor.job import header_blocks as blocks_module
from ledgerfold.compactor.job import single_messages as singles_module
from ledgerfold.compactor.job.header_blocks import header_at, header_blocks
from ledgerfold.compactor.job.key_columns import KeyColumns, Place
from ledgerfold.compactor.job.plan import InputSegment
from ledgerfold.compactor.job.scan import scan
from ledgerfold.compactor.job.segment_map import SegmentMap
from ledgerfold.compactor.job.single_messages import KEY_BYTES_MAX, single_messages
from ledgerfold.compactor.strategies.publishing_order import PUBLISHING_ORDER
from ledgerfold.storage.entry import EARLIEST, LATEST, EntryHeader, read_header, stamp
from ledgerfold.storage.errors import Corruption, LedgerfoldError
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.storage.segment import SegmentWriter, scan_headers
from ledgerfold.v1.entry_pb2 import NativeKeys
from tests.model.strategy_model import Message
from tests.support.compaction import LogBuilder, damage, read_messages
from tests.support.ledgers import as_version_1
from tests.support.local_run import run_tasks


class Single(NamedTuple):
    """An entry: `messages` of these contents, at an id that is `step` above the one before."""

    key: bytes | None
    value: bytes = b"1"
    event_time_ms: int = 0
    messages: int = 1
    step: int = 1
    is_old: bool = False


KEYS = st.one_of(
    st.binary(min_size=1, max_size=9),
    st.sampled_from([None, b"", b"k" * KEY_BYTES_MAX, b"k" * (KEY_BYTES_MAX + 1)]),
)
USUAL = st.tuples(
    st.binary(min_size=1, max_size=9), st.sampled_from([b"", b"12"]), st.sampled_from([0, 7])
).map(lambda drawn: Single(*drawn))
SINGLES = st.builds(
    Single,
    KEYS,
    st.sampled_from([b"", b"12"]),
    st.sampled_from([0, 7]),
    st.sampled_from([1, 1, 2]),
    st.sampled_from([1, 1, 1, 1, 5, 0]),
    st.sampled_from([False, False, True]),
)


def _entries(singles: list[Single]) -> list[bytes]:
    entries, entry_id = [], 0
    for single in singles:
        builder = NativeBatchBuilder("p")
        for _ in range(single.messages):
            builder.add(single.value, single.key, event_time_ms=single.event_time_ms)
        built = builder.build(sequence_id=0, publish_time_ms=1, plain=single.messages == 1)
        entry_id += single.step
        entry = stamp(built, 1, entry_id, append_time_ms=2, producer_number=1)
        entries.append(as_version_1(entry) if single.is_old else entry)
    return entries


def _segment(folder: Path, entries: list[bytes]) -> InputSegment:
    (folder / "1").mkdir()
    writer = SegmentWriter(folder, 1, 0)
    for entry in entries:
        writer.append(read_header(entry), entry)
    record = writer.seal()
    return InputSegment(0, str(folder / record.path), record, False, EARLIEST, LATEST, 0)


def _taken(found: Iterator[tuple[EntryHeader, int]]) -> tuple[list[tuple[EntryHeader, int]], str]:
    """Returns the yielded items, and the error at the end."""
    taken: list[tuple[EntryHeader, int]] = []
    try:
        taken.extend(found)
    except LedgerfoldError as error:
        return taken, str(error)
    return taken, ""


@given(st.lists(SINGLES, min_size=1, max_size=20), st.integers(1, 8), st.data())
def test_headers_found_by_block_equal_those_found_one_by_one(
    singles: list[Single], block_entries: int, data: st.DataObject
) -> None:
    """Also up to a damaged byte, an id that does not rise, or a cut: then with the same error."""
    stored = bytearray(b"".join(_entries(singles)))
    if data.draw(st.booleans()):
        stored[data.draw(st.integers(0, len(stored) - 1))] ^= data.draw(
            st.sampled_from([1, 2, 128])
        )
    del stored[len(stored) - data.draw(st.sampled_from([0, 0, 0, 3, 75])) :]
    with mmap.mmap(-1, max(len(stored), 1)) as mapped, pytest.MonkeyPatch.context() as patch:
        mapped[: len(stored)] = bytes(stored)
        patch.setattr(blocks_module, "BLOCK_ENTRIES", block_entries)
        ours = _taken(
            (header_at(block, index), offset)
            for block in header_blocks(mapped, "1/0.log", len(stored))
            for index, offset in enumerate(block.offsets.tolist())
        )
    assert ours == _taken(scan_headers(stored, "1/0.log", len(stored)))


@given(st.lists(st.one_of(USUAL, SINGLES.map(lambda each: each._replace(step=1))), min_size=1))
def test_columns_joined_from_a_block_equal_those_of_its_entries(singles: list[Single]) -> None:
    """A block of single messages is read as a whole if all keys have a usual length."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(singles_module, "BLOCK_MIN", 1)
        one_by_one, joined = KeyColumns(), KeyColumns()
        with SegmentMap(_segment(Path(folder), _entries(singles))) as mapped:
            for entry in mapped.entries():
                one_by_one.add(mapped, entry)
            for block in mapped.blocks():
                section = single_messages(mapped, block)
                chosen = singles[joined.entries : joined.entries + len(block.offsets)]
                usual = all(
                    each.messages == 1 and each.key and len(each.key) <= KEY_BYTES_MAX
                    for each in chosen
                )
                assert (section is not None) == usual
                if section is None:
                    return
                place, size = Place("1/0.log", 0), block.end - int(block.offsets[0])
                joined.add_singles(place, joined.rows, section, size)
    joined.check()
    one_by_one.check()
    assert joined.keys().equals(one_by_one.keys())
    for name in ("rows", "entries", "key_bytes", "size_bytes"):
        assert getattr(joined, name) == getattr(one_by_one, name)
    for ours, theirs in zip(joined.facts()[:2], one_by_one.facts()[:2], strict=True):
        assert ours.tolist() == theirs.tolist()


@pytest.mark.parametrize("order", [(3, 1, 2, 4), (1, 3, 4, 2)])
def test_a_section_in_another_form_is_left_to_protobuf(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    """Protobuf allows fields in any order; their bytes are never taken for another field."""
    entry = _entries([Single(b"key")])[0]
    header = read_header(entry)
    keys_at = header.header_bytes
    section = entry[keys_at : keys_at + header.key_bytes]
    whole = NativeKeys.FromString(section)
    names = {1: "key_offsets", 2: "keys", 3: "flags", 4: "value_sizes"}
    parts = [
        NativeKeys(**{names[number]: getattr(whole, names[number])}).SerializeToString()
        for number in order
    ]
    assert NativeKeys.FromString(b"".join(parts)) == whole
    sizes = np.array([len(section)])
    assert singles_module._columns(section, sizes) == whole
    assert singles_module._columns(b"".join(parts), sizes) is None


@given(
    st.lists(st.lists(USUAL, min_size=1, max_size=30), min_size=1, max_size=3), st.integers(1, 9)
)
def test_runs_over_unbatched_messages_equal_the_model(
    shape: list[list[Single]], block_entries: int
) -> None:
    """Scanned and copied in blocks; every other entry of the log is of version 1, or none."""
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(singles_module, "BLOCK_MIN", 1)
        patch.setattr(blocks_module, "BLOCK_ENTRIES", block_entries)
        patch.setattr("tests.support.compaction.as_version_1", lambda entry: entry)
        log = LogBuilder(Path(folder))
        for ledger_id, singles in enumerate(shape, 1):
            batch = [Message(each.key, each.value, each.event_time_ms, True) for each in singles]
            log.add_segment(ledger_id, [batch])
        records, counts = run_tasks(log.plan(100))
        assert read_messages(log.ledgers_dir, records) == log.expected()
        assert counts.entries_in == counts.messages_in == len(list(chain(*shape)))
        assert counts.removed_events == log.outcome().removed_events


@pytest.mark.parametrize("at", [40, 90, 200, 700])
def test_damage_among_unbatched_messages_is_located(tmp_path: Path, at: int) -> None:
    """As if entries were read one by one."""
    singles = [Single(b"key-%d" % number) for number in range(30)]
    segment = _segment(tmp_path, _entries(singles))
    damage(Path(segment.path), at)
    with pytest.raises(Corruption) as raised:
        list(scan([segment], PUBLISHING_ORDER, 1, False))
    assert raised.value.path == segment.path
    size = segment.record.size_bytes // len(singles)
    assert raised.value.offset // size == at // size
