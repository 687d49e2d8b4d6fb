"""Lost and unreadable records: which are rebuilt, and which are removed. Pure.

>>> rebuilt_topic(Survey(), "t", now_ms=5).epoch
5
"""

from __future__ import annotations

from ledgerfold.storage.records import STORE_KEY, key_of
from ledgerfold.storage.repair.kafka import facts_of, rebuilt_log
from ledgerfold.storage.repair.ledger_check import LedgerCheck
from ledgerfold.storage.repair.steps import Draft
from ledgerfold.storage.repair.survey import Survey
from ledgerfold.v1.records_pb2 import (
    LEDGER_KIND_COMPACTED,
    RUN_STATE_SUCCESS,
    CursorRecord,
    KafkaLog,
    Position,
    ProducerRecord,
    RunRecord,
    TopicRecord,
)


def make_topics(draft: Draft) -> None:
    """Creates records for topics that have ledgers but no record."""
    survey = draft.survey
    owners = {each.record.topic for each in survey.ledgers.values()}
    for name in sorted(owners - draft.topics.keys()):
        topic = draft.topics[name] = rebuilt_topic(survey, name, draft.now_ms)
        what = "a topic record is rebuilt from its ledgers; its policies are lost"
        if topic.HasField("kafka"):
            what = (
                "a Kafka topic's record is rebuilt from its ledgers; its settings are lost: "
                "until they are set, the topic is neither compacted nor deleted from"
            )
        draft.step(what, name)


def rebuilt_topic(survey: Survey, name: str, now_ms: int) -> TopicRecord:
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
            set_view(topic, run)
    return topic


def _kafka_log(survey: Survey, checks: list[LedgerCheck]) -> KafkaLog | None:
    facts = [facts_of(each) for each in checks]
    if not any(each.span.batches for each in facts):
        return None
    # Output of the cleaner that no record names is restored by its label, if at all.
    named = survey.ledger_records()
    return rebuilt_log(each for each in facts if not each.is_cleaned or each.ledger_id in named)


def set_view(topic: TopicRecord, run: RunRecord) -> None:
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


def mend_unreadable(draft: Draft) -> None:
    """Replaces or removes the records that cannot be decoded, unless another step replaces them."""
    for key in draft.survey.unreadable:
        if key not in draft.plan.puts and key != STORE_KEY:
            _mend_key(draft, key)


def _mend_key(draft: Draft, key: bytes) -> None:
    kind, _, rest = key.decode(errors="replace").partition("/")
    topic, _, subscription = rest.partition("\0")
    if kind == "cursor" and topic in draft.topics:
        ledger_ids = draft.topics[topic].ledger_ids
        oldest = Position(ledger_id=ledger_ids[0] if ledger_ids else -1, entry_id=-1)
        cursor = CursorRecord(
            topic=topic,
            subscription=subscription,
            mark_delete=oldest,
            created_ms=draft.now_ms,
            incarnation=draft.now_ms,
        )
        if key_of(cursor) == key:
            draft.put(cursor)
            what = f"subscription {subscription!r} begins again with the oldest message"
            draft.step(what, topic)
            return
    if kind == "ledger" and rest.isdecimal():
        folder = draft.survey.folders.get(int(rest), [])
        draft.plan.copies |= {f"{int(rest)}/{each}" for each in folder}
    draft.delete(key)
    name = key.decode(errors="backslashreplace").replace("\0", "/")
    draft.step(f"the record {name!r} cannot be read, and is removed")
