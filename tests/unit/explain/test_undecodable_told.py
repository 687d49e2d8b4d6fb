"""`explain` before and after a run: entries that a run takes as one message, limits of event times.

The tests of `explain` had compared it with runs over entries that can be decoded only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ledgerfold.broker.explain.rules import Facts, explain
from ledgerfold.broker.explain.run_line import RunLine
from ledgerfold.broker.explain.versions import found_in
from ledgerfold.storage.entry import Position
from ledgerfold.storage.key_scan import KeyVersion, versions_of
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.v1 import explain_pb2 as pb
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_SUCCESS,
    CompactedView,
    CompactionStrategy,
    RunRecord,
    SegmentRecord,
)
from tests.support.compaction import reader_of
from tests.support.local_run import run_tasks
from tests.unit.compactor.test_pulsar_opaque import damaged, plan_of, sealed


def versions(
    folder: Path, segments: Sequence[SegmentRecord], key: bytes | None
) -> Iterator[KeyVersion]:
    reader = reader_of(folder, segments)
    for segment in segments:
        for header, sections in reader.keys(segment):
            yield from versions_of(header, bytes(sections), key)


def told_before_and_after(
    folder: Path, entries: Sequence[bytes], key: bytes | None, strategy: str
) -> tuple[list[pb.ExplainedVersion], list[pb.ExplainedVersion]]:
    """Explains a key before and after a run over these entries."""
    plan = plan_of(folder, list(entries))
    plan.strategy = strategy
    ledgers, asked = Path(plan.ledgers_dir), CompactionStrategy(name=strategy)
    before = explain(
        found_in(versions(ledgers, plan.segments, key), ()),
        Facts(has_key=key is not None, strategy=asked),
    )
    compacted, _ = run_tasks(plan)
    horizon = plan.horizon
    run = RunRecord(
        number=1,
        state=RUN_STATE_SUCCESS,
        ledger_id=100,
        previous_ledger_id=-1,
        horizon=horizon,
        strategy=strategy,
        retain_null_key=False,
    )
    view = CompactedView(ledger_id=100, run_number=1, horizon=horizon)
    facts = Facts(
        horizon=Position(horizon.ledger_id, horizon.entry_id),
        line=RunLine.of([run], view),
        has_key=key is not None,
        is_whole=True,
        strategy=asked,
    )
    both = found_in(versions(ledgers, plan.segments, key), versions(ledgers, compacted, key))
    return before.versions, explain(both, facts).versions


def kept(explained: Sequence[pb.ExplainedVersion]) -> list[int]:
    """Returns the entries that explain says are kept."""
    return [each.id.entry_id for each in explained if each.state == pb.VERSION_STATE_KEPT]


def to_be_kept(explained: Sequence[pb.ExplainedVersion]) -> list[int]:
    return [each.id.entry_id for each in explained if "keeps it" in each.next]


@pytest.mark.parametrize("strategy", ["event-time", "publishing-order"])
def test_of_encrypted_batches_with_equal_event_times_the_last_is_kept(
    tmp_path: Path, strategy: str
) -> None:
    """As in Pulsar: the rule for batches is for batches that a run can read."""
    before, after = told_before_and_after(tmp_path, [sealed(2), sealed(2)], b"k", strategy)
    assert (to_be_kept(before), kept(after)) == ([1], [1])
    assert not any(each.state == pb.VERSION_STATE_INCONSISTENT for each in after)


def test_a_batch_that_does_not_parse_is_kept_without_a_policy(tmp_path: Path) -> None:
    """It is no message without a key."""
    before, after = told_before_and_after(tmp_path, [damaged(2)], None, "publishing-order")
    assert [each.next for each in before] == ["the next run keeps it: the batch does not parse"]
    (told,) = after
    assert told.what == "the batch does not parse, kept by run 1"
    assert told.next == "stays: every run keeps a batch that does not parse"


def test_event_times_beyond_the_limit_are_equal(tmp_path: Path) -> None:
    entries = [_at(2**62 + 5, b"1"), _at(2**62, b"2")]
    before, after = told_before_and_after(tmp_path, entries, b"k", "event-time")
    assert (to_be_kept(before), kept(after)) == ([1], [1])
    assert not any(each.state == pb.VERSION_STATE_INCONSISTENT for each in after)


def _at(event_time_ms: int, value: bytes) -> bytes:
    builder = NativeBatchBuilder("p")
    builder.add(value, b"k", event_time_ms=event_time_ms)
    return builder.build(sequence_id=1, publish_time_ms=5, plain=True)
