"""The end of a scenario: faults stop, and everything reaches its expected state.

1. Publishers get all their acknowledgements, runs end, readers reach the end of the log.
2. A new raw reader finds each acknowledged entry that was not deleted by rule, once; a new
   compacted one finds the view and the raw tail after it. After a power loss the same entries
   exist, and files and records match exactly. The emulated time within which everything must become
   idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from ledgerfold.storage.entry import EARLIEST, Position
from ledgerfold.storage.errors import LedgerfoldError, TopicNotFound, TopicTerminated
from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.v1 import data_pb2
from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    RUN_STATE_QUEUED,
    RUN_STATE_RUNNING,
)
from tests.simulation import kafka_operations
from tests.simulation.actors import Actors
from tests.simulation.connections import Connection, call
from tests.simulation.consumers import EXCLUSIVE, Consumer
from tests.simulation.disk import DATA, File, Folder
from tests.simulation.life import Topic
from tests.simulation.live_consumers import check_owed
from tests.simulation.loop import Hang
from tests.simulation.oracle import Oracle
from tests.simulation.publishers import HANDLER as PUBLISH
from tests.simulation.readers import Reader
from tests.simulation.subscriptions import Subscription, covers
from tests.simulation.world import World
from tests.support.ledgers import is_segment

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker

# Emulated time in which everything must have come to rest.
PATIENCE_S = 150.0
_HELD_STEPS = 2_000


async def converge(actors: Actors) -> None:
    world = actors.world
    world.note("faults stop")
    world.is_converging = True
    world.disk.clear_faults()
    world.moments.disarm()
    world.loop.let_go()
    if world.process is not None:
        world.process.crash_in, world.process.crash_at = -1, ""
    await _until(world, lambda: world.is_up.is_set() and not world.disk.is_full, "a broker")
    await _until(world, lambda: all(p.is_idle for p in actors.publishers.values()), "publishers")
    kafka = actors.kafka_producers
    for producer in kafka:
        producer.end(Random(producer.number))
    await _until(world, lambda: all(each.is_idle for each in kafka), "producers")
    # An administrator's request in progress would change the state.
    await _until(world, lambda: not world.is_calling, "calls that end")
    # The last of them may have stopped the broker.
    await _until(world, world.is_up.is_set, "a start")
    await _until(world, lambda: not _is_compacting(world), "runs that end")
    await _until(world, lambda: _is_quiet(world), "trimming that ends")
    for reader in actors.readers:
        await _read_to_the_end(world, reader)
        await _check_told_end(world, reader)
    await _consume(actors)
    await _look(actors)
    await kafka_operations.look(actors, world.random)
    world.note("the power fails once more")
    world.crash_now(power=True)
    await _until(world, lambda: world.process is not None and not world.process.is_dead, "a start")
    await _until(world, world.is_up.is_set, "a start")
    await _until(world, lambda: _is_quiet(world), "trimming that ends")
    await _look(actors)
    await kafka_operations.look(actors, world.random)
    await _check_trimmed(actors)
    await kafka_operations.check_retained(actors)
    await kafka_operations.rest(actors)
    # Deletions of a pass continue to their end.
    await _until(world, lambda: not _is_deleting(world), "deletions that end")
    _check_files(world)
    _check_runs(world)
    _check_partitions(world)
    await _check_terminated(world)


async def _until(world: World, condition: Callable[[], bool], what: str) -> None:
    end_s = world.loop.time() + PATIENCE_S
    pause_s = 0.001
    while not condition():
        if world.loop.time() > end_s:
            raise Hang(f"waiting for {what}\n{world.loop.stacks()}")
        await asyncio.sleep(pause_s)
        pause_s = min(1.0, pause_s * 1.3)


def _is_compacting(world: World) -> bool:
    broker = world.broker
    return broker is None or any(map(broker.compaction.has_run, world.oracle.topics))


def _is_quiet(world: World) -> bool:
    """Returns whether only housekeeping, which never ends, runs in the background."""
    broker = world.broker
    return broker is not None and len(broker._tasks) <= 1


def _check_runs(world: World) -> None:
    """Checks that no recorded run is in progress after a start."""
    for topic in world.oracle.topics.values():
        for run in topic.runs.values():
            if run.state in (RUN_STATE_QUEUED, RUN_STATE_RUNNING):
                world.oracle.fail(f"run {run.number} of {topic.name} never ends")


def _check_partitions(world: World) -> None:
    """A partitioned topic has no topic of its own name, and no partition beyond its number."""
    for name in sorted(world.oracle.topics):
        if name in world.oracle.partitions or world.oracle.is_beyond(name):
            world.oracle.fail(f"{name} is there beside the partitions")


async def _check_told_end(world: World, reader: Reader) -> None:
    """Checks that a reader that has read a terminated topic is soon notified of its end."""

    def is_owed() -> bool:
        topic = world.oracle.topics.get(reader.topic_name)
        is_at_end = not reader.is_over and topic is not None and topic.end is not None
        return is_at_end and not reader.has_ended

    try:
        await _until(world, lambda: not is_owed(), "the end of a topic")
    except Hang:
        world.oracle.fail(f"{reader.name} is not told of the end of the topic (g)")


async def _check_terminated(world: World) -> None:
    """Permanently: nobody can publish to it any more."""
    for name, topic in sorted(world.oracle.topics.items()):
        if topic.end is None:
            continue
        connection = Connection(world, PUBLISH, lambda frame: None)
        opening = data_pb2.PublishOpen(topic=name, producer_name="the last publisher")
        connection.send(data_pb2.PublishRequest(open=opening).SerializeToString())
        await connection.wait()
        if not isinstance(connection.error, TopicTerminated):
            world.oracle.fail(f"{name} is terminated, and a publisher hears {connection.error!r}")


async def _read_to_the_end(world: World, reader: Reader) -> None:
    """Reads until there is no more."""
    reader.at_end.clear()
    reader.permit(1_000)
    count = -1
    end_s = world.loop.time() + PATIENCE_S
    while not reader.is_over:
        if reader.is_settled and len(reader.seen.entries) == count:
            return
        count = len(reader.seen.entries)
        reader.check()
        await asyncio.sleep(0.05)
        if world.loop.time() > end_s:
            raise Hang(f"{reader.name} does not come to the end\n{world.loop.stacks()}")


async def _consume(actors: Actors) -> None:
    """Each durable subscription still gets its unacknowledged messages."""
    world = actors.world
    await check_owed(actors)
    for consumer in actors.consumers:
        consumer.close()
        consumer.cut()
    for name, topic in sorted(world.oracle.topics.items()):
        if world.oracle.is_damaged:
            break
        for sub in list(topic.subscriptions.values()):
            if sub.name in topic.cursors:
                world.oracle.examine(topic, sub)
                await _consume_rest(world, name, topic, sub)


async def _consume_rest(world: World, name: str, topic: Topic, sub: Subscription) -> None:
    consumer = Consumer(
        world, name, sub.name, f"the last consumer of {sub.name}", EXCLUSIVE, read_compacted=False
    )
    consumer.permit(100_000)
    end_s = world.loop.time() + 60
    while missing := _due(topic, sub) - consumer.got:
        if consumer.is_over or world.loop.time() > end_s:
            missed = ", ".join(map(str, sorted(missing)))
            world.oracle.fail(f"{sub.name} never gets {missed}, which it has not acknowledged (a)")
            return
        await asyncio.sleep(0.2)
    consumer.close()
    consumer.cut()


def _due(topic: Topic, sub: Subscription) -> set[Position]:
    upto = topic.horizon if sub.has_compacted and topic.horizon is not None else EARLIEST
    return {
        position
        for attempt, position in topic.acked.items()
        if position is not None
        and position.ledger_id not in topic.removed
        and position > upto
        and sub.is_due(position, attempt.step)
        and not covers(topic.cursors[sub.name], position)
    }


async def _look(actors: Actors) -> None:
    """A new reader of each kind sees exactly the existing messages (d)."""
    for name in sorted(actors.world.oracle.topics):
        for read_compacted in (False, True):
            await _look_at(actors, name, read_compacted=read_compacted)


async def _look_at(actors: Actors, name: str, *, read_compacted: bool) -> None:
    oracle = actors.world.oracle
    while True:
        topic = oracle.topics.get(name)
        if topic is None:
            # An administrator's call was in progress.
            return
        # The first use loads a topic, which may trim it.
        gone, horizon = len(topic.removed), topic.horizon
        kind = "compacted" if read_compacted else "raw"
        reader = Reader(
            actors.world, name, f"the last {kind} reader", EARLIEST, read_compacted=read_compacted
        )
        await _read_to_the_end(actors.world, reader)
        await _check_told_end(actors.world, reader)
        reader.close()
        is_same = oracle.topics.get(name) is topic
        if is_same and (gone, horizon) == (len(topic.removed), topic.horizon):
            break
    if oracle.is_damaged:
        # Each reader has checked that it was notified of everything that it missed.
        return
    expected = _expected(oracle, topic, read_compacted=read_compacted)
    found = list(reader.seen.entries)
    if found != expected:
        oracle.fail(
            f"the last {kind} reader of {name} gets {list(map(str, found))}, "
            f"not {list(map(str, expected))} (d)"
        )
    _check_acknowledged(oracle, topic)


def _expected(oracle: Oracle, topic: Topic, *, read_compacted: bool) -> list[Position]:
    raw = [
        position for ledger_id in topic.record.ledger_ids for position in oracle.entries(ledger_id)
    ]
    if not read_compacted:
        return raw
    beyond = [each for each in raw if topic.horizon is None or each > topic.horizon]
    view = dict.fromkeys(row.position for row in topic.rows if row.position >= topic.floor)
    return [*view, *beyond]


def _check_acknowledged(oracle: Oracle, topic: Topic) -> None:
    """(a): each acknowledged entry is in the log, once, or deleted by rule."""
    oracle.learn(topic)
    there, seen = set(), set()
    for ledger_id in topic.record.ledger_ids:
        for position, entry in oracle.entries(ledger_id).items():
            there.add(position)
            attempt = oracle.attempt_of(topic, entry)
            if attempt is None:
                oracle.fail(f"{position} holds what nobody published (a)")
            elif attempt in seen and attempt.producer not in topic.forgotten:
                oracle.fail(f"{position} holds {attempt} again (a)")
            seen.add(attempt)
    for attempt, at in topic.acked.items():
        if at is None:
            oracle.fail(f"{attempt} was acknowledged as a duplicate, and is nowhere (a)")
        elif at.ledger_id not in topic.removed and at not in there:
            oracle.fail(f"{attempt} was acknowledged at {at}, and is gone (a)")


async def _check_trimmed(actors: Actors) -> None:
    """Checks that a trim deletes exactly the ledgers that nothing needs and no limit retains."""
    world = actors.world
    for reader in actors.readers:
        reader.close()
        reader.cut()
    await _until(world, lambda: not _is_read(world), "readers that are gone")
    for name, topic in sorted(world.oracle.topics.items()):
        world.loop.hold(_HELD_STEPS)
        try:
            await call(world, partial(_trim, name=name))
        except TopicNotFound:
            # An administrator has deleted it.
            continue
        except LedgerfoldError as error:
            if not world.oracle.is_damaged:
                world.oracle.fail(f"{name} cannot be trimmed: {error!r}")
            continue
        finally:
            world.loop.let_go()
        left = world.oracle.may_go(topic)
        if left and not topic.forgotten and not world.oracle.is_damaged:
            world.oracle.fail(f"raw ledgers {left} of {name} are kept, and nothing keeps them")


async def _trim(broker: Broker, name: str) -> None:
    await (await broker.topic(name, create=False)).trim()


def _is_read(world: World) -> bool:
    broker = world.broker
    return broker is None or any(each.readers for each in broker.topics.values())


def _is_deleting(world: World) -> bool:
    return any(each.state == LEDGER_STATE_DELETING for each in MetadataStore(world.pairs).ledgers())


def _check_files(world: World) -> None:
    """(h), (i): after a start each file has a record, and each record its files."""
    metadata = MetadataStore(world.pairs)
    records = [each for each in metadata.ledgers() if each.state != LEDGER_STATE_DELETING]
    named = {segment.path for record in records for segment in record.segments}
    used: set[int] = set()
    for topic in metadata.topics():
        used.update(topic.ledger_ids)
        if topic.HasField("compacted") and topic.compacted.ledger_id >= 0:
            used.add(topic.compacted.ledger_id)
        used.update(each for segment in topic.kafka.segments for each in segment.ledger_ids)
    unused = [record.ledger_id for record in records if record.ledger_id not in used]
    if unused:
        world.oracle.fail(f"ledgers {unused} belong to no topic (i)")
    there = set()
    folder = world.disk.find(DATA / "ledgers")
    if isinstance(folder, Folder):
        for name, node in folder.names.items():
            if isinstance(node, Folder):
                there |= {
                    f"{name}/{each}"
                    for each, file in node.names.items()
                    if isinstance(file, File) and is_segment(each)
                }
    there -= {each for each in world.oracle.kept if each not in named}
    if there != named:
        world.oracle.fail(
            f"files without a record: {sorted(there - named)}; records without a file: "
            f"{sorted(named - there)} (h, i)"
        )
