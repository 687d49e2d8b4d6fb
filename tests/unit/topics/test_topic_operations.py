"""Truncate, terminate, delete, disabling compaction: on a whole broker, also during a run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from ledgerfold.broker.compaction.cursor_operations import clear
from ledgerfold.broker.stats.subscription import describe
from ledgerfold.broker.stats.topic import internal_stats
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.topics.operations import disable_compaction, terminate_topic, truncate_topic
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import (
    CompactionFailed,
    Moved,
    SubscriptionBusy,
    SubscriptionNotFound,
    TopicNotFound,
    TopicTerminated,
)
from ledgerfold.v1.admin_pb2 import COMPACTION_STATUS_ERROR, COMPACTION_STATUS_NOT_RUN
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.records_pb2 import RUN_STATE_ERROR, RUN_STATE_SUCCESS, RUN_TRIGGER_ADMIN
from ledgerfold.v1.records_pb2 import Emulation as Settings
from tests.model.broker_lab import DATA, TOPIC, BrokerLab
from tests.model.log_model import Message
from tests.support.held_executor import HeldExecutor

NONE = {"ledgerId": -1, "entries": -1, "size": -1, "offloaded": False}


@pytest.fixture
def lab() -> Iterator[BrokerLab]:
    lab = BrokerLab()
    yield lab
    lab.stop()


def send(lab: BrokerLab, text: str) -> None:
    """ "a=1 b=2": messages published alone."""
    for message in text.split():
        key, _, value = message.partition("=")
        lab.publish([([Message(key.encode(), value.encode())], False)])


def read(lab: BrokerLab, *, compacted: bool) -> str:
    found = [each.message for each in lab.read(EARLIEST, read_compacted=compacted)]
    return " ".join(f"{(key or b'~').decode()}={value.decode()}" for key, value, *_ in found)


def profile(lab: BrokerLab, name: str, **fields: bool) -> None:
    lab.topic.record.policies.emulation.CopyFrom(Settings(profile=name, **fields))


def compacted_ledger(lab: BrokerLab) -> dict[str, object]:
    ledger: dict[str, object] = internal_stats(lab.broker, lab.topic)["compactedLedger"]
    return ledger


def folders(lab: BrokerLab) -> set[int]:
    """Returns the folders of the ledgers that have files."""
    ledgers = DATA / "ledgers"
    return {int(each) for each in lab.files.listdir(ledgers) if lab.files.listdir(ledgers / each)}


async def run_on_its_way(lab: BrokerLab) -> int:
    """A run that waits in the compactor; its number."""
    lab.compactor.may_go.clear()
    topic = await lab.broker.topic(TOPIC)
    number = await lab.broker.compaction.trigger(topic, RUN_TRIGGER_ADMIN)
    await lab.compactor.has_begun.wait()
    return number


# Truncate


def test_truncate_removes_all_data(lab: BrokerLab) -> None:
    """Raw and compacted, read or not; subscriptions stay at the end, and only later messages exist,
    after a restart, too.
    """
    subscription = lab.run(create_subscription(lab.topic, "s", StartPosition(earliest=True)))
    send(lab, "a=1 b=1 a=2")
    lab.compact()
    send(lab, "c=1")
    lab.run(truncate_topic(lab.broker, TOPIC))
    assert (read(lab, compacted=True), read(lab, compacted=False)) == ("", "")
    assert describe(subscription)["msgBacklog"] == 0
    assert (compacted_ledger(lab), folders(lab)) == (NONE, set())
    send(lab, "a=3 a=4")
    lab.restart()
    assert read(lab, compacted=True) == "a=3 a=4"
    lab.compact()
    assert (read(lab, compacted=True), read(lab, compacted=False)) == ("a=4", "a=3 a=4")
    assert describe(lab.topic.subscriptions["s"])["msgBacklog"] == 2


def test_truncate_of_an_empty_topic(lab: BrokerLab) -> None:
    """Nothing happens; nor is there anything to compact then."""
    _ = lab.topic
    lab.run(truncate_topic(lab.broker, TOPIC))
    lab.run(truncate_topic(lab.broker, TOPIC))
    send(lab, "a=1")
    lab.run(truncate_topic(lab.broker, TOPIC))
    run = lab.compact()
    assert run is not None
    assert (run.state, run.ledger_id) == (RUN_STATE_SUCCESS, -1)


def test_truncate_loads_the_topic(lab: BrokerLab) -> None:
    """It is loaded for that."""
    send(lab, "a=1 b=1")
    lab.restart()
    lab.run(truncate_topic(lab.broker, TOPIC))
    assert read(lab, compacted=False) == ""


def test_a_reader_continues_after_truncated_data(lab: BrokerLab) -> None:
    """One reads the compacted ledger, and one the raw log."""
    send(lab, "a=1 b=1 c=1")
    lab.compact()
    readers = [lab.reader(EARLIEST, read_compacted=each) for each in (True, False)]
    for reader in readers:
        reader.some(1)
    lab.run(truncate_topic(lab.broker, TOPIC))
    send(lab, "d=1")
    for reader in readers:
        assert [each.message.key for each in reader.rest()][-1:] == [b"d"]
        reader.close()


@pytest.mark.parametrize("name", ["documented", "pulsar-4"])
def test_truncate_ends_the_run_in_progress(lab: BrokerLab, name: str) -> None:
    """Its input is deleted: it changes nothing, and leaves no file."""
    profile(lab, name)
    send(lab, "a=1 b=1")

    async def body() -> None:
        await run_on_its_way(lab)
        await truncate_topic(lab.broker, TOPIC)

    lab.run(body())
    run = lab.metadata.runs(TOPIC)[-1]
    assert (run.state, "truncated" in run.error_message) == (RUN_STATE_ERROR, True)
    assert lab.topic.log.views.horizon is None
    assert run.ledger_id not in folders(lab)


def test_truncate_in_pulsar_4(lab: BrokerLab) -> None:
    """Closed ledgers go, the open one's entries stay until it is closed; every cursor is at the
    end. The loaded topic serves the compacted view on; the next load has lost it."""
    profile(lab, "pulsar-4", trim_without_cursor=False)
    subscription = lab.run(create_subscription(lab.topic, "s", StartPosition(earliest=True)))
    send(lab, "a=1 b=1 a=2")
    lab.compact()
    lab.run(lab.broker.unload_topic(TOPIC))
    subscription = lab.topic.subscriptions["s"]
    send(lab, "b=2")
    lab.run(truncate_topic(lab.broker, TOPIC))
    assert read(lab, compacted=False) == "b=2"
    assert read(lab, compacted=True) == "b=1 a=2 b=2"
    end = lab.topic.log.positions.last()
    assert (subscription.mark_delete, describe(subscription)["msgBacklog"]) == (end, 0)
    cursor = internal_stats(lab.broker, lab.topic)["cursors"]["__compaction"]
    assert (cursor["markDeletePosition"], cursor["properties"]) == (str(end), {})
    assert compacted_ledger(lab)["entries"] == 2
    lab.run(lab.broker.unload_topic(TOPIC))
    assert (read(lab, compacted=True), read(lab, compacted=False)) == ("", "")
    assert (compacted_ledger(lab), folders(lab)) == (NONE, set())


def test_a_run_after_a_truncation_in_pulsar_4_keeps_the_compacted_data(lab: BrokerLab) -> None:
    profile(lab, "pulsar-4")
    send(lab, "a=1 b=1 a=2")
    lab.compact()
    send(lab, "b=2")
    lab.run(truncate_topic(lab.broker, TOPIC))
    lab.compact()
    lab.restart()
    assert read(lab, compacted=True) == "a=2 b=2"


@pytest.mark.parametrize("is_moved", [True, False])
def test_trimming_keeps_ledgers_that_a_run_reads(lab: BrokerLab, is_moved: bool) -> None:
    """Though `__compaction` has passed it, by a truncation before, or moved meanwhile."""
    profile(lab, "pulsar-4")
    send(lab, "a=1 b=1 a=2")
    lab.run(lab.topic.enable_compaction_cursor())

    async def body(topic: Topic) -> None:
        if not is_moved:
            await truncate_topic(lab.broker, TOPIC)
        await run_on_its_way(lab)
        if is_moved:
            await clear(topic)
        await topic.log.tail.roll()
        assert await topic.trim() == 0
        lab.compactor.may_go.set()
        await lab.broker.compaction.ended(TOPIC)
        await topic.trim()

    lab.run(body(lab.topic))
    assert lab.succeeded(lab.metadata.runs(TOPIC)[-1])
    assert (read(lab, compacted=True), read(lab, compacted=False)) == ("b=1 a=2", "")
    lab.restart()
    assert read(lab, compacted=True) == "b=1 a=2"


# Terminate


def test_nothing_is_published_to_a_terminated_topic(lab: BrokerLab) -> None:
    """Connected publishers get the error, new ones are refused for ever, and a second request
    returns the same.
    """

    async def connected() -> Producer:
        return await (await lab.broker.topic(TOPIC)).attach_producer("connected")

    send(lab, "a=1 a=2")
    last = lab.topic.log.positions.last()
    producer = lab.run(connected())
    assert lab.run(terminate_topic(lab.broker, TOPIC)) == last
    with pytest.raises(TopicTerminated):
        producer.append_all([memoryview(lab.entry([Message(b"a", b"3")], is_batch=False))])
    with pytest.raises(TopicTerminated):
        lab.run(producer.receipts())
    producer.detach()
    lab.restart()
    with pytest.raises(TopicTerminated):
        send(lab, "a=3")
    assert lab.run(terminate_topic(lab.broker, TOPIC)) == last
    assert internal_stats(lab.broker, lab.topic)["state"] == "Terminated"


def test_terminate_returns_the_same_end_twice(lab: BrokerLab) -> None:
    """The second of two calls finds the end, although earlier entries were trimmed between them."""
    send(lab, "a=1 a=2")
    lab.run(lab.topic.log.tail.roll())
    topic, held = lab.topic, HeldExecutor()
    last = topic.log.positions.last()
    lab.broker.record_writes._executor = lambda: held

    async def end_twice() -> list[Position]:
        held.holds = True
        ends = [asyncio.ensure_future(terminate_topic(lab.broker, TOPIC))]
        await held.has_work()
        oldest = topic.log.ledgers.ids[:-1]
        dropping = asyncio.ensure_future(
            topic.log.drop_ledgers(lambda: oldest, hides_compacted=False)
        )
        await asyncio.sleep(0)
        ends.append(asyncio.ensure_future(terminate_topic(lab.broker, TOPIC)))
        for _ in range(20):
            await asyncio.sleep(0)
        held.free()
        await dropping
        return await asyncio.gather(*ends)

    assert lab.run(end_twice()) == [last, last]


def test_a_terminated_topic_is_read_and_compacted(lab: BrokerLab) -> None:
    send(lab, "a=1 a=2")
    lab.run(terminate_topic(lab.broker, TOPIC))
    lab.compact()
    assert (read(lab, compacted=True), read(lab, compacted=False)) == ("a=2", "a=1 a=2")


def test_entries_in_flight_belong_to_a_terminated_topic(lab: BrokerLab) -> None:
    """It is durable before the end is; its producer gets the receipt, then the error."""

    async def body() -> int:
        producer = await (await lab.broker.topic(TOPIC)).attach_producer("p")
        producer.append_all([memoryview(lab.entry([Message(b"a", b"1")], is_batch=False))])
        last = await terminate_topic(lab.broker, TOPIC)
        (receipt,) = await producer.receipts()
        assert receipt.position == last
        with pytest.raises(TopicTerminated):
            await producer.receipts()
        producer.detach()
        return last.entry_id

    assert lab.run(body()) == 0


def test_an_end_is_not_reported_before_it_is_durable(lab: BrokerLab) -> None:
    """Readers get entries in flight before the end; publishers get a retriable error."""
    call = lab.reader(EARLIEST, read_compacted=False)
    assert call.rest() == []
    topic, held = lab.topic, HeldExecutor()
    topic.log._files.executor = held

    async def until_flushed() -> asyncio.Task[Position]:
        producer = await topic.attach_producer("p")
        held.holds = True
        producer.append_all([memoryview(lab.entry([Message(b"a", b"1")], is_batch=False))])
        terminating = asyncio.ensure_future(terminate_topic(lab.broker, TOPIC))
        await held.has_work()
        with pytest.raises(Moved):
            await topic.attach_producer("another")
        return terminating

    terminating = lab.run(until_flushed())
    assert call.rest() == []
    assert not call.has_ended
    held.free()
    lab.run(asyncio.wait_for(terminating, None))
    assert [each.message.value for each in call.rest()] == [b"1"]
    assert call.has_ended
    call.close()


def test_a_failed_termination_leaves_the_topic_open(lab: BrokerLab) -> None:
    """The topic stays open."""
    send(lab, "a=1")
    lab.run(lab.topic.log.tail.roll())
    lab.files.fail_at(1)
    with pytest.raises(Exception, match="failed"):
        lab.run(terminate_topic(lab.broker, TOPIC))
    send(lab, "a=2")
    assert read(lab, compacted=False) == "a=1 a=2"


# Unload and delete, during a run


def test_flt_16_unload_during_a_run(lab: BrokerLab) -> None:
    """The run changes nothing; the topic that is loaded then can be compacted."""
    profile(lab, "pulsar-4")
    send(lab, "a=1 a=2")

    async def body() -> int:
        await run_on_its_way(lab)
        await lab.broker.unload_topic(TOPIC)
        topic = await lab.broker.topic(TOPIC)
        return lab.broker.compaction.status(topic).status

    assert lab.run(body()) == COMPACTION_STATUS_NOT_RUN
    lab.compactor.may_go.set()
    lab.compact()
    assert read(lab, compacted=True) == "a=2"


def test_flt_10_and_30_delete_during_a_run_and_with_a_compacted_ledger(lab: BrokerLab) -> None:
    """Neither topic nor ledger reappears, and no file of either ledger is left."""
    send(lab, "a=1 a=2")
    lab.compact()
    send(lab, "a=3")

    async def body() -> None:
        await run_on_its_way(lab)
        await lab.broker.delete_topic(TOPIC, force=False)

    lab.run(body())
    lab.settle()
    assert lab.metadata.topic(TOPIC) is None
    assert (lab.metadata.runs(TOPIC), lab.metadata.ledgers(), folders(lab)) == ([], [], set())
    with pytest.raises(TopicNotFound):
        lab.run(lab.broker.topic(TOPIC, create=False))


# Disabling compaction


def test_flt_08_deleting_the_compaction_cursor(lab: BrokerLab) -> None:
    """The view and its ledger go; a new compaction starts from the raw data that are left."""
    send(lab, "a=1 b=1 a=2")
    lab.compact()
    first = compacted_ledger(lab)["ledgerId"]
    lab.run(disable_compaction(lab.broker, TOPIC))
    assert compacted_ledger(lab) == NONE
    assert first not in folders(lab)
    assert "__compaction" not in internal_stats(lab.broker, lab.topic)["cursors"]
    assert read(lab, compacted=True) == "a=1 b=1 a=2"
    with pytest.raises(SubscriptionNotFound):
        lab.run(disable_compaction(lab.broker, TOPIC))
    lab.restart()
    assert read(lab, compacted=True) == "a=1 b=1 a=2"
    lab.compact()
    assert compacted_ledger(lab)["entries"] == 2
    assert read(lab, compacted=True) == "b=1 a=2"


def test_raw_data_are_no_longer_kept_for_a_horizon(lab: BrokerLab) -> None:
    """Ledgers held only by compaction are deleted at once."""
    lab.run(create_subscription(lab.topic, "s", StartPosition(latest=True)))
    lab.run(lab.topic.enable_compaction_cursor())
    send(lab, "a=1 a=2")
    lab.run(lab.topic.log.tail.roll())
    lab.topic.subscriptions["s"].pass_over(lab.topic.log.positions.last())
    assert lab.run(lab.topic.trim()) == 0
    lab.run(disable_compaction(lab.broker, TOPIC))
    assert len(lab.topic.log.ledgers.ids) == 1


def test_flt_21_disabling_waits_for_the_run_and_removes_what_it_wrote(lab: BrokerLab) -> None:
    """Meanwhile triggers do nothing, and a second deletion is refused."""
    send(lab, "a=1 a=2")

    async def body() -> None:
        await run_on_its_way(lab)
        disabling = asyncio.ensure_future(disable_compaction(lab.broker, TOPIC))
        await asyncio.sleep(0)
        with pytest.raises(SubscriptionBusy, match="being deleted"):
            await disable_compaction(lab.broker, TOPIC)
        topic = await lab.broker.topic(TOPIC)
        assert await lab.broker.compaction.trigger(topic, RUN_TRIGGER_ADMIN) == 0
        assert not disabling.done()
        lab.compactor.may_go.set()
        await disabling

    lab.run(body())
    run = lab.metadata.runs(TOPIC)[-1]
    assert run.state == RUN_STATE_SUCCESS
    assert run.ledger_id not in folders(lab)
    assert compacted_ledger(lab) == NONE
    assert read(lab, compacted=True) == "a=1 a=2"


def test_an_unload_while_disabling_waits_fails_the_disabling(lab: BrokerLab) -> None:
    """The deletion did not happen: no caller gets a success."""
    send(lab, "a=1 a=2")

    async def body() -> None:
        await run_on_its_way(lab)
        disabling = asyncio.ensure_future(disable_compaction(lab.broker, TOPIC))
        await asyncio.sleep(0)
        await lab.broker.delete_topic(TOPIC, force=True)
        with pytest.raises(Moved):
            await disabling

    lab.run(body())


@pytest.mark.parametrize("blocks", [False, True])
def test_flt_23_disabling_after_a_failed_run(lab: BrokerLab, blocks: bool) -> None:
    """Pulsar 4 rejects it with that run's error, until the topic is loaded again."""
    profile(lab, "pulsar-4", failed_run_blocks_disabling=blocks)
    send(lab, "a=1 a=2")
    lab.compact()
    lab.compactor.failure = CompactionFailed("phase two", "a test wants it")
    lab.compact()
    status = lab.broker.compaction.status(lab.topic)
    assert status.status == COMPACTION_STATUS_ERROR
    if blocks:
        with pytest.raises(CompactionFailed, match="a test wants it"):
            lab.run(disable_compaction(lab.broker, TOPIC))
        assert compacted_ledger(lab) != NONE
        lab.run(lab.broker.unload_topic(TOPIC))
    lab.run(disable_compaction(lab.broker, TOPIC))
    assert compacted_ledger(lab) == NONE


def test_a_success_after_the_failure_unblocks_disabling(lab: BrokerLab) -> None:
    profile(lab, "pulsar-4")
    send(lab, "a=1")
    lab.compactor.failure = CompactionFailed("phase two", "a test wants it")
    lab.compact()
    lab.compact()
    lab.run(disable_compaction(lab.broker, TOPIC))
    assert compacted_ledger(lab) == NONE


def test_a_failed_disabling_changes_nothing(lab: BrokerLab) -> None:
    """(FLT-19 with a failure:) the view is served on."""
    send(lab, "a=1 a=2")
    lab.compact()
    lab.files.fail_at(1)
    with pytest.raises(Exception, match="failed"):
        lab.run(disable_compaction(lab.broker, TOPIC))
    assert read(lab, compacted=True) == "a=2"
    assert compacted_ledger(lab)["entries"] == 1


def test_a_truncation_succeeds_though_files_remain(lab: BrokerLab) -> None:
    """Files that cannot be removed are removed later: the data are deleted, and every cursor has
    passed them.
    """
    send(lab, "a=1 b=2")
    assert lab.compact() is not None
    start = StartPosition(earliest=True)
    subscription = lab.run(create_subscription(lab.topic, "s", start))

    def refuse(call: str) -> None:
        if call.startswith("remove_dir"):
            lab.files.fail_at(0)

    lab.files.during = refuse
    lab.run(truncate_topic(lab.broker, TOPIC))
    lab.files.during = lambda call: None
    assert describe(subscription)["msgBacklog"] == 0
    assert read(lab, compacted=True) == ""
    send(lab, "c=3")
    assert lab.compact() is not None
    lab.run(lab.topic.trim())
    assert read(lab, compacted=True) == "c=3"
    lab.restart()
    used = {str(each.ledger_id) for each in lab.metadata.ledgers()}
    folders = set(lab.files.listdir(DATA / "ledgers"))
    assert folders <= used
