"""Compares a topic with a plain list under random operations in random order.

Publishing, batches, tombstones, messages without a key, rolls, compactions that succeed, fail and
are fenced, power failures with every kind of torn tail, restarts, unloads, trimming, cursors, and
readers from all positions, some of which stay open throughout. Letters in comments are the
invariants of docs/ARCHITECTURE.md.

    LEDGERFOLD_EXAMPLES=2000 scripts/test tests/model tests more examples
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import chain

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from ledgerfold.broker.subscriptions.cursor_operations import expire_all
from ledgerfold.broker.topics.operations import disable_compaction, truncate_topic
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import CompactionFailed, CompactionRunning
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    RUN_STATE_ERROR,
    RUN_STATE_SUCCESS,
    RUN_TRIGGER_ADMIN,
)
from tests.model.broker_lab import DATA, TOPIC, BrokerLab, ReadCall
from tests.model.log_model import LogModel, Message, Read, final_state
from tests.support.ledgers import is_segment
from tests.support.lossy_files import TAILS, Tail
from tests.support.property_tests import examples

EXAMPLES = int(os.environ.get("LEDGERFOLD_EXAMPLES", examples(60)))
KEYS = st.sampled_from([b"a", b"b", b"c", b"", None])
VALUES = st.sampled_from([b"", b"1", b"2", b"x" * 90])
MESSAGES = st.tuples(KEYS, VALUES).map(lambda drawn: Message(*drawn))
ENTRIES = st.one_of(
    MESSAGES.map(lambda message: ([message], False)),
    st.lists(MESSAGES, min_size=1, max_size=4).map(lambda messages: (messages, True)),
)
PUBLISHED = st.lists(ENTRIES, min_size=1, max_size=5)


class OpenReader:
    """A reader that stays open: read-compacted from earliest, with the messages seen.

    `may_miss`: data were deleted that it may not have read.
    """

    def __init__(self, call: ReadCall, model: LogModel) -> None:
        self.call = call
        self.seen: list[Read] = []
        self.may_miss = False
        self._found = model.view(EARLIEST, read_compacted=True)
        self._entries_before = len(model.entries)

    def final_state(self, model: LogModel) -> dict[bytes, bytes]:
        """Returns what the reader must know after reading everything: what it found, and later
        messages.
        """
        found = [read.message for read in self._found]
        since = model.entries[self._entries_before :]
        return final_state(chain(found, *(entry.messages for entry in since)))


class BrokerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.lab = BrokerLab()
        self.model = LogModel()
        self.readers: list[OpenReader] = []
        # For the durable subscription "s": everything up to here was acknowledged durably.
        self.acknowledged: Position | None = None
        # Everything up to here expired, which a crash may undo; trimming has run before.
        self.expired = EARLIEST

    @initialize()
    def create(self) -> None:
        _ = self.lab.topic

    def teardown(self) -> None:
        self._forget_readers()
        self.lab.stop()

    # Publishing

    @rule(entries=PUBLISHED)
    def publish(self, entries: Sequence[tuple[list[Message], bool]]) -> None:
        positions = self.lab.publish(entries)
        assert positions == sorted(set(positions))
        for position, (messages, is_batch) in zip(positions, entries, strict=True):
            self.model.publish(position, messages, is_batch=is_batch)

    @rule(entries=PUBLISHED, turns=st.integers(0, 6), tail=st.sampled_from(TAILS))
    def crash(self, entries: Sequence[tuple[list[Message], bool]], turns: int, tail: Tail) -> None:
        """Cuts the power while unacknowledged entries are in flight."""
        positions = self.lab.append(entries, turns)
        self._forget_readers()
        self.lab.crash(tail)
        assert not self.lab.report.damaged
        # (a) and (b): the acknowledged entries, then a prefix of those in flight.
        found = self.lab.read(EARLIEST, read_compacted=False)
        kept = {read.position for read in found}
        survived = [position in kept for position in positions]
        assert survived == sorted(survived, reverse=True)
        for position, (messages, is_batch) in zip(positions, entries, strict=True):
            if position in kept:
                self.model.publish(position, messages, is_batch=is_batch)
        self._look_at_ledgers()
        self._check_disk()

    @rule()
    def restart(self) -> None:
        self._forget_readers()
        self.lab.restart()
        assert not self.lab.report.damaged
        self._check_disk()

    @rule()
    def unload(self) -> None:
        """Closes the ledger, begins another, and trims."""
        self._forget_readers()
        self.lab.run(self.lab.broker.unload_topic(TOPIC))

    @rule()
    def trim(self) -> None:
        self.lab.run(self.lab.topic.trim())

    # Compaction

    @rule()
    def compact(self) -> None:
        has_news = self._has_news()
        run = self.lab.compact()
        if not has_news:
            assert run is None or self.model.horizon is None
            return
        assert run is not None
        assert run.state == RUN_STATE_SUCCESS, run.error_message
        self._compacted(Position(run.horizon.ledger_id, run.horizon.entry_id))

    @precondition(lambda self: self._has_news())
    @rule()
    def fail_to_compact(self) -> None:
        """(i): the old view is unchanged, and no file remains."""
        self.lab.compactor.failure = CompactionFailed("phase two", "a test wants it")
        run = self.lab.compact()
        assert run is not None
        assert run.state == RUN_STATE_ERROR
        self._check_disk()

    @precondition(lambda self: self._has_news())
    @rule()
    def unload_while_compacting(self) -> None:
        """(i): a run whose topic is unloaded changes nothing; a run that was faster is
        published.
        """
        self._forget_readers()

        async def unload() -> int:
            topic = await self.lab.broker.topic(TOPIC)
            number = await self.lab.broker.compaction.trigger(topic, RUN_TRIGGER_ADMIN)
            await self.lab.broker.unload_topic(TOPIC)
            return number

        number = self.lab.run(unload())
        run = next(each for each in self.lab.metadata.runs(TOPIC) if each.number == number)
        if run.state == RUN_STATE_SUCCESS:
            self._compacted(Position(run.horizon.ledger_id, run.horizon.entry_id))
        self._check_disk()

    @precondition(lambda self: self._has_news())
    @rule()
    def compact_twice_at_once(self) -> None:
        """Compacts twice (rule j): the second run is rejected while the first is in progress."""

        async def trigger() -> None:
            topic = await self.lab.broker.topic(TOPIC)
            await self.lab.broker.compaction.trigger(topic, RUN_TRIGGER_ADMIN)
            with pytest.raises(CompactionRunning):
                await self.lab.broker.compaction.trigger(topic, RUN_TRIGGER_ADMIN)
            async for _ in self.lab.broker.compaction.watch(topic):
                pass

        self.lab.run(trigger())
        last = self.lab.metadata.runs(TOPIC)[-1]
        assert last.state == RUN_STATE_SUCCESS
        self._compacted(Position(last.horizon.ledger_id, last.horizon.entry_id))

    # Deleting

    @rule()
    def truncate(self) -> None:
        """All data are deleted, read or not; later messages are all that exists."""
        self.lab.run(truncate_topic(self.lab.broker, TOPIC))
        self.model.truncate()
        self._data_were_deleted()
        self._check_disk()

    @precondition(lambda self: self.lab.topic.record.compaction_cursor)
    @rule()
    def disable_compaction(self) -> None:
        """Disables compaction: the raw ledgers remain, and a later compaction begins with them."""
        self.lab.run(disable_compaction(self.lab.broker, TOPIC))
        self.model.forget_compacted()
        self._look_at_ledgers()
        self._data_were_deleted()
        self._check_disk()

    @rule()
    def expire(self) -> None:
        """Every subscription passes expired messages, which are all messages here."""
        self.lab.run(self.lab.clock.move_to(self.lab.clock.now_ms() + 10))
        self.lab.run(expire_all(self.lab.topic, 1))
        for subscription in self.lab.topic.subscriptions.values():
            assert subscription.backlog_entries() == 0
        self.expired = max(self.expired, self._mark_delete())

    @rule(hours=st.sampled_from([1, 5]))
    def pass_time(self, hours: int) -> None:
        """Ledgers age, and are closed; deletable ones are deleted."""
        self.lab.advance(hours * 3_600_000)

    # Reading

    @rule(read_compacted=st.booleans())
    def read_all(self, read_compacted: bool) -> None:
        """(c), (d), (g)."""
        found = self.lab.read(EARLIEST, read_compacted=read_compacted)
        assert found == self.model.view(EARLIEST, read_compacted=read_compacted)

    @precondition(lambda self: self.model.entries)
    @rule(data=st.data(), read_compacted=st.booleans(), inclusive=st.booleans())
    def read_from(self, data: st.DataObject, read_compacted: bool, inclusive: bool) -> None:
        """(f): from any id that was ever assigned, also one that was trimmed or compacted away.

        After a batch without a batch index means at its beginning.
        """
        at = data.draw(st.integers(0, len(self.model.entries) - 1), "entry")
        position, _, is_batch = self.model.entries[at]
        found = self.lab.read(position, read_compacted=read_compacted, inclusive=inclusive)
        start = position if inclusive or is_batch else position.next
        assert found == self.model.view(start, read_compacted=read_compacted)

    @precondition(lambda self: len(self.readers) < 3)
    @rule()
    def open_reader(self) -> None:
        call = self.lab.reader(EARLIEST, read_compacted=True)
        self.readers.append(OpenReader(call, self.model))

    @precondition(lambda self: self.readers)
    @rule(data=st.data(), messages=st.integers(1, 6))
    def read_some(self, data: st.DataObject, messages: int) -> None:
        reader = data.draw(st.sampled_from(self.readers), "reader")
        reader.seen += reader.call.some(messages)
        self._check_seen(reader)

    @precondition(lambda self: self.readers)
    @rule(data=st.data())
    def read_rest(self, data: st.DataObject) -> None:
        """(e): runs that committed meanwhile lose nothing for a reader that keeps the last
        values.
        """
        reader = data.draw(st.sampled_from(self.readers), "reader")
        reader.seen += reader.call.rest()
        self._check_seen(reader)
        if reader.may_miss:
            return
        learned = final_state(read.message for read in reader.seen)
        assert learned == reader.final_state(self.model)

    @rule(read_compacted=st.booleans())
    def last_id(self, read_compacted: bool) -> None:
        """The last id of a reader that reads everything."""

        async def ask() -> Position | None:
            entry = await self.lab.broker.topics[TOPIC].log.search.last_entry(read_compacted)
            return None if entry is None else entry.header.position

        expected = self.model.last_position(read_compacted=read_compacted)
        if read_compacted and self.model.horizon is not None and not self._has_news():
            survivors = self.model.survivors()
            expected = survivors[-1].position if survivors else None
        _ = self.lab.topic
        assert self.lab.run(ask()) == expected

    @rule(data=st.data(), read_compacted=st.booleans())
    def consume(self, data: st.DataObject, read_compacted: bool) -> None:
        """A durable subscription continues after its acknowledgements, after any crash."""
        start = self._mark_delete()
        note(f"mark-delete {start}")
        if read_compacted and start.entry_id < 0:
            start = EARLIEST
        first = start if start == EARLIEST else start.next
        expected = self.model.view(first, read_compacted=read_compacted)
        entries = list(dict.fromkeys(read.position for read in expected))
        count = data.draw(st.integers(0, min(3, len(entries))), "entries")
        found = self.lab.consume(count, read_compacted=read_compacted)
        assert found == [read for read in expected if read.position in entries[:count]]
        if found:
            self.acknowledged = found[-1].position
        assert all(position > self._mark_delete() for position in entries[count:])

    # Permanent invariants

    @invariant()
    def only_ledgers_are_gone_that_everybody_has_passed(self) -> None:
        self._look_at_ledgers()

    @invariant()
    def mark_delete_covers_what_was_acknowledged(self) -> None:
        if self.acknowledged is not None:
            assert self._mark_delete() >= self.acknowledged

    @invariant()
    def horizon_is_the_last_run_s(self) -> None:
        """(i), (j): only a successful run moves it."""
        assert self.lab.topic.log.views.horizon == self.model.horizon

    # Internals

    def _mark_delete(self) -> Position:
        subscription = self.lab.topic.subscriptions.get("s")
        return EARLIEST if subscription is None else subscription.mark_delete

    def _has_news(self) -> bool:
        horizon = self.model.horizon or EARLIEST
        return any(entry.position > horizon for entry in self.model.raw())

    def _compacted(self, horizon: Position) -> None:
        last = self.model.raw()[-1].position
        assert horizon == last
        self.model.compact(horizon)

    def _look_at_ledgers(self) -> None:
        """Checks that only ledgers that every cursor has passed were deleted."""
        self.lab.settle()
        there = set(self.lab.topic.log.ledgers.ids)
        gone = {entry.position.ledger_id for entry in self.model.raw()} - there
        passed = []
        if "s" in self.lab.topic.subscriptions:
            passed.append(max(self._mark_delete(), self.expired))
        if self.lab.topic.record.compaction_cursor:
            passed.append(self.model.horizon or EARLIEST)
        for ledger_id in gone:
            last = max(e.position for e in self.model.entries if e.position.ledger_id == ledger_id)
            assert passed
            assert min(passed) >= last
        self.model.ledgers -= gone
        if gone and self.model.horizon is None:
            self._data_were_deleted()

    def _check_seen(self, reader: OpenReader) -> None:
        """(b), (c): only published messages, in rising order, each once."""
        ids = [(read.position, read.batch_index) for read in reader.seen]
        assert ids == sorted(set(ids))
        published = {entry.position: entry for entry in self.model.entries}
        for read in reader.seen:
            entry = published[read.position]
            index = max(read.batch_index, 0)
            assert entry.is_batch == (read.batch_index >= 0)
            assert entry.messages[index] == read.message

    def _data_were_deleted(self) -> None:
        for reader in self.readers:
            reader.may_miss = True

    def _forget_readers(self) -> None:
        for reader in self.readers:
            reader.call.close()
        self.readers = []

    def _check_disk(self) -> None:
        """(h), (i): metadata name exactly the existing files, with their sizes.

        A compacted ledger that is dropped stays for a reader in the middle of it.
        """
        files, ledgers, topic = self.lab.files, DATA / "ledgers", self.lab.topic.record
        used = {*topic.ledger_ids, topic.compacted.ledger_id, 0, -1}
        records = self.lab.metadata.ledgers()
        held = {each.ledger_id for each in records if each.state == LEDGER_STATE_DELETING}
        assert self.readers or not held
        assert {each.ledger_id for each in records} - held | {0, -1} == used
        named = {
            segment.path: segment.size_bytes
            for record in records
            for segment in self.lab.store.open_reader(record.ledger_id).record.segments
        }
        there = {
            f"{folder}/{name}": files.size(ledgers / folder / name)
            for folder in files.listdir(ledgers)
            for name in files.listdir(ledgers / folder)
            if is_segment(name)
        }
        assert there == named


def test_the_broker_agrees_with_a_list_of_messages() -> None:
    run_state_machine_as_test(
        BrokerMachine,
        settings=settings(
            max_examples=EXAMPLES,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
