"""Undecodable entries, and entries that need much memory, in runs and in forecasts."""

from __future__ import annotations

import tracemalloc
from itertools import pairwise
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledgerfold.compactor.job import pulsar_keys as pulsar_keys_module
from ledgerfold.compactor.job.plan import input_segments
from ledgerfold.compactor.job.plan_check import check_input
from ledgerfold.compactor.job.pulsar_scan import scan_batch
from ledgerfold.compactor.strategies.publishing_order import PUBLISHING_ORDER
from ledgerfold.compactor.strategies.registry import AnyStrategy
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.compactor.what_if.history import HistoryScan, history_of
from ledgerfold.compactor.what_if.lifetimes import Lifetimes
from ledgerfold.compactor.what_if.replay import (
    sizes_by_lifetimes,
    sizes_by_publishing_order,
    sizes_run_by_run,
)
from ledgerfold.storage.entry import read_header, stamp
from ledgerfold.storage.pulsar.entries import entry_of
from ledgerfold.storage.segment import SegmentWriter
from ledgerfold.strategies.ready_made import KeepFirst
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.pulsar_pb2 import MessageMetadata
from tests.support.compaction import LogBuilder
from tests.support.local_analysis import analyze
from tests.support.local_run import run_tasks
from tests.support.pulsar_entries import batch_entry, message, metadata_of, packed

STRATEGIES: list[AnyStrategy] = [PUBLISHING_ORDER, MessageStrategy("keep-first", 1, KeepFirst)]
# As many messages as an entry may say it has.
MANY = 1_000_000


def entry(payload: bytes, section: bytes = b"", **fields: Any) -> bytes:
    metadata = metadata_of(**fields)
    return entry_of(metadata, metadata.SerializeToString() + section, payload)


def sealed(count: int, key: bytes = b"k") -> bytes:
    return entry(
        b"ciphertext",
        num_messages_in_batch=count,
        partition_key=key,
        encryption_keys=[b"key"],
        compression=3,
        uncompressed_size=6 * count,
    )


def damaged(count: int) -> bytes:
    return entry(b"damage", num_messages_in_batch=count, compression=3, uncompressed_size=6 * count)


def plan_of(folder: Path, entries: list[bytes], *, retain_null_key: bool = False) -> CompactionPlan:
    log = LogBuilder(folder)
    (log.ledgers_dir / "1").mkdir()
    writer = SegmentWriter(log.ledgers_dir, 1, 0)
    for entry_id, each in enumerate(entries):
        stored = stamp(each, 1, entry_id, append_time_ms=2000, producer_number=1)
        writer.append(read_header(stored), stored)
    log.segments.append(writer.seal())
    return log.plan(100, retain_null_key)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("retain", [False, True])
def test_forecasts_and_replays_count_undecodable_entries_as_runs_do(
    tmp_path: Path, strategy: AnyStrategy, retain: bool
) -> None:
    entries = [
        sealed(5, b"first"),
        damaged(4),
        batch_entry([message(b"1", "a"), message(b"2", "b")]),
        sealed(3, b"second"),
        sealed(1, b"third"),
    ]
    plan = plan_of(tmp_path, entries, retain_null_key=retain)
    segments = input_segments(plan, check_input)
    figures = analyze(plan, [strategy])
    with mock.patch("ledgerfold.compactor.job.plan.strategy_of", return_value=strategy):
        records, counts = run_tasks(plan)
    assert sum(record.messages for record in records) == 5 + 4 + 2 + 3 + 1
    assert figures.sized[0].messages == sum(record.messages for record in records)
    assert figures.sized[0].bytes == sum(record.size_bytes for record in records)
    assert figures.sized[0].bytes_estimated == 0
    assert (counts.messages_in, counts.null_keys) == (15, 0)
    history = history_of(list(HistoryScan(reads_event_times=False)([segments])))
    stored = np.cumsum(history.entry_bytes).tolist()
    horizons = list(range(len(entries)))
    assert sizes_by_publishing_order(history, retain).tolist() == stored
    by_run = sizes_run_by_run(history, horizons, lambda _: PUBLISHING_ORDER, retain)
    assert by_run.tolist() == stored
    none = np.empty(0, np.int64)
    by_lives = sizes_by_lifetimes(history, Lifetimes(none, none)).tolist()
    passing = int(history.entry_bytes[1])
    assert by_lives == [0, passing, passing, passing, passing]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_undecodable_entry_takes_no_memory_for_its_messages(
    tmp_path: Path, strategy: AnyStrategy
) -> None:
    """Entries of a hundred bytes that say they have a million."""
    plan = plan_of(tmp_path, [damaged(MANY), sealed(MANY), sealed(MANY, b"other")] * 10)
    tracemalloc.start()
    try:
        with mock.patch("ledgerfold.compactor.job.plan.strategy_of", return_value=strategy):
            records, counts = run_tasks(plan)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert counts.messages_in == 30 * MANY
    assert sum(record.entries for record in records) == 10 + 2
    assert peak < 20_000_000


def test_an_unknown_protobuf_group_does_not_block_a_compaction(tmp_path: Path) -> None:
    group = bytes.fromhex("c33e0801cb3ecc3ec43e")
    payload = packed([message(b"old", "k"), message(b"new", "k")])
    plan = plan_of(tmp_path, [entry(payload, group, num_messages_in_batch=2)])
    records, _ = run_tasks(plan)
    assert [record.messages for record in records] == [1]
    stored = (Path(plan.ledgers_dir) / records[0].path).read_bytes()
    header = read_header(stored)
    section = stored[header.header_bytes : header.header_bytes + header.key_bytes]
    assert group in section
    assert list(MessageMetadata.FromString(section).compacted_batch_indexes) == [1]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=30))
def test_keys_of_any_size_are_joined(keys: list[bytes]) -> None:
    payload = packed([message(b"v", key) for key in keys])
    offsets, joined = pulsar_keys_module._keys(payload, scan_batch(payload, len(keys)))
    found = [joined[start:end] for start, end in pairwise(offsets.tolist())]
    assert found == keys


def test_large_keys_take_little_extra_memory() -> None:
    """They compress well: a small entry may have a hundred megabytes of them."""
    payload = packed([message(b"v", b"k" * 1_000_000)] * 20)
    found = scan_batch(payload, 20)
    tracemalloc.start()
    try:
        pulsar_keys_module._keys(payload, found)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(payload)
