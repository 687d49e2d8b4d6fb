"""Compaction by Python classes that are called message by message, against publishing-order.

2,000,000 messages with numbers as values over 100,000 keys (workload.py, Zipf 1.1), in entries of
128 KiB and segments of 64 MiB, on a warm Spark of two cores; no broker. `newest` reads nothing of a
message, `numeric` the value, `everything` all parts; the last is the same class as a user-defined
strategy, with its limits. Time is that of the run, both phases and the shuffles between. A core's
second is a second of processor time of Spark's Python workers and the JVM together, regardless of
other load. The goal is 300,000 messages/s a core.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ledgerfold.compactor.job.run import CompactionRun
from ledgerfold.compactor.job.session import Session, SessionSettings, start_session
from ledgerfold.compactor.strategies.registry import MAKERS, Maker
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.compactor.user_strategies.own import STRATEGIC, Own
from ledgerfold.storage.entry import read_header, stamp
from ledgerfold.storage.files import REAL
from ledgerfold.storage.names import LEDGERS
from ledgerfold.storage.segment import SegmentWriter
from ledgerfold.strategies.strategic import READS, StrategicMessage
from ledgerfold.v1.compactor_pb2 import CompactionPlan
from ledgerfold.v1.records_pb2 import SegmentRecord
from tests.benchmarks.options import Options
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload
from tests.support import processes

CORES = 2
# As precisely as the system reports processor time.
TICK = 0.01
SEGMENT_BYTES = 64 * 1024 * 1024
_HIGHEST = 10**9


class Everything:
    """Reads every part."""

    version = "1"

    def should_keep_left(
        self, previous: StrategicMessage | None, current: StrategicMessage
    ) -> bool:
        return previous is not None and (
            previous.event_time_ms > current.event_time_ms
            or previous.publish_time_ms > current.publish_time_ms
            or (previous.properties == current.properties and previous.value > current.value)
        )


class Numbers(Workload):
    """The same keys; a value is a number in text."""

    def _chunks(self, rows: int) -> Iterator[tuple[list[bytes], list[bytes]]]:
        random = np.random.default_rng(self.seed)
        for keys, _ in super()._chunks(rows):
            numbers = random.integers(0, _HIGHEST, len(keys)).tolist()
            yield keys, [b"%d" % number for number in numbers]


def run(options: Options) -> Report:
    messages = options.messages_or(2_000_000)
    workload = Numbers(messages, max(messages // 20, 1), value_bytes=10)
    report = Report("strategic", f"one run, warm Spark, {CORES} cores")
    report.sizes = {"messages": workload.messages, "keys": workload.keys}
    MAKERS["everything"] = Maker(
        1, lambda settings, time_ms: MessageStrategy("everything", 1, Everything)
    )
    with options.fresh_folder() as folder:
        os.environ[processes.MARK] = mark = processes.new_mark()
        session = start_session(SessionSettings(f"local[{CORES}]", folder))
        try:
            pids = functools.partial(processes.marked, mark)
            _measure(session, pids, folder, workload, options.rounds_or(3), report)
        finally:
            session.stop()
            del MAKERS["everything"], os.environ[processes.MARK]
    return report


def _measure(
    session: Session,
    pids: Callable[[], list[int]],
    folder: Path,
    workload: Workload,
    rounds: int,
    report: Report,
) -> None:
    segments = _written(folder / LEDGERS, workload)
    baseline = 0.0
    for name in ("publishing-order", "newest", "numeric", "everything", _OWN.name):
        seconds, of_cores = [], []
        for _ in range(1 + rounds):
            plan = CompactionPlan(
                run_id=name,
                strategy=name,
                ledgers_dir=str(folder / LEDGERS),
                segments=segments,
                ledger_id=2,
                horizon=segments[-1].last,
                segment_bytes_max=SEGMENT_BYTES,
            )
            began, used = time.perf_counter(), processes.processor_seconds(pids())
            own = _OWN if name == _OWN.name else None
            CompactionRun(plan, session, REAL, time.time, own).execute()
            seconds.append(time.perf_counter() - began)
            of_cores.append(processes.processor_seconds(pids()) - used)
            REAL.remove_dir(folder / LEDGERS / "2")
        # The first one warms up.
        report.add(f"{name}: time", median(seconds[1:]), "s", spread(seconds[1:]))
        spent = median(of_cores[1:])
        baseline = baseline or spent
        against = f"{spent / baseline:.1f}x publishing-order" if baseline else ""
        report.add(f"{name}: a core", workload.messages / max(spent, TICK), "messages/s", against)


_OWN = Own("tests.benchmarks.strategic:Everything", (), Everything.version, "", STRATEGIC, READS)


def _written(ledgers_dir: Path, workload: Workload) -> list[SegmentRecord]:
    (ledgers_dir / "1").mkdir(parents=True)
    records: list[SegmentRecord] = []
    writer = SegmentWriter(ledgers_dir, 1, 0)
    size_bytes = 0
    for entry_id, (built, _) in enumerate(workload.entries()):
        entry = stamp(built, 1, entry_id, append_time_ms=1, producer_number=1)
        if size_bytes + len(entry) > SEGMENT_BYTES:
            records.append(writer.seal())
            writer, size_bytes = SegmentWriter(ledgers_dir, 1, entry_id), 0
        writer.append(read_header(entry), entry)
        size_bytes += len(entry)
    return [*records, writer.seal()]
