"""The replays of a Kafka topic's log: from files to figures.

Tasks read the files into columns; the driver joins them and replays each trial.
"""

from __future__ import annotations

import numpy as np

from ledgerfold.compactor.job.engine import Engine
from ledgerfold.compactor.job.plan import contiguous, size_bytes_of
from ledgerfold.compactor.job.plan_check import check_folder, check_name
from ledgerfold.compactor.kafka.plan import files_of, lines_of
from ledgerfold.compactor.what_if.kafka.growing import Origin
from ledgerfold.compactor.what_if.kafka.history import History, check_length, history_of
from ledgerfold.compactor.what_if.kafka.replay import Replay
from ledgerfold.compactor.what_if.kafka.scan import HistoryScan
from ledgerfold.compactor.what_if.work import AnalysisWork
from ledgerfold.v1.compactor_pb2 import CleanPlan, KafkaHistory
from ledgerfold.v1.what_if_pb2 import TopicWhatIf, WhatIfInput

# The size of one task's files.
_TASK_BYTES = 64 * 1024 * 1024


class KafkaAnalysisRun(AnalysisWork):
    """A Kafka topic's analysis in the worker."""

    def __init__(self, requested: KafkaHistory, engine: Engine) -> None:
        """Raises InvalidRequest if a file is invalid or the log too long."""
        super().__init__(engine, requested.topic)
        check_folder(requested.ledgers_dir)
        for segment in requested.segments:
            for record in segment.files:
                check_name(record)
        self._requested = requested
        plan = CleanPlan(ledgers_dir=requested.ledgers_dir, segments=requested.segments)
        self._files = files_of(plan)
        check_length(sum(file.record.messages for file in self._files))

    def _execute(self) -> TopicWhatIf:
        """Raises what scanning raises, InvalidRequest."""
        origin = _origin(self._requested)
        history = self._read(origin)
        answer = TopicWhatIf(input=_input(history))
        for settings in self._requested.settings:
            self._check_cancelled()
            replay = Replay(history, settings, origin, self._check_cancelled)
            answer.cleanings.append(replay.run())
        return answer

    def _read(self, origin: Origin) -> History:
        size_bytes = sum(map(size_bytes_of, self._files))
        runs = contiguous(self._files, max(-(-size_bytes // _TASK_BYTES), 1), size_bytes_of)
        scanned = self._engine.context.parallelize(runs, max(len(runs), 1))
        return history_of(scanned.mapPartitions(HistoryScan(origin.lines)).collect())


def _origin(requested: KafkaHistory) -> Origin:
    base_offset = (
        requested.segments[0].base_offset if requested.segments else requested.log_start_offset
    )
    start = max(requested.log_start_offset, base_offset)
    return Origin(base_offset, start, lines_of(requested.aborted, start))


def _input(history: History) -> WhatIfInput:
    """Returns the figures of the log. Markers count as records, as in the cleaner's figures."""
    records, is_data = history.records, ~history.batches.is_control[history.batch_of]
    return WhatIfInput(
        messages=len(is_data),
        entries=len(history),
        bytes=int(history.batches.size_bytes.sum()),
        tombstones=int(np.count_nonzero(records.is_null & is_data)),
        null_keys=int(np.count_nonzero(~records.has_key & is_data)),
    )
