"""Tests the oracle of Kafka logs."""

from __future__ import annotations

import pytest

from ledgerfold.v1.compactor_pb2 import CleanPlan
from tests.simulation.kafka_life import KafkaLife, Sent

PLAN = CleanPlan(time_ms=1_000, upper_bound=1)


class ViolationError(Exception):
    pass


def _fail(text: str) -> None:
    raise ViolationError(text)


@pytest.fixture
def life() -> KafkaLife:
    made = KafkaLife("t", _fail)
    made.at[0] = Sent("1", b"k", is_tombstone=False, timestamp_ms=950)
    return made


def _change(life: KafkaLife, answered_ms: int, **config: str) -> None:
    with life.changing_settings(lambda: answered_ms):
        life.record.kafka.config.update(
            {name.replace("_", "."): each for name, each in config.items()}
        )


def test_a_record_younger_than_the_lag_may_not_be_cleaned(life: KafkaLife) -> None:
    _change(life, 900, min_compaction_lag_ms="100")
    with pytest.raises(ViolationError, match="a round up to 1 takes 1 at 0, which is young"):
        life.on_plan(PLAN)


def test_a_cleaning_planned_before_the_lag_was_set_may_clean_a_record(life: KafkaLife) -> None:
    """Also when settings have changed again since."""
    _change(life, 1_000, min_compaction_lag_ms="100")
    _change(life, 1_001, segment_ms="50")
    life.on_plan(PLAN)


def test_a_truncation_reuses_the_offset_of_a_cleaned_record(
    life: KafkaLife,
) -> None:
    """If the truncation leaves no batch behind it: the next load finds the log's end before it."""
    old, other = life.at.pop(0), Sent("2", b"k", is_tombstone=False)
    life.told(0, old, 0)
    with pytest.raises(ViolationError, match="offset 0 is 1's, and now 2's"):
        life.told(0, other, 0)
    life.may_be_gone.add(0)
    life.told(0, other, 0)
    with pytest.raises(ViolationError, match="1 was cut off, and is at 0"):
        life.told(0, old, 0)
