"""The I/O limit of the cleaner: log.cleaner.io.max.bytes.per.second.

The worker applies the limit within its tasks (compactor/kafka/throttle.py). It runs one cleaning at
a time, so a cleaning may use the whole rate that Kafka's threads share.

The worker knows only real time. On a manual clock, which does not advance during a cleaning, the
cleaning is not limited: its thread waits after it, until the cleaning is within the thread's share.

    >>> from ledgerfold.broker.common.clock import WallClock
    >>> config = BrokerConfig.of({"log.cleaner.io.max.bytes.per.second": "1000"})
    >>> cleaning_rate(config, WallClock()), cleaning_rate(config, ManualClock(0))
    (1000.0, None)
    >>> delay_ms_after(config, ManualClock(0), size_bytes=5_000, elapsed_ms=1_000)
    4000.0
"""

from __future__ import annotations

from math import inf

from ledgerfold.broker.common.clock import Clock, ManualClock
from ledgerfold.broker.kafka.config.config import BrokerConfig


def cleaning_rate(config: BrokerConfig, clock: Clock) -> float | None:
    """Returns the worker's limit in bytes per second; None is unlimited."""
    return None if isinstance(clock, ManualClock) else _bytes_per_second(config)


def delay_ms_after(config: BrokerConfig, clock: Clock, size_bytes: int, elapsed_ms: int) -> float:
    """Returns how long a thread waits after a cleaning that read and wrote `size_bytes`."""
    if cleaning_rate(config, clock) is not None:
        return 0.0
    share = _bytes_per_second(config) / config.number("log.cleaner.threads")
    return max(0.0, size_bytes * 1000 / share - elapsed_ms) if share else inf


def _bytes_per_second(config: BrokerConfig) -> float:
    """Returns the rate. Kafka treats a negative rate as unlimited; with 0 no cleaning
    progresses.
    """
    rate = config.share("log.cleaner.io.max.bytes.per.second")
    return rate if rate >= 0 else inf
