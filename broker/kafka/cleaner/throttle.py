"""What rounds may read and write in a second: log.cleaner.io.max.bytes.per.second.

The worker holds a round to it, in its tasks (compactor/kafka/throttle.py). It takes one run after
the other, so a round may have all that Kafka's threads would share.

A worker knows the machine's time alone. On emulated time, which stands while a round is on its way,
a round is not held to anything: its thread waits behind it, for as long as the round was too fast
for its share.

    >>> from ledgerfold.broker.common.clock import WallClock
    >>> config = BrokerConfig.of({"log.cleaner.io.max.bytes.per.second": "1000"})
    >>> pace_of(config, WallClock()), pace_of(config, ManualClock(0))
    (1000.0, None)
    >>> owed_ms(config, ManualClock(0), size_bytes=5_000, elapsed_ms=1_000)
    4000.0
"""

from __future__ import annotations

from math import inf

from ledgerfold.broker.common.clock import Clock, ManualClock
from ledgerfold.broker.kafka.config.config import BrokerConfig


def pace_of(config: BrokerConfig, clock: Clock) -> float | None:
    """What the worker is to hold a round to; None: to nothing."""
    return None if isinstance(clock, ManualClock) else _bytes_per_second(config)


def owed_ms(config: BrokerConfig, clock: Clock, size_bytes: int, elapsed_ms: int) -> float:
    """How long a thread waits behind a round that read and wrote so much."""
    if pace_of(config, clock) is not None:
        return 0.0
    share = _bytes_per_second(config) / config.number("log.cleaner.threads")
    return max(0.0, size_bytes * 1000 / share - elapsed_ms) if share else inf


def _bytes_per_second(config: BrokerConfig) -> float:
    """Kafka takes what is below 0 for no bound; with 0 no round goes on."""
    rate = config.share("log.cleaner.io.max.bytes.per.second")
    return rate if rate >= 0 else inf
