"""The start of a load: with a snapshot only while its batches exist."""

from __future__ import annotations

import pytest

from ledgerfold.broker.kafka.log.segment_list import intact_end
from ledgerfold.broker.kafka.producers.producer_snapshots import (
    SNAPSHOTS_MAX,
    forget_snapshots,
    record_rolled,
    replay_start,
)
from ledgerfold.v1.records_pb2 import KafkaLog, KafkaProducer, KafkaProducers, KafkaSegment


def log_of(*segments: KafkaSegment) -> KafkaLog:
    """Returns a log whose active segment begins at 9; producer 7 had appended before it."""
    known = KafkaProducers(end_offset=9, producers=[KafkaProducer(producer_id=7)])
    return KafkaLog(segments=segments, rolled=known)


ENDED = KafkaSegment(base_offset=0, ledger_ids=[1, 2], figures={"next_offset": 9})
ACTIVE = KafkaSegment(base_offset=9, ledger_ids=[3])


@pytest.mark.parametrize(
    ("ends", "known"),
    [({1: 5, 2: 9}, [7]), ({1: 5, 2: 8}, []), ({1: 5}, []), ({}, [])],
    ids=["all", "the last batch is gone", "a ledger is gone", "all is gone"],
)
def test_a_snapshot_of_lost_batches_is_not_used(ends: dict[int, int], known: list[int]) -> None:
    """The log may end at that offset again, or behind it, with other batches."""
    log = log_of(ENDED, ACTIVE)
    begun = replay_start(log, 9, intact_end(log, 9, ends.get))
    assert [each.producer_id for each in begun.producers] == known
    assert begun.replayed_from == (9 if known else 0)


def test_records_removed_by_cleaning_or_retention_are_not_missed() -> None:
    cleaned = KafkaSegment(base_offset=0, is_cleaned=True, figures={"next_offset": 9})
    empty = KafkaSegment(base_offset=4, ledger_ids=[2], figures={"next_offset": 4})
    for segments in ((cleaned, ACTIVE), (ACTIVE,), (empty, ACTIVE)):
        assert intact_end(log_of(*segments), 9, dict[int, int]().get) == 9


def test_a_loss_keeps_earlier_snapshots() -> None:
    """A cleaning may have removed the batches that a replay of the whole log would need.

    The simulator knew the defect as a resend that was stored twice; no test lost the end of a
    segment behind a cleaned one.
    """
    before = KafkaProducers(end_offset=5, producers=[KafkaProducer(producer_id=6)])
    log = log_of(
        KafkaSegment(base_offset=0, is_cleaned=True, figures={"next_offset": 5}),
        KafkaSegment(base_offset=5, ledger_ids=[2], figures={"next_offset": 9}, producers=before),
        ACTIVE,
    )
    for held, known, end in (({2: 8}, 6, 5), ({}, 6, 5), ({2: 9}, 7, 9)):
        intact = intact_end(log, 9, held.get)
        begun = replay_start(log, 9, intact)
        assert ([each.producer_id for each in begun.producers], begun.replayed_from) == (
            [known],
            end,
        )
    forget_snapshots(log, 8)
    assert log.rolled == before
    # The next crash, too, starts there.
    assert replay_start(log, 9, intact_end(log, 5, {2: 8}.get)).replayed_from == 5
    forget_snapshots(log, 4)
    assert not log.HasField("rolled")


def test_the_number_of_segment_snapshots_is_bounded() -> None:
    """The oldest go first."""
    log = KafkaLog()
    each = SNAPSHOTS_MAX // 2
    for base in range(1, 5):
        log.segments.add(base_offset=base)
        known = [KafkaProducer(producer_id=number) for number in range(each)]
        record_rolled(log, KafkaProducers(end_offset=base, producers=known))
    kept = [segment.base_offset for segment in log.segments if segment.HasField("producers")]
    assert (kept, log.rolled.end_offset) == ([2, 3], 4)
