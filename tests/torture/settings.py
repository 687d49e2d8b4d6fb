"""The settings of a round of torture, and their bounds.

>>> TortureSettings(minutes=1, seed=7).producer_names("torture-0")
['torture-0-p0', 'torture-0-p1']
"""

from __future__ import annotations

from dataclasses import dataclass

LEDGER_ENTRIES = 500
SEGMENT_SIZE = "64k"
TOPICS = ("torture-0", "torture-1")
# A Kafka topic, which the broker's cleaner cleans without a pause.
KAFKA_TOPIC = "torture-kafka"
# The topic whose durable consumer sees every message. The other topic has none: there, ledgers that
# a compaction has passed are trimmed at once.
AUDITED = TOPICS[0]
# The topic compacted by event time; event times rise with sequence ids, so the result equals that
# of publishing order.
BY_EVENT_TIME = TOPICS[1]
AUDIT = "audit"
PRODUCERS_PER_TOPIC = 2
# Of each topic, the last producer sends batches.
BATCHED = PRODUCERS_PER_TOPIC - 1


@dataclass(frozen=True)
class TortureSettings:
    """Times in seconds unless the name says otherwise; rates a producer, in messages a second."""

    minutes: float
    seed: int = 1
    # However slow the machine is: the faults go on until the broker was killed so often.
    broker_kills_min: int = 0
    rate: int = 250
    kills_per_minute: float = 9.0
    fillings_per_minute: float = 1.0
    # Between two passes over the compacted view of a topic.
    pass_pause_s: float = 6.0
    disk_mb: int = 512
    # Each sync of a segment by the broker takes up to this long: as on a disk, not a tmpfs.
    sync_delay_ms: float = 8.0
    # A run that changes in nothing for so long, with a compactor that is ready, never ends.
    run_stall_s: float = 45.0
    # A compactor that is not ready for so long, with the same broker, hangs.
    worker_stall_s: float = 60.0
    # A client without any progress for so long hangs.
    client_stall_s: float = 90.0
    # For everything to be well again once the faults have stopped.
    converge_s: float = 240.0
    # How often a broker is restarted before it is given up.
    start_attempts: int = 5
    # Sent behind the last compaction, by each producer: the raw tail of the last check.
    tail_messages: int = 300

    def producer_names(self, topic: str) -> list[str]:
        return [f"{topic}-p{number}" for number in range(PRODUCERS_PER_TOPIC)]
