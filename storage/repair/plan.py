"""The plan of a repair, and its losses. Pure: storage/repair/repair.py executes it.

The decisions:

* A raw ledger keeps every good entry, before and after the damage, under its own id: segments are
  split around bad entries. Its record lists the losses; the ledger is closed.
* A compacted ledger is dropped if the raw ledgers still hold every message: the next compaction
  rebuilds it. Otherwise its good entries stay, and readers of the compacted view lose the messages
  of the bad ones. Compaction stays enabled in both cases: raw ledgers are retained for it.
* Lost records are rebuilt: that of a ledger from its files, that of a topic from its ledgers (its
  policies are lost). A subscription begins at the oldest message: messages may be redelivered, but
  none is skipped.
* Other unreadable records, and records of no topic, are removed.
* Lost metadata are restored as far as the ledgers allow (storage/repair/lost.py).
* Torn tails, and the files of unfinished runs, are left to the next start of the broker.
* Data of a later build do not count as damage: a ledger with such data stays unchanged, and if a
  record is of a later build, nothing is repaired.

    >>> survey = Survey()
    >>> survey.records[b"topic/t"] = TopicRecord(name="t", ledger_ids=[7])
    >>> for step in make_plan(survey, now_ms=0).steps:
    ...     print(step.what)
    is lost with all its contents; the topic no longer names it
    the next ledger id is set to 8
"""

from __future__ import annotations

from collections.abc import Iterator

from ledgerfold.storage.errors import IncompatibleFormat
from ledgerfold.storage.label import label_in_place
from ledgerfold.storage.names import LABEL, parse_segment_name, segment_path
from ledgerfold.storage.producer_ids import IDS_PER_BLOCK
from ledgerfold.storage.records import (
    DELETION_VECTORS,
    KAFKA_TOPICS,
    LABELS,
    PULSAR_ENTRIES,
    STORE_KEY,
    first_fall,
    key_of,
    new_store_record,
)
from ledgerfold.storage.repair.kafka import (
    facts_of,
    forget_cleaned,
    keep_ends,
    keep_leader_epoch,
    next_producer_id,
    shrink_cleaned,
)
from ledgerfold.storage.repair.kafka_raw import list_raw
from ledgerfold.storage.repair.ledger_check import LedgerCheck
from ledgerfold.storage.repair.losses import compacted_losses, new_losses
from ledgerfold.storage.repair.lost import accept_losses, restore
from ledgerfold.storage.repair.rebuilt_records import make_topics, mend_unreadable
from ledgerfold.storage.repair.steps import Draft, RepairPlan, Step
from ledgerfold.storage.repair.survey import Survey, compacted_ids
from ledgerfold.storage.repair.verify import horizon_of, last_compacted, wrongly_labelled
from ledgerfold.storage.segment import file_names, with_segments
from ledgerfold.storage.text import counted
from ledgerfold.v1.records_pb2 import (
    LEDGER_KIND_COMPACTED,
    LEDGER_STATE_CLOSED,
    LedgerRecord,
    PositionRange,
    RunRecord,
    SegmentRecord,
    StoreRecord,
    TopicRecord,
    WriteCountRecord,
)
from ledgerfold.v1.records_pb2 import Position as PositionRecord


def make_plan(survey: Survey, now_ms: int) -> RepairPlan:
    """Plans the repair of all damage that storage/repair/verify.py reports. `now_ms`: for new
    records.
    """
    return _Planner(survey, now_ms).run()


class _Planner(Draft):
    def __init__(self, survey: Survey, now_ms: int) -> None:
        super().__init__(survey, now_ms)
        self._topics_with_loss: set[str] = set()

    def run(self) -> RepairPlan:
        newer = [e for e in self.survey.unreadable.values() if isinstance(e, IncompatibleFormat)]
        if newer:
            self.plan.refused += [Step(str(error)) for error in newer]
            return self.plan
        accept_losses(self)
        make_topics(self)
        restore(self)
        for check in self.survey.ledgers.values():
            if check.is_raw and not check.is_whole and check.record.ledger_id in self.ledgers:
                self._mend_raw(check)
        before = self.survey.topics()
        for topic in self.topics.values():
            self._list_ledgers(topic)
            if topic.HasField("kafka"):
                self._mend_segments(topic)
            if topic.HasField("compacted") and topic.compacted.ledger_id >= 0:
                self._mend_view(topic)
            if topic != before.get(topic.name):
                self.put(topic)
        self._drop_strays()
        self._put_found()
        mend_unreadable(self)
        self._mend_store()
        self._mend_labels()
        if self.plan.steps:
            self.plan.writes = self.survey.writes + 1
            self.put(WriteCountRecord(writes=self.plan.writes))
        return self.plan

    # -- raw ledgers -----------------------------------------------------------------------

    def _mend_raw(self, check: LedgerCheck) -> None:
        record = check.record
        if self._is_refused(check):
            return
        segments: list[SegmentRecord] = []
        for each in check.segments:
            for extent in each.extents:
                target = segment_path(record.ledger_id, extent.first.entry_id)
                segments.append(self.plan.keep(each, extent, target))
        mended = self._closed(record, segments)
        del mended.lost[:]
        for first, last in check.lost_ranges():
            lost = PositionRange(
                ledger_id=record.ledger_id, first_entry_id=first, last_entry_id=last
            )
            mended.lost.append(lost)
        losses = new_losses(check)
        for loss in losses:
            what = "is lost; the good entries around it are kept"
            self.step(what, record.topic, record.ledger_id, loss.messages, loss.entries)
        if not losses:
            what = "its record is corrected to match its files"
            if record.ledger_id not in self.survey.ledger_records():
                count = sum(each.messages for each in segments)
                what = f"its record is restored: {counted(count, 'message')}"
            self.step(what, record.topic, record.ledger_id)
        self.ledgers[record.ledger_id] = mended
        self.put(mended)

    def _is_refused(self, check: LedgerCheck) -> bool:
        newer = [each.newer for each in check.segments if each.newer is not None]
        for error in newer:
            step = Step(str(error), check.record.topic, check.record.ledger_id)
            self.plan.refused.append(step)
        return bool(newer)

    def _closed(self, record: LedgerRecord, segments: list[SegmentRecord]) -> LedgerRecord:
        mended = with_segments(record, segments)
        mended.state, mended.damaged = LEDGER_STATE_CLOSED, False
        mended.created_ms = record.created_ms or self.now_ms
        mended.closed_ms = record.closed_ms or self.now_ms
        dropped = file_names(record) - file_names(mended)
        self.plan.copies |= {path for path in dropped if self.exists(path)}
        return mended

    # -- topics ----------------------------------------------------------------------------

    def _list_ledgers(self, topic: TopicRecord) -> None:
        own = {
            ledger_id
            for ledger_id, record in self.ledgers.items()
            if record.topic == topic.name and record.kind != LEDGER_KIND_COMPACTED
        }
        listed = set(topic.ledger_ids)
        for ledger_id in sorted(listed - own):
            self._topics_with_loss.add(topic.name)
            what = "is lost with all its contents; the topic no longer names it"
            self.step(what, topic.name, ledger_id, None, "all")
        for ledger_id in sorted(own - listed):
            if topic.name in self.survey.topics():
                self.step("the topic names it again", topic.name, ledger_id)
        if any(self.ledgers[each].lost for each in own):
            self._topics_with_loss.add(topic.name)
        topic.ledger_ids[:] = sorted(own)
        if topic.HasField("kafka"):
            all_checks = self.survey.ledgers.values()
            checks = {x.record.ledger_id: x for x in all_checks if x.record.topic == topic.name}
            facts = {ledger_id: facts_of(each) for ledger_id, each in checks.items()}
            lost = {each for each in own if self.ledgers[each].lost != checks[each].record.lost}
            keep_ends(topic.kafka, lost | (listed - own), facts)
            is_incomplete, fall = self.survey.is_incomplete, first_fall(topic.kafka)
            if is_incomplete or topic.name not in self.survey.topics():
                keep_leader_epoch(topic.kafka, facts.values())
            now = list_raw(topic.kafka, sorted(own), facts, is_incomplete=is_incomplete)
            if fall is not None:
                self.step("its segments are in order of base offset again", topic.name)
            elif now.is_changed and listed == own:
                self.step("its segments name its raw ledgers again", topic.name)
            for ledger_id in sorted(now.removed):
                topic.ledger_ids.remove(ledger_id)
                self.delete_ledger(checks[ledger_id])
                what = "was truncated or cleaned, and is removed"
                if ledger_id in self.survey.unfinished:
                    what = "was being deleted, and newer ones have its offsets: a copy is kept"
                self.step(what, topic.name, ledger_id)

    def _compacted(self, topic: TopicRecord, ledger_id: int) -> LedgerCheck | None:
        """Returns the check of a ledger, if it exists and is a compacted one of the topic."""
        check = self.survey.ledgers.get(ledger_id)
        is_own = check is not None and not check.is_raw and check.record.topic == topic.name
        return check if is_own else None

    # -- cleaned segments of Kafka logs ----------------------------------------------------

    def _mend_segments(self, topic: TopicRecord) -> None:
        for ledger_id in compacted_ids(topic):
            check = self._compacted(topic, ledger_id)
            if check is not None and (check.is_whole or self._is_refused(check)):
                continue
            if check is not None and check.extents():
                self._keep_good(topic, check, "is lost; the good batches around it are kept")
                shrink_cleaned(topic.kafka, ledger_id, check.span())
                continue
            messages = None
            if check is not None and not check.is_reconstructed:
                messages = sum(each.messages for each in check.record.segments)
            forget_cleaned(topic.kafka, ledger_id)
            if check is not None:
                self.delete_ledger(check)
            what = "is lost with all its contents; its segment is empty"
            self.step(what, topic.name, ledger_id, messages, "all")

    # -- compacted views -------------------------------------------------------------------

    def _mend_view(self, topic: TopicRecord) -> None:
        ledger_id = topic.compacted.ledger_id
        check = self._compacted(topic, ledger_id)
        last = last_compacted(self.survey, topic) if check is not None else None
        exceeds_horizon = last is not None and last > horizon_of(topic)
        if check is not None and check.is_whole and not exceeds_horizon:
            return
        if check is not None and self._is_refused(check):
            return
        if check is not None and self._is_covered(topic, check):
            self._drop_view(topic, check)
            what = "its compacted view is dropped: the raw ledgers hold all of it; compact again"
            self.step(what, topic.name, ledger_id)
        elif check is not None and check.extents():
            what = "is lost to the compacted view; its good entries are kept"
            last_kept = self._keep_good(topic, check, what)
            horizon = topic.compacted.horizon
            horizon.CopyFrom(max_position(horizon, last_kept))
        else:
            messages = (
                None if check is None else sum(each.messages for each in check.record.segments)
            )
            self._drop_view(topic, check)
            what = "its compacted view is lost; readers get the messages of the raw ledgers"
            self.step(what, topic.name, ledger_id, messages, "all")

    def _is_covered(self, topic: TopicRecord, check: LedgerCheck) -> bool:
        """Returns whether the raw ledgers hold every message of the compacted one."""
        sources = {each.first.ledger_id for each in check.record.segments if each.entries}
        sources |= {ledger_id for each in check.segments for ledger_id in each.ledger_ids}
        if check.is_reconstructed or not sources or topic.name in self._topics_with_loss:
            return False
        # Trimming removes the oldest first: from the first one on, all exist or were lost.
        return sources <= set(topic.ledger_ids)

    def _keep_good(self, topic: TopicRecord, check: LedgerCheck, what: str) -> PositionRecord:
        """Keeps the good entries of a compacted ledger. Returns the last remaining position.

        `what`: the description of the losses.
        """
        record = check.record
        own = [each.path.rpartition("/") for each in record.segments]
        taken = [parse_segment_name(name) or 0 for folder, _, name in own]
        free = max(taken) + 1
        segments = []
        for each in check.segments:
            for extent in each.extents:
                if each.vector is not None and extent.dead.is_all_dead:
                    continue
                target = each.segment.path
                is_whole = not extent.offset and extent.record.size_bytes == each.size_bytes
                # NOTE: until the batch is written, the vector of the present record stays as it is.
                has_new_vector = each.vector is not None and not extent.record.HasField("dead")
                if not is_whole or has_new_vector:
                    target, free = segment_path(record.ledger_id, free), free + 1
                segments.append(self.plan.keep(each, extent, target))
        mended = self._closed(record, segments)
        self.ledgers[record.ledger_id] = mended
        self.put(mended)
        losses = compacted_losses(check)
        for loss in losses:
            self.step(what, topic.name, record.ledger_id, loss.messages, loss.entries)
        undone = [each for each in check.segments if each.vector is None and each.is_vector_lost]
        for each in undone:
            count = counted(each.segment.dead.messages, "message")
            what = f"{count} that had been replaced or deleted are in the compacted view again"
            self.step(what, topic.name, record.ledger_id)
        if not losses and not undone:
            self.step("its record is corrected to match its files", topic.name, record.ledger_id)
        return segments[-1].last

    def _drop_view(self, topic: TopicRecord, check: LedgerCheck | None) -> None:
        topic.ClearField("compacted")
        topic.ClearField("truncated_upto")
        topic.ClearField("compaction_moved_to")
        if check is not None:
            self.delete_ledger(check)

    # -- records and ledgers of no topic -----------------------------------------------------

    def _drop_strays(self) -> None:
        for check in self.survey.ledgers.values():
            record, topic = check.record, self.topics[check.record.topic]
            is_left = record.ledger_id in self.ledgers and not check.is_raw
            if is_left and record.ledger_id not in compacted_ids(topic):
                self.delete_ledger(check)
                what = "a compacted ledger that its topic does not name is removed"
                self.step(what, topic.name, record.ledger_id)
        for each in self.survey.of_topics():
            if each.topic not in self.topics:
                self.delete(key_of(each))
                self.step(f"a {type(each).__name__} of no topic is removed", each.topic)

    def _put_found(self) -> None:
        for ledger_id in sorted(self.ledgers.keys() - self.survey.ledger_records().keys()):
            record = self.ledgers[ledger_id]
            if key_of(record) not in self.plan.puts:
                self.put(record)
                if ledger_id not in self.restored:
                    self.step("its record is restored", record.topic, ledger_id)

    def _mend_store(self) -> None:
        ids, store = self.survey.ids(), self.survey.store()
        if self.survey.is_incomplete:
            # A restore brings ledgers back under their ids.
            ids |= self.survey.saved_ids
        if store is None and not ids and b"store" not in self.survey.unreadable:
            return
        mended = new_store_record()
        if store is not None:
            mended.CopyFrom(store)
        elif any(each.HasField("kafka") for each in self.topics.values()):
            mended.features.append(KAFKA_TOPICS)
        if store is None or self.survey.is_incomplete:
            # The lost writes may have reserved ids that are in batches.
            spans = (each.span() for each in self.survey.ledgers.values())
            mended.next_producer_id = max(mended.next_producer_id, next_producer_id(spans))
            # Batches of snapshots may have others.
            mended.next_producer_id += self.survey.lost_writes * IDS_PER_BLOCK
        segments = (each for record in self.ledgers.values() for each in record.segments)
        if DELETION_VECTORS not in mended.features and any(s.HasField("dead") for s in segments):
            mended.features.append(DELETION_VECTORS)
        checks = (each for ledger in self.survey.ledgers.values() for each in ledger.segments)
        has_pulsar_entries = any(each.has_pulsar_entries for each in checks)
        if PULSAR_ENTRIES not in mended.features and has_pulsar_entries:
            mended.features.append(PULSAR_ENTRIES)
        if store is None:
            mended.features.extend(self.survey.features())
        mended.next_ledger_id = max(mended.next_ledger_id, max(ids, default=0) + 1)
        mended.is_incomplete = False
        if mended != store:
            self.put(mended)
        if store is None or mended.next_ledger_id != store.next_ledger_id:
            self.step(f"the next ledger id is set to {mended.next_ledger_id}")

    def _mend_labels(self) -> None:
        """Writes labels that are missing, wrong, or contain a changed record."""
        store = self.plan.puts.get(STORE_KEY, self.survey.store())
        has_labels = isinstance(store, StoreRecord) and LABELS in store.features
        wrong = {each.record.ledger_id for each in wrongly_labelled(self.survey)}
        for ledger_id in sorted(self.ledgers.keys() & self.survey.folders.keys()):
            record = self.ledgers[ledger_id]
            is_compacted = record.kind == LEDGER_KIND_COMPACTED
            is_changed = has_labels and is_compacted and key_of(record) in self.plan.puts
            if ledger_id in wrong or is_changed:
                path = f"{ledger_id}/{LABEL}"
                self.plan.copies |= {path} if self.exists(path) else set()
                topic = self.topics[record.topic]
                runs = [*self.survey.runs(topic.name), *self._restored_runs(topic.name)]
                partitions = self.survey.siblings(topic.name)
                self.plan.labels.append(label_in_place(record, topic, runs, partitions))
            if ledger_id in wrong:
                self.step("its label is written again", record.topic, ledger_id)

    def _restored_runs(self, topic: str) -> Iterator[RunRecord]:
        for each in self.plan.puts.values():
            if isinstance(each, RunRecord) and each.topic == topic:
                yield each


def max_position(*positions: PositionRecord) -> PositionRecord:
    return max(positions, key=lambda each: (each.ledger_id, each.entry_id))
