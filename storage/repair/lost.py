"""The restoration of lost metadata from the ledgers. Pure.

Used only if records may be missing (storage/losses.py). A ledger's label names its topic; a
compacted ledger's label has the records that published it (storage/label.py). So even if all
metadata are lost, every topic that has an entry is restored. Ledgers do not record policies,
settings, subscriptions, and the position below which retention had hidden messages: these are lost.

1. Raw ledgers are listed again under their topic, in order of id (storage/repair/plan.py).
2. The compacted view is that of the run with the highest number.
3. Missing raw ledgers that the view covers were trimmed.
4. Cleaned segments of a Kafka log are restored if raw ones do not cover them.
5. Records of partitioned topics and producers are restored. Without its record, a producer's number
   would be given to a new one, whose messages would be dropped as duplicates.
6. Entries of unknown topics, and of ledgers that were being deleted, stay as copies.
"""

from __future__ import annotations

from ledgerfold.storage.names import DELETION_VECTOR_SUFFIX, LABEL
from ledgerfold.storage.partition_names import parse_partition, partition_name
from ledgerfold.storage.records import key_of
from ledgerfold.storage.repair.kafka import adopt_cleaned, facts_of
from ledgerfold.storage.repair.ledger_check import LedgerCheck
from ledgerfold.storage.repair.rebuilt_records import set_view
from ledgerfold.storage.repair.steps import Draft
from ledgerfold.storage.segment import file_names
from ledgerfold.storage.text import counted
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    PartitionedTopicRecord,
    ProducerRecord,
    RunRecord,
    TopicRecord,
)


def accept_losses(draft: Draft) -> None:
    """Adds a step that lists the losses, and copies all files that no record names."""
    survey, plan = draft.survey, draft.plan
    if not survey.is_incomplete:
        return
    plan.rebuilds_metadata = plan.copies_metadata = True
    plan.copies |= {
        each.relative
        for each in survey.unnamed
        if each.holds_entries or each.path.suffix == DELETION_VECTOR_SUFFIX
    }
    signs = list(survey.losses)
    if survey.metadata_damage is not None:
        signs.append(f"{survey.metadata_damage.found} in the metadata's files")
    draft.step(
        f"the metadata have lost their last writes ({'; '.join(signs)}): subscriptions, policies "
        "and settings are in an earlier state, or lost"
    )
    _copy_deleted(draft)


def _copy_deleted(draft: Draft) -> None:
    """Copies ledgers in state DELETING: the write that cancelled their deletion may be lost."""
    for record in draft.survey.ledger_records().values():
        paths = {*file_names(record), f"{record.ledger_id}/{LABEL}"}
        existing = {each for each in paths if draft.exists(each)}
        if record.state == LEDGER_STATE_DELETING and existing:
            draft.plan.copies |= existing
            draft.step("is being deleted: a copy is kept", record.topic, record.ledger_id)


def restore(draft: Draft) -> None:
    """Restores the records of topics (see above)."""
    if draft.survey.is_incomplete:
        _restore_views(draft)
        _restore_cleaned(draft)
        _forget_trimmed(draft)
        _restore_partitioned(draft)
        _restore_producers(draft)
        _report_strays(draft)


def _restore_views(draft: Draft) -> None:
    best: dict[str, RunRecord] = {}
    known = draft.survey.ledger_records()
    for ledger_id, label in draft.survey.labels.items():
        run = label.run
        if run is None or ledger_id not in draft.ledgers or ledger_id in known:
            continue
        if run.number > best.get(label.topic, RunRecord()).number:
            best[label.topic] = run
    for name, run in sorted(best.items()):
        topic = draft.topics[name]
        if topic.HasField("kafka") or run.number <= topic.compacted.run_number:
            continue
        set_view(topic, run)
        topic.ClearField("truncated_upto")
        topic.ClearField("compaction_moved_to")
        topic.compaction_cursor = True
        topic.last_run_number = max(topic.last_run_number, run.number)
        draft.put(run)
        check = draft.survey.ledgers[run.ledger_id]
        draft.restored.add(run.ledger_id)
        draft.step(f"its compacted view is restored: {_messages(check)}", name, run.ledger_id)


def _restore_cleaned(draft: Draft) -> None:
    known = draft.survey.ledger_records()
    by_topic: dict[str, list[int]] = {}
    for ledger_id, label in draft.survey.labels.items():
        if label.segment is not None and ledger_id in draft.ledgers and ledger_id not in known:
            by_topic.setdefault(label.topic, []).append(ledger_id)
    for name, ledger_ids in sorted(by_topic.items()):
        topic, labels = draft.topics[name], draft.survey.labels
        newest_first = sorted(ledger_ids, reverse=True)
        segments = [labels[each].segment for each in newest_first]
        checks = draft.survey.ledgers.values()
        own = [each for each in checks if each.record.topic == name]
        facts = {each.record.ledger_id: facts_of(each) for each in own}
        adopted, replaced = adopt_cleaned(topic.kafka, [each for each in segments if each], facts)
        for segment in adopted:
            (ledger_id,) = segment.ledger_ids
            check = draft.survey.ledgers[ledger_id]
            draft.restored.add(ledger_id)
            draft.step(f"a cleaned segment is restored: {_messages(check)}", name, ledger_id)
        for ledger_id in replaced:
            if ledger_id in topic.ledger_ids:
                topic.ledger_ids.remove(ledger_id)
            if ledger_id in draft.ledgers:
                draft.delete_ledger(draft.survey.ledgers[ledger_id])
                draft.step("was cleaned, and is removed", name, ledger_id)


def _forget_trimmed(draft: Draft) -> None:
    """Removes the records of raw ledgers that have no files."""
    for check in draft.survey.ledgers.values():
        record = check.record
        topic = draft.topics[record.topic]
        is_gone = record.ledger_id not in draft.survey.folders and bool(record.segments)
        if not (check.is_raw and is_gone) or topic.HasField("kafka"):
            continue
        draft.delete(key_of(record))
        del draft.ledgers[record.ledger_id]
        if record.ledger_id in topic.ledger_ids:
            topic.ledger_ids.remove(record.ledger_id)
        end = record.segments[-1].last
        horizon = topic.compacted.horizon
        is_covered = topic.HasField("compacted") and (
            (end.ledger_id, end.entry_id) <= (horizon.ledger_id, horizon.entry_id)
        )
        messages = sum(each.messages for each in record.segments)
        if is_covered:
            what = "was trimmed: the compacted view covers it"
            draft.step(what, topic.name, record.ledger_id)
        else:
            what = "does not exist: it was trimmed, or is lost"
            draft.step(what, topic.name, record.ledger_id, messages if messages else None)


def _restore_partitioned(draft: Draft) -> None:
    counts: dict[str, int] = {}
    for label in draft.survey.labels.values():
        partition = parse_partition(label.topic)
        if partition is not None and label.partitions and label.topic in draft.topics:
            least = max(label.partitions, partition.index + 1, counts.get(partition.topic, 0))
            counts[partition.topic] = least
    records = draft.survey.records.values()
    known = {each.name: each for each in records if isinstance(each, PartitionedTopicRecord)}
    for name, count in sorted(counts.items()):
        record = known.get(name, PartitionedTopicRecord(name=name, created_ms=draft.now_ms))
        if record.partitions >= count:
            continue
        record.partitions = count
        siblings = [partition_name(name, index) for index in range(count)]
        existing = [draft.topics[each] for each in siblings if each in draft.topics]
        if not record.HasField("kafka") and any(each.HasField("kafka") for each in existing):
            record.kafka.config.update(existing[0].kafka.config)
        draft.put(record)
        for each in siblings:
            if each not in draft.topics:
                topic = TopicRecord(name=each, created_ms=draft.now_ms, epoch=draft.now_ms)
                if record.HasField("kafka"):
                    topic.kafka.config.update(record.kafka.config)
                draft.topics[each] = topic
        draft.step(f"is partitioned again, with at least {count} partitions", name)


def _restore_producers(draft: Draft) -> None:
    numbers = {
        (each.topic, each.number)
        for each in draft.survey.of_topics()
        if isinstance(each, ProducerRecord)
    }
    for name, producers in draft.survey.producers.items():
        topic = draft.topics[name]
        topic.last_producer_number = max(topic.last_producer_number, *producers)
        for number, seen in producers.items():
            if (name, number) not in numbers and seen.name:
                record = ProducerRecord(
                    topic=name,
                    name=seen.name,
                    number=number,
                    last_sequence_id=seen.sequence_id,
                )
                record.position.ledger_id, record.position.entry_id = seen.position
                draft.put(record)


def _report_strays(draft: Draft) -> None:
    for check in draft.survey.strays:
        count = sum(each.good_messages for each in check.segments)
        what = f"{counted(count, 'message')} of an unknown topic: a copy is kept"
        draft.step(what, "", check.record.ledger_id, count)


def _messages(check: LedgerCheck) -> str:
    return counted(sum(each.good_messages for each in check.segments), "message")
