"""The status of a topic's compaction: that of the current run, else of the last one. Pure.

Pulsar's LongRunningProcessStatus, with the run's record, its progress, and the strategy in force.
"""

from __future__ import annotations

from ledgerfold.broker.compaction.interfaces import CompactableTopic
from ledgerfold.broker.compaction.run import CompactionRun
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_STATUS_ERROR,
    COMPACTION_STATUS_NOT_RUN,
    COMPACTION_STATUS_RUNNING,
    COMPACTION_STATUS_SUCCESS,
    GetCompactionStatusResponse,
)
from ledgerfold.v1.records_pb2 import RUN_STATE_SUCCESS, RunRecord


def status_of_run(run: CompactionRun) -> GetCompactionStatusResponse:
    if run.ended.is_set():
        return status_of_record(run.record, run.topic)
    return GetCompactionStatusResponse(
        status=COMPACTION_STATUS_RUNNING,
        run=run.record,
        progress=run.progress,
        strategy=run.topic.policies().compaction_strategy,
    )


def status_of_record(
    record: RunRecord | None, topic: CompactableTopic
) -> GetCompactionStatusResponse:
    status = GetCompactionStatusResponse(
        status=COMPACTION_STATUS_NOT_RUN, run=record, strategy=topic.policies().compaction_strategy
    )
    if record is not None and record.state == RUN_STATE_SUCCESS:
        status.status = COMPACTION_STATUS_SUCCESS
    elif record is not None:
        status.status, status.last_error = COMPACTION_STATUS_ERROR, record.error_message
    return status
