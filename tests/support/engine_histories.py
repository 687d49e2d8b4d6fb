"""Histories for the comparison of engines: runs of every kind over a random log.

A seed determines a history; its result is the bytes of all files that its runs leave, and their
manifests without measured values.
"""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import NamedTuple

from ledgerfold.compactor.job.engine import Engine
from ledgerfold.compactor.job.run import CompactionRun
from ledgerfold.compactor.kafka.run import CleanRun
from ledgerfold.compactor.user_strategies.own import STRATEGIC, Own
from ledgerfold.storage.entry import Compression
from ledgerfold.storage.files import REAL
from ledgerfold.strategies.loading import load
from ledgerfold.strategies.strategic import READS
from ledgerfold.v1.compactor_pb2 import CleanManifest, Manifest
from tests.model.strategy_model import Message
from tests.support.kafka_log import KafkaLog
from tests.support.strategic_log import StrategicLog

OWN = "tests.support.strategic_classes:Everything"
# Each history draws one of these: strategies, and a round of Kafka's cleaner.
KAFKA = "kafka"
KINDS: dict[str, dict[str, str]] = {
    "publishing-order": {},
    "event-time": {},
    "keep-n": {"n": "2"},
    "event-time-window": {"lag_ms": "1"},
    "header-version": {"property": "n"},
    OWN: {},
    KAFKA: {},
}


class Told(NamedTuple):
    """The bytes of each file, and each run's manifest."""

    files: dict[str, bytes]
    manifests: list[bytes]


def history(engine: Engine, folder: Path, kind: str, seed: int) -> Told:
    """Runs a history on an engine."""
    if kind == KAFKA:
        return _rounds(engine, folder, random.Random(seed))
    return _runs(engine, folder, kind, random.Random(seed))


def own_of(kind: str) -> Own | None:
    """Describes the user-defined strategy, as its trial does."""
    if kind != OWN:
        return None
    loaded = load(kind, {})
    return Own(kind, (), loaded.version, loaded.source, STRATEGIC, READS)


def _runs(engine: Engine, folder: Path, kind: str, draw: random.Random) -> Told:
    """Runs on the output of the run before; segments are kept, with deletion vectors, or not."""
    log, previous = StrategicLog(folder, is_mixed=draw.random() < 0.5), None
    retain, garbage_max = draw.random() < 0.5, draw.choice([0, 0.3, 0.9])
    keys = [None, *(b"key-%d" % n for n in range(draw.choice([3, 40])))]
    renumber, segment_bytes_max = draw.random() < 0.5, draw.choice([2_000, 1 << 20])
    own, manifests = own_of(kind), []
    for number in range(draw.randint(1, 3)):
        # A later run's input is small, so that keys are looked up.
        for at in range(draw.randint(1, 4) if number == 0 else 1):
            batches = [
                [
                    Message(draw.choice(keys), b"v" * draw.choice([0, 1, 50, 400]))
                    for _ in range(draw.randint(1, 8))
                ]
                for _ in range(draw.randint(1, 15 if number == 0 else 2))
            ]
            log.add_segment(10 * number + at + 1, batches, draw.choice(list(Compression)))
        plan = log.plan(
            100 + number,
            retain,
            previous,
            segment_bytes_max,
            kind,
            KINDS[kind],
            time_ms=3,
            segment_garbage_max=garbage_max,
        )
        plan.renumber_batches = renumber
        plan.keeps_segments = previous is not None and draw.random() < 0.8
        run = CompactionRun(plan, engine, REAL, time.time, own)
        previous = run.execute()
        manifests.append(_as_told(previous))
    return Told(_files(log.ledgers_dir), manifests)


def _rounds(engine: Engine, folder: Path, draw: random.Random) -> Told:
    log, manifests, offset = KafkaLog(folder / "log"), [], 0
    delete_retention_ms = draw.choice([0, 1_000])
    for _ in range(draw.randint(1, 3)):
        for _ in range(draw.randint(1, 3)):
            for _ in range(draw.randint(1, 12)):
                last = offset + draw.randint(1, 4)
                records = [
                    f"{each}:k{draw.randint(0, 9)}" + draw.choice(["", f"=v{each}"])
                    for each in range(offset, last)
                ]
                log.write(f"[{' '.join(records)}]", compression=draw.choice([0, 1, 4]))
                offset = last
            log.roll(draw.choice([2, 1_000]))
        plan = log.plan(keys_max=draw.choice([4, 1_000]), delete_retention_ms=delete_retention_ms)
        manifest = CleanRun(plan, engine, REAL, time.time).execute()
        log.take(manifest)
        manifests.append(_as_told(manifest))
    return Told(_files(log.ledgers_dir), manifests)


def _files(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def _as_told(manifest: Manifest | CleanManifest) -> bytes:
    told = type(manifest).FromString(manifest.SerializeToString())
    if isinstance(told, Manifest):
        told.engine = ""
        counts = told.counts
        counts.phase_one_ms = counts.phase_two_ms = counts.worker_peak_bytes = 0
        counts.write_latency_us = 0
        # Their sum, the number of writes, is not measured.
        written = sum(counts.write_latency_counts)
        counts.write_latency_counts[:] = [written]
    else:
        told.stats.map_ms = told.stats.copy_ms = told.stats.worker_peak_bytes = 0
    return told.SerializeToString(deterministic=True)
