"""The Kafka topic of a torture: made, looked at while faults go on, and cleaned at the end.

The broker's threads clean it, one round after another; the count is how often its checkpoint moved.
"""

from __future__ import annotations

import time
from contextlib import closing

from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import LedgerfoldError
from tests.torture.settings import KAFKA_TOPIC
from tests.torture.tally import Tally

_TIMEOUT_S = 5.0
_CONFIG = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.05",
    "segment.bytes": "1048576",
    "segment.ms": "1500",
    "delete.retention.ms": "1500",
}


class Cleanings:
    def __init__(self, url: str, tally: Tally) -> None:
        self._url, self._tally = url, tally
        self._checkpoint = 0

    def create(self, admin: Admin) -> None:
        admin.create_topic(KAFKA_TOPIC, kafka=_CONFIG)

    def look(self) -> None:
        """The broker may be away."""
        try:
            with closing(Admin(self._url, timeout_seconds=_TIMEOUT_S)) as admin:
                log = admin.kafka.describe_log(KAFKA_TOPIC)
        except LedgerfoldError:
            return
        if log.uncleanable_reason:
            self._tally.note(f"{KAFKA_TOPIC} is left alone: {log.uncleanable_reason}")
        if log.checkpoint is not None and log.checkpoint > self._checkpoint:
            self._checkpoint = log.checkpoint
            self._tally.cleanings += 1

    def clean_all(self, longest_s: float) -> None:
        """Until nothing is left to clean. Raises AssertionError, LedgerfoldError."""
        deadline_s = time.monotonic() + longest_s
        with closing(Admin(self._url, timeout_seconds=longest_s)) as admin:
            admin.kafka.roll_segment(KAFKA_TOPIC)
            while True:
                turn = admin.kafka.clean(KAFKA_TOPIC)
                assert not turn.failure, f"{KAFKA_TOPIC}: {turn.failure}"
                log = admin.kafka.describe_log(KAFKA_TOPIC)
                if log.checkpoint == log.segments[-1].base_offset:
                    break
                assert time.monotonic() < deadline_s, f"{KAFKA_TOPIC} does not get clean: {log}"
            assert not log.uncleanable_reason, f"{KAFKA_TOPIC}: {log.uncleanable_reason}"
            assert [each.is_cleaned for each in log.segments[:-1]].count(False) == 0, log
