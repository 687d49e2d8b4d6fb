"""A topic's lost record, rebuilt from its ledgers. Pure.

>>> made_topic(Survey(), "t", now_ms=5).epoch
5
"""

from __future__ import annotations

from ledgerfold.storage.repair.kafka import facts_of, made_log
from ledgerfold.storage.repair.ledger_check import LedgerCheck
from ledgerfold.storage.repair.survey import Survey
from ledgerfold.v1.records_pb2 import (
    LEDGER_KIND_COMPACTED,
    RUN_STATE_SUCCESS,
    KafkaLog,
    ProducerRecord,
    RunRecord,
    TopicRecord,
)


def made_topic(survey: Survey, name: str, now_ms: int) -> TopicRecord:
    """Builds the record, without raw ledgers. It is a Kafka topic if a ledger has a Kafka batch."""
    checks = [each for each in survey.ledgers.values() if each.record.topic == name]
    # The epoch is above that of any earlier load.
    topic = TopicRecord(name=name, created_ms=now_ms, epoch=now_ms)
    log = _kafka_log(survey, checks)
    if log is not None:
        topic.kafka.CopyFrom(log)
        return topic
    runs = survey.runs(name)
    topic.compaction_cursor = bool(runs)
    topic.last_run_number = max((each.number for each in runs), default=0)
    topic.last_producer_number = _last_producer_number(survey, name)
    compacted = {
        each.record.ledger_id for each in checks if each.record.kind == LEDGER_KIND_COMPACTED
    }
    for run in runs:
        if run.state == RUN_STATE_SUCCESS and run.ledger_id in compacted:
            _set_view(topic, run)
    return topic


def _kafka_log(survey: Survey, checks: list[LedgerCheck]) -> KafkaLog | None:
    facts = [facts_of(each) for each in checks]
    if not any(each.span.batches for each in facts):
        return None
    # Output of the cleaner that no record names is restored by its label, if at all.
    named = survey.ledger_records()
    return made_log(each for each in facts if not each.is_cleaned or each.ledger_id in named)


def _set_view(topic: TopicRecord, run: RunRecord) -> None:
    topic.compacted.ledger_id = run.ledger_id
    topic.compacted.horizon.CopyFrom(run.horizon)
    topic.compacted.run_number = run.number


def _last_producer_number(survey: Survey, topic: str) -> int:
    numbers = [
        each.number
        for each in survey.of_topics()
        if isinstance(each, ProducerRecord) and each.topic == topic
    ]
    return max(numbers, default=0)
