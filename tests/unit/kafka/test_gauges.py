"""Gauges, and Kafka 4.1.0's values without data."""

from __future__ import annotations

from ledgerfold.broker.kafka.cleaner.cleaning import CleaningResult
from ledgerfold.broker.kafka.cleaner.gauges import Gauges
from ledgerfold.v1.compactor_pb2 import CleanManifest

TIME = "kafka.log:type=LogCleaner,name=max-clean-time-secs"
BYTES = "kafka.log:type=LogCleanerManager,name=uncleanable-bytes"


def test_gauges_are_zero_before_the_first_cleaning() -> None:
    gauges = Gauges(lambda: 1_700_000_000_000)
    assert set(gauges.values(0, 0).values()) == {0}


def test_gauges_emulate_kafkas_defects() -> None:
    gauges = Gauges(lambda: 1_700_000_000_000)
    values = gauges.as_in_kafka(gauges.values(1, 50), has_checkpoints=True)
    assert (values[TIME], values[BYTES]) == (-1_700_000_000, 50)
    assert BYTES not in gauges.as_in_kafka(gauges.values(1, 50), has_checkpoints=False)
    gauges.ended(CleaningResult(CleanManifest(), 5), elapsed_ms=2_500)
    assert gauges.as_in_kafka(gauges.values(0, 0), has_checkpoints=True)[TIME] == 2
