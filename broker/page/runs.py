"""Compaction runs and their progress, as a page shows them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ledgerfold.broker.common.durations import time_left
from ledgerfold.broker.common.given_names import shown, shown_topic
from ledgerfold.broker.compaction.history import duration_ms
from ledgerfold.broker.page.rendering import percent
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.records_pb2 import (
    RUN_STATE_QUEUED,
    RUN_STATE_RUNNING,
    RunCounts,
    RunRecord,
    RunState,
    RunTrigger,
)

_PHASES = {
    admin_pb2.COMPACTION_PHASE_QUEUED: "Queued",
    admin_pb2.COMPACTION_PHASE_ONE: "Phase one of two: finding the survivors",
    admin_pb2.COMPACTION_PHASE_TWO: "Phase two of two: copying the survivors",
    admin_pb2.COMPACTION_PHASE_COMMIT: "Committing",
}


class Progress(NamedTuple):
    """`done`: of this phase, in percent; `time_left`: "", or its time left, in words."""

    words: str
    done: float
    bytes: int = 0
    bytes_total: int = 0
    tasks_done: int = 0
    tasks_total: int = 0
    time_left: str = ""


class Run(NamedTuple):
    """A run. `horizon`: "" if it has none; `state`: success, error, cancelled, running, queued."""

    topic: str
    number: int
    state: str
    trigger: str
    strategy: str
    engine: str
    began_ms: int
    duration_ms: int
    horizon: str
    counts: RunCounts
    error: str
    progress: Progress | None = None

    @property
    def is_in_progress(self) -> bool:
        return self.progress is not None


def shown_run(run: RunRecord, now_ms: int, progress: Progress | None = None) -> Run:
    is_unfinished = run.state in (RUN_STATE_QUEUED, RUN_STATE_RUNNING)
    began_ms = run.started_ms or run.queued_ms
    horizon = run.horizon
    return Run(
        topic=shown_topic(run.topic),
        number=run.number,
        state=RunState.Name(run.state).removeprefix("RUN_STATE_").lower(),
        trigger=RunTrigger.Name(run.trigger).removeprefix("RUN_TRIGGER_").lower(),
        strategy=_strategy(run),
        engine=run.engine,
        began_ms=began_ms,
        duration_ms=max(0, now_ms - began_ms) if is_unfinished else duration_ms(run),
        horizon=f"{horizon.ledger_id}:{horizon.entry_id}" if run.HasField("horizon") else "",
        counts=run.counts,
        error=run.error_message,
        progress=progress,
    )


def _strategy(run: RunRecord) -> str:
    settings = ",".join(f"{name}={value}" for name, value in sorted(run.strategy_settings.items()))
    return shown(run.strategy) + (f":{settings}" if settings else "")


def running(broker: Broker, names: Iterable[str]) -> list[Run]:
    """Returns the queued and running runs of loaded topics."""
    runs = list[Run]()
    for name in names:
        topic = broker.topics.get(name)
        if topic is not None and broker.compaction.has_run(name):
            status = broker.compaction.status(topic)
            runs.append(shown_run(status.run, broker.clock_ms(), _progress(status.progress)))
    return runs


def latest(broker: Broker, topic: str, limit: int) -> list[Run]:
    """Returns the latest runs of a topic, newest first."""
    current = {each.number: each for each in running(broker, [topic])}
    runs = broker.compaction.history.runs(topic, limit=limit)
    return [current.get(run.number, shown_run(run, broker.clock_ms())) for run in runs]


def _progress(progress: admin_pb2.CompactionProgress) -> Progress:
    done = percent(progress.bytes, progress.bytes_total)
    if not progress.bytes_total:
        done = percent(progress.tasks_done, progress.tasks_total)
    words = _PHASES.get(progress.phase, "Starting")
    if progress.phase == admin_pb2.COMPACTION_PHASE_COMMIT:
        done = 100.0
    return Progress(
        words,
        done,
        progress.bytes,
        progress.bytes_total,
        progress.tasks_done,
        progress.tasks_total,
        time_left(progress.left_ms) if progress.HasField("left_ms") else "",
    )
