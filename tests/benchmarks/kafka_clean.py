"""Cleanings by Kafka's cleaner in the worker: each is the first one of a log that is completely
dirty.

1 GB each: 1,000,000 messages of 1,000 bytes over 100,000 keys, and 10,000,000 of 100 bytes over
1,000,000 (workload.py, Zipf 1.1), in record batches of 16 KiB, Kafka's usual size, not compressed;
one Kafka segment in files of 64 MiB, on a warm Spark of two cores; no broker. Files are written
1 MiB at a time, as by a busy broker: the system maps such files in larger pieces than those that
were written batch by batch. Time is that of the complete run, with files synced. A core's seconds
are the processor time of Spark's Python workers and the JVM together, regardless of other load.
Kafka's own cleaner takes 1.5-2.0 s and 7-9 s on two cores; with `--peer`, both cleaners alternate
on the same batches (kafka_peer.py). Memory is the peak proportional set size of Spark's Python
workers and the JVM together, in further rounds, since the samples take processor time; the driver
is this process, which also makes the input, and does not count.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from ledgerfold.compactor.job.session import Session, SessionSettings, start_session
from ledgerfold.compactor.kafka.run import CleanRun
from ledgerfold.storage.entry import read_header, stamp
from ledgerfold.storage.files import REAL
from ledgerfold.storage.kafka.entries import entry_of
from ledgerfold.storage.kafka.records import build_columns
from ledgerfold.storage.names import LEDGERS
from ledgerfold.storage.segment import SegmentWriter
from ledgerfold.v1.compactor_pb2 import CleanPlan, CleanSegment
from tests.benchmarks import kafka_peer
from tests.benchmarks.options import Options
from tests.benchmarks.peak_memory import MB, PeakMemory
from tests.benchmarks.report import Report, median, spread
from tests.benchmarks.workload import Workload
from tests.support import processes
from tests.support.kafka_oracle import KafkaOracle

CORES = 2
BATCH_BYTES = 16 * 1024
FILE_BYTES = 64 * 1024 * 1024
WRITE_BYTES = 1024 * 1024
# The size of a record in addition to its value: its key, and seven numbers.
_RECORD_BYTES = 24
_FIRST_TIMESTAMP_MS = 1_700_000_000_000
_DIRTY, _CLEAN = 1, 2


def run(options: Options) -> Report:
    messages = options.messages_or(1_000_000)
    workloads = [
        Workload(messages, max(messages // 10, 1), value_bytes=1_000),
        Workload(10 * messages, max(messages, 1), value_bytes=100),
    ]
    report = Report("kafka-clean", f"one round, warm Spark, {CORES} cores")
    report.sizes = {"messages": messages}
    with options.fresh_folder() as folder, ExitStack() as stack:
        peer = None
        if options.peer is not None:
            peer = stack.enter_context(KafkaOracle(folder / "peer", options.peer))
        os.environ[processes.MARK] = mark = processes.new_mark()
        session = start_session(SessionSettings(f"local[{CORES}]", folder))
        try:
            for workload in workloads:
                pids = functools.partial(processes.marked, mark)
                _measure(session, pids, folder, workload, options.rounds_or(3), report, peer)
        finally:
            session.stop()
            del os.environ[processes.MARK]
    return report


def _measure(
    session: Session,
    pids: Callable[[], list[int]],
    folder: Path,
    workload: Workload,
    rounds: int,
    report: Report,
    peer: KafkaOracle | None,
) -> None:
    batches, theirs = _batches(workload), folder / f"peer-{workload.value_bytes}"
    if peer is not None:
        batches = kafka_peer.written(batches, theirs)
    plan = _plan(folder / LEDGERS, workload, batches)
    seconds, of_cores, of_peer = list[float](), list[float](), list[float]()

    def clean() -> tuple[float, float]:
        """Returns the seconds, and those of a core."""
        began, used = time.perf_counter(), processes.processor_seconds(pids())
        CleanRun(plan, session, REAL, time.time).execute()
        took = time.perf_counter() - began, processes.processor_seconds(pids()) - used
        REAL.remove_dir(folder / LEDGERS / str(_CLEAN))
        return took

    for turn in range(1 + rounds):
        took = clean()
        seconds.append(took[0])
        of_cores.append(took[1])
        if peer is not None:
            of_peer.append(kafka_peer.seconds(peer, theirs, f"peer-{workload.value_bytes}-{turn}"))
    with PeakMemory(pids) as memory:
        for _ in range(rounds):
            clean()
    REAL.remove_dir(folder / LEDGERS)
    name = f"{workload.value_bytes} bytes"
    # The first one warms up.
    report.add(f"{name}: time", median(seconds[1:]), "s", spread(seconds[1:]))
    report.add(f"{name}: of a core", median(of_cores[1:]), "s", spread(of_cores[1:]))
    if of_peer:
        theirs_s = median(of_peer[1:])
        report.add(f"{name}: Kafka's", theirs_s, "s", spread(of_peer[1:]))
        report.add(f"{name}: ours, by Kafka's", median(seconds[1:]) / theirs_s, "x", "goal 1")
    report.add(f"{name}: peak memory", memory.proportional / MB, "MB", "goal 800 MB")


def _plan(ledgers_dir: Path, workload: Workload, batches: Iterable[bytes]) -> CleanPlan:
    (ledgers_dir / str(_DIRTY)).mkdir(parents=True)
    segment = CleanSegment(next_base_offset=workload.messages)
    writer = SegmentWriter(ledgers_dir, _DIRTY, 0)
    waiting: list[bytes] = []
    for number, batch in enumerate(batches):
        entry = stamp(
            entry_of(batch, sequence_id=0, publish_time_ms=1),
            _DIRTY,
            number,
            append_time_ms=1,
            producer_number=1,
        )
        waiting_bytes = sum(map(len, waiting))
        is_full = writer.size_bytes + waiting_bytes + len(entry) > FILE_BYTES
        if is_full or waiting_bytes >= WRITE_BYTES:
            writer.append_many(list(map(read_header, waiting)), list(waiting))
            waiting.clear()
        if is_full:
            segment.files.append(writer.seal())
            writer = SegmentWriter(ledgers_dir, _DIRTY, number)
        waiting.append(entry)
        segment.size_bytes += len(batch)
    writer.append_many(list(map(read_header, waiting)), list(waiting))
    segment.files.append(writer.seal())
    return CleanPlan(
        run_id="kafka-clean",
        topic="kafka-clean",
        ledgers_dir=str(ledgers_dir),
        segment_bytes_max=FILE_BYTES,
        segments=[segment],
        upper_bound=workload.messages,
        time_ms=_FIRST_TIMESTAMP_MS,
        delete_retention_ms=86_400_000,
        keys_max=5_033_164,
        log_segment_bytes=1 << 30,
        index_bytes_max=10 << 20,
        index_interval_bytes=4096,
        ledger_ids=[_CLEAN],
    )


def _batches(workload: Workload) -> Iterator[bytes]:
    pairs, offset = workload.pairs(), 0
    size = max(BATCH_BYTES // (workload.value_bytes + _RECORD_BYTES), 1)
    while some := list(islice(pairs, size)):
        keys, values = zip(*some, strict=True)
        times = range(_FIRST_TIMESTAMP_MS + offset, _FIRST_TIMESTAMP_MS + offset + len(some))
        yield build_columns(keys, values, times, base_offset=offset)
        offset += len(some)
