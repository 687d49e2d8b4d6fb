"""Entries that no run can open: encrypted batches, and batches that do not parse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledgerfold.compactor.job import plan as plan_module
from ledgerfold.compactor.job.plan import cut
from ledgerfold.compactor.strategies.publishing_order import PUBLISHING_ORDER
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.storage.codec import decode
from ledgerfold.storage.entry import read_header, stamp
from ledgerfold.storage.pulsar.entries import entry_of
from ledgerfold.storage.segment import SegmentWriter
from ledgerfold.strategies.ready_made import Numeric
from ledgerfold.v1.compactor_pb2 import Manifest
from ledgerfold.v1.records_pb2 import SegmentRecord
from tests.support.compaction import LogBuilder
from tests.support.local_analysis import analyze
from tests.support.local_run import run_tasks
from tests.support.pulsar_entries import batch_entry, message, metadata_of

COUNT = 3


def sealed(key: bytes | None) -> bytes:
    metadata = metadata_of(num_messages_in_batch=COUNT, encryption_keys=[b"key"])
    if key is not None:
        metadata.partition_key = key
    return entry_of(metadata, metadata.SerializeToString(), b"encrypted, all of them")


def broken() -> bytes:
    metadata = metadata_of(num_messages_in_batch=COUNT, partition_key=b"a")
    return entry_of(metadata, metadata.SerializeToString(), b"no batch of messages")


def add(log: LogBuilder, ledger_id: int, entries: list[bytes]) -> None:
    (log.ledgers_dir / str(ledger_id)).mkdir()
    writer = SegmentWriter(log.ledgers_dir, ledger_id, 0)
    for number, each in enumerate(entries):
        stored = stamp(each, ledger_id, number, 9, 1)
        writer.append(read_header(stored), stored)
    log.segments.append(writer.seal())


def left(log: LogBuilder, records: list[SegmentRecord]) -> list[tuple[int, int, int, list[bytes]]]:
    """Returns the position, message count and values of each entry."""
    found = []
    for record in records:
        data, at = (log.ledgers_dir / record.path).read_bytes(), 0
        while at < len(data):
            header = read_header(data, at)
            batch = decode(data[at : at + header.size_bytes])
            found.append((*header.position, header.message_count, batch.contents()))
            at += header.size_bytes
    return found


@pytest.mark.parametrize("retain", [False, True])
def test_an_opaque_entry_survives_or_is_removed_as_a_whole(tmp_path: Path, retain: bool) -> None:
    """The key in their metadata decides; an unparsable one survives."""
    log = LogBuilder(tmp_path)
    value = batch_entry([message(b"1", "b"), message(b"2", "c")])
    add(log, 1, [sealed(b"a"), sealed(b"b"), broken(), sealed(None), value])
    plan = log.plan(100, retain)
    records, counts = run_tasks(plan)
    assert left(log, records) == [
        (1, 0, COUNT, [b"encrypted, all of them"]),
        (1, 2, COUNT, [b"no batch of messages"]),
        *([(1, 3, COUNT, [b"encrypted, all of them"])] if retain else []),
        (1, 4, 2, [b"1", b"2"]),
    ]
    assert (counts.messages_in, counts.null_keys) == (4 * COUNT + 2, 1)
    (sized,) = analyze(plan, [PUBLISHING_ORDER]).sized
    assert sized.entries == len(left(log, records))


def test_a_message_strategy_gets_the_encrypted_bytes(tmp_path: Path) -> None:
    log = LogBuilder(tmp_path)
    add(log, 1, [sealed(b"a"), broken(), batch_entry([message(b"1", "b"), message(b"2", "b")])])
    plan = log.plan(100, strategy="numeric")
    records, _ = run_tasks(plan)
    found = left(log, records)
    assert (1, 1, COUNT, [b"no batch of messages"]) in found
    assert (1, 2, 1, [b"2"]) in found
    (sized,) = analyze(plan, [MessageStrategy("numeric", 1, Numeric)]).sized
    assert sized.entries == len(found)


def test_a_later_run_reads_segments_with_opaque_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no key index: no deletion vector can list a part of such an entry."""
    monkeypatch.setattr(plan_module, "SCANNED_SHARE_MAX", 1.0)
    log = LogBuilder(tmp_path)
    add(log, 1, [sealed(b"a"), broken(), batch_entry([message(b"1", "b"), message(b"2", "c")])])
    plan = log.plan(100)
    tasks = cut(plan, 2)
    records, _ = run_tasks(replace(tasks, output=replace(tasks.output, is_indexed=True)))
    assert len(records) == 1
    assert not records[0].HasField("key_index")
    add(log, 2, [batch_entry([message(None, "a"), message(b"3", "c")])])
    previous = Manifest(segments=records, horizon=plan.horizon)
    plan = log.plan(101, False, previous, segment_garbage_max=0.9)
    plan.keeps_segments = True
    tasks = cut(plan, 2)
    records, _ = run_tasks(replace(tasks, output=replace(tasks.output, is_indexed=True)))
    assert left(log, records) == [
        (1, 1, COUNT, [b"no batch of messages"]),
        (1, 2, 1, [b"1"]),
        (2, 0, 1, [b"3"]),
    ]
