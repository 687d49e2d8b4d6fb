"""First runs over 0.25, 0.5, 1, 2, 4 and 8 GB: whether the cost is proportional to the size.

Messages of 100 B over a tenth as many keys (workload.py, Zipf 1.1); `--messages` is the last size,
80 million by default. The figures are those of series.py; `--plot` writes a plot.
"""

from __future__ import annotations

from tests.benchmarks import compact_large
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report
from tests.benchmarks.series import Series
from tests.benchmarks.workload import Workload

MESSAGES = 80_000_000
VALUE_BYTES = 100
# Fractions of the largest size.
PARTS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1)
GB = 1e9


def run(options: Options) -> Report:
    series = Series(
        "linear",
        f"first runs over messages of {VALUE_BYTES} B",
        _publish,
        float,
        "proportional",
        "GB",
        GB / VALUE_BYTES,
    )
    count = options.messages_or(MESSAGES)
    sizes = [int(part * count) for part in PARTS]
    return series.run(options, sizes, lambda size: f"{size * VALUE_BYTES / GB:.3g} GB")


def _publish(broker: str, topic: str, messages: int) -> None:
    workload = Workload(messages, max(messages // 10, 1), VALUE_BYTES)
    compact_large.publish(broker, topic, workload)
