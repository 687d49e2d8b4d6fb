"""A first run over a topic of unique keys, at growing sizes: time, memory, spilled bytes.

Each message has a unique key, as in an index of users or devices, and a value of 16 B; 1, 2.5, 5,
10, 25 and 50 million of them (`--messages` is the last). The expected growth is n log n. The
figures are those of series.py; `--plot` writes a plot.
"""

from __future__ import annotations

import asyncio
import math

from ledgerfold.broker.wire.frames import encode_entries
from tests.benchmarks import wire
from tests.benchmarks.cost import Numbered
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, number
from tests.benchmarks.series import Series

MESSAGES = 50_000_000
VALUE_BYTES = 16
# Fractions of the largest size.
PARTS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def run(options: Options) -> Report:
    series = Series(
        "many-keys",
        f"first runs over unique keys, {VALUE_BYTES} B each",
        _publish,
        n_log_n,
        "n log n",
        "million keys",
        1e6,
    )
    count = options.messages_or(MESSAGES)
    sizes = [int(part * count) for part in PARTS]
    return series.run(options, sizes, lambda size: f"{number(size)} keys")


def n_log_n(count: int) -> float:
    return count * math.log(max(count, 2))


def _publish(broker: str, topic: str, count: int) -> None:
    workload = Numbered(count, count, VALUE_BYTES, numbers=range(count))

    async def publish() -> None:
        frames = (encode_entries([entry]) for entry, _ in workload.entries())
        async with wire.connected(broker) as channel:
            await wire.publish(wire.Broker(channel, topic), frames)

    asyncio.run(publish())
