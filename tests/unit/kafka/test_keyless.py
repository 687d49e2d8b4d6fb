"""Tests which records have no key: a batch framed as a previous one gets the same answer."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledgerfold.broker.kafka.log import record_access as keyless
from ledgerfold.broker.kafka.log.record_access import keyless_rows
from ledgerfold.storage.errors import KafkaError
from ledgerfold.storage.kafka import frame
from ledgerfold.storage.kafka.frame import FRAME_BYTES_MAX, FRAMES_MAX, RUNS_MAX, Frames
from ledgerfold.storage.kafka.records import build_columns
from tests.support.property_tests import examples

# Records in a batch: offsets of one byte, of two, of three; more than one look at a stretch.
COUNTS = [8, 64, 65, 200, 1100, 8300]


@pytest.fixture(autouse=True)
def frames(monkeypatch: pytest.MonkeyPatch) -> Frames:
    frames = Frames()
    monkeypatch.setattr(keyless, "_FRAMES", frames)
    return frames


def section(
    count: int, *, key: bytes | None = b"key", value: bytes | None = b"v", times: Sequence[int] = ()
) -> bytes:
    columns = [key] * count, [value] * count, times or [7] * count
    return build_columns(*columns)[61:]


def answer(data: bytes, count: int) -> object:
    try:
        return list(keyless_rows(data, count))
    except KafkaError as error:
        return error.kind, str(error)


def answer_of_a_stranger(data: bytes, count: int) -> object:
    """Returns the answer without a learned framing."""
    try:
        return list(keyless._scanned(data, count, None))
    except KafkaError as error:
        return error.kind, str(error)


@pytest.mark.parametrize("count", COUNTS)
def test_the_third_batch_of_a_size_is_framed(count: int, frames: Frames) -> None:
    for key in (b"one", b"two"):
        assert frames.fitting(section(count, key=key), count) is None
        assert answer(section(count, key=key), count) == []
    data = section(count, key=b"all", value=b"x")
    assert frames.fitting(data, count) is not None
    assert answer(data, count) == []


def test_records_without_a_key_are_found_by_the_frame(frames: Frames) -> None:
    for _ in range(3):
        assert answer(section(100, key=None), 100) == list(range(100))
    assert frames.fitting(section(100, key=None), 100) is not None


@settings(max_examples=examples(400), deadline=None)
@given(
    count=st.sampled_from(COUNTS[:4]),
    key=st.sampled_from([None, b"", b"k", b"k" * 70]),
    value=st.sampled_from([None, b"", b"v" * 63, b"v" * 64]),
    late_ms=st.sampled_from([0, 1, 63, 64, 9000]),
    changes=st.lists(st.tuples(st.floats(0, 1), st.integers(0, 255)), max_size=3),
)
def test_a_frame_agrees_with_the_inspection_of_every_record(
    count: int,
    key: bytes | None,
    value: bytes | None,
    late_ms: int,
    changes: list[tuple[float, int]],
) -> None:
    times = [7] + [7 + late_ms] * (count - 1)
    data = section(count, key=key, value=value, times=times)
    for _ in range(2):
        answer(data, count)
    changed = bytearray(data)
    for place, byte in changes:
        changed[int(place * (len(data) - 1))] = byte
    assert answer(bytes(changed), count) == answer_of_a_stranger(bytes(changed), count)


@pytest.mark.parametrize("count", COUNTS[:3])
def test_each_byte_of_a_frame_is_compared(count: int) -> None:
    data = section(count, times=[7] + [200] * (count - 1))
    for _ in range(2):
        answer(data, count)
    for place in range(len(data)):
        for bit in (1, 128):
            changed = bytearray(data)
            changed[place] ^= bit
            told = answer(bytes(changed), count)
            assert told == answer_of_a_stranger(bytes(changed), count), (place, bit)


def test_cached_frames_are_bounded(frames: Frames) -> None:
    for count in range(8, 8 + 2 * FRAMES_MAX):
        for _ in range(2):
            answer(section(count), count)
    assert len(frames._frames) == FRAMES_MAX
    many = 1024 * (RUNS_MAX + 1)
    for _ in range(3):
        assert answer(section(many), many) == []
    assert frames.fitting(section(many), many) is None


def test_a_frame_of_many_records_without_keys_is_bounded_too(frames: Frames) -> None:
    counts = [1024 * (RUNS_MAX - 2) - less for less in range(4)]
    sections = [section(count, key=None) for count in counts]
    tracemalloc.start()
    for data, count in [*zip(sections, counts, strict=True)] * 2:
        answer(data, count)
    kept_bytes = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept_bytes < 1.1 * len(counts) * FRAME_BYTES_MAX


def test_records_of_a_new_size_are_not_cached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Most small batches of values that differ: to learn them is no gain."""
    monkeypatch.setattr(frame, "layout_at", lambda data, at: pytest.fail("It is learned."))
    for size_bytes in range(20):
        values: list[bytes | None] = [bytes(each * size_bytes) for each in range(6)]
        assert answer(build_columns([b"k"] * 6, values, [7] * 6)[61:], 6) == []


def test_records_that_differ_are_not_cached(frames: Frames) -> None:
    data = build_columns([b"k", b"kk"] * 20, [b"v"] * 40, [7] * 40)[61:]
    for _ in range(3):
        assert answer(data, 40) == []
    assert frames.fitting(data, 40) is None
