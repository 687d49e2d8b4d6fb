"""Operations on a Kafka topic (tests/simulation/kafka_clients.py), and how its scenario ends."""

from __future__ import annotations

import asyncio
from functools import partial
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING

from ledgerfold.broker.kafka.cleaner.states import Paused
from ledgerfold.broker.topics.kafka_settings import change_topic_config
from ledgerfold.broker.topics.kafka_truncation import truncate_log
from ledgerfold.storage.errors import LedgerfoldError, TopicNotFound
from tests.simulation.boundaries import stop_clock
from tests.simulation.connections import call
from tests.simulation.kafka_clients import KafkaProducer, read_once
from tests.simulation.kafka_life import KafkaLife
from tests.simulation.key_value import RETRY_S
from tests.simulation.operation import operation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgerfold.broker.topics.broker import Broker
    from tests.simulation.actors import Actors
    from tests.simulation.world import World

WEIGHTS = {
    "publish": 0,
    "kafka_publish": 30,
    "kafka_bump": 3,
    "kafka_resend": 2,
    "kafka_boundary": 3,
    "kafka_read": 10,
    "kafka_roll": 5,
    "kafka_clean": 12,
    "kafka_retain": 3,
    "kafka_config": 3,
    "kafka_log_start": 1,
    "kafka_pause": 2,
    "kill_worker": 2,
    "unload": 3,
    "delete_topic": 1,
    "pass_time": 2,
    "kill_broker": 2,
    "lose_power": 3,
    "restart": 1,
    "fail_call": 4,
    "slow_call": 5,
    "fill_disk": 1,
}
# Where logs are truncated, too.
TRUNCATION_WEIGHTS = WEIGHTS | {"kafka_truncate": 4}
THEMES = (
    (),
    ("kafka_clean", "kafka_read", "slow_call"),
    ("kafka_clean", "kafka_roll", "unload", "slow_call"),
    ("kafka_clean", "kill_broker", "lose_power"),
    ("kafka_retain", "kafka_log_start", "kafka_config", "kafka_roll", "kafka_read"),
    ("kafka_boundary", "kafka_config", "kafka_roll"),
    ("fail_call", "kafka_clean", "unload", "fill_disk"),
    ("lose_power", "kafka_roll", "slow_call"),
)
PRODUCERS_MAX = 4
# For the last reader: two are seen, in one seed of some hundreds.
_TRIES_MAX = 10
_HELD_STEPS = 2_000
_CHANGES: tuple[dict[str, str | None], ...] = (
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "compact"},
    {"cleanup.policy": "compact,delete", "retention.bytes": "1500"},
    {"cleanup.policy": "delete", "retention.bytes": "2500"},
    {"internal.segment.bytes": "300"},
    {"internal.segment.bytes": "2000"},
    {"delete.retention.ms": "0"},
    {"min.compaction.lag.ms": "100"},
    {"min.compaction.lag.ms": None},
    {"segment.ms": "50"},
    {"cleanup.policy": "compact,delete", "retention.ms": "1000", "retention.bytes": "-1"},
    {"cleanup.policy": "delete", "retention.ms": "1000", "retention.bytes": "-1"},
)
# Settings with ages.
_AGES = ("retention.ms", "min.compaction.lag.ms", "segment.ms")
# Sequences of operations that rarely occur by chance, with the pauses between them.
EPISODES: tuple[tuple[tuple[str, int], ...], ...] = (
    # An epoch is to be known after the position at which a load begins.
    (
        ("kafka_publish", 60),
        ("kafka_bump", 60),
        ("kafka_roll", 60),
        ("unload", 150),
        ("kafka_bump", 40),
        ("kafka_publish", 60),
        ("kafka_clean", 200),
        ("kill_broker", 100),
        ("kafka_publish", 60),
        ("kafka_resend", 60),
    ),
    # Cleanings and retention at the exact millisecond.
    (
        ("kafka_config", 40),
        ("kafka_publish", 60),
        ("kafka_roll", 60),
        ("kafka_publish", 60),
        ("kafka_boundary", 150),
        ("kafka_boundary", 150),
        ("kafka_read", 40),
    ),
    # A decided transaction stays decided, whatever a cleaning removes.
    (
        ("kafka_publish", 40),
        ("kafka_publish", 40),
        ("kafka_roll", 40),
        ("kafka_clean", 200),
        ("kafka_read", 20),
        ("pass_time", 20),
        ("kafka_publish", 40),
        ("kafka_roll", 40),
        ("kafka_clean", 200),
        ("unload", 100),
        ("kafka_read", 40),
    ),
)


def _ask(actors: Actors, what: str, work: Callable[[Broker], Awaitable[object]]) -> None:
    async def ask() -> None:
        try:
            told = await call(actors.world, work)
            actors.world.note(f"{what}: {told or 'done'!s:.150}")
        except LedgerfoldError as error:
            actors.world.note(f"{what}: {error!r:.110}")

    actors.world.note(what)
    actors.world.caller(ask())


@operation
def kafka_publish(actors: Actors, random: Random) -> None:
    world = actors.world
    live = [each for each in actors.kafka_producers if not each.is_over]
    if (len(live) < PRODUCERS_MAX and random.random() < 0.4) or not live:
        number = len(actors.kafka_producers) + 1
        kind = random.randrange(4)
        live.append(
            KafkaProducer(
                world,
                actors.topic(random),
                number,
                is_plain=kind == 0,
                is_transactional=kind == 1,
            )
        )
        actors.kafka_producers.append(live[-1])
    random.choice(live).publish(random, random.choice((1, 2, 4, 8)))


@operation
def kafka_bump(actors: Actors, random: Random) -> None:
    """Another instance of a producer begins, and gets its id in the next epoch."""
    live = [each for each in actors.kafka_producers if each.may_be_bumped]
    if live:
        older = random.choice(live)
        actors.world.note(f"producer {older.label} is followed by another instance")
        newer = older.bump()
        actors.kafka_producers.append(newer)
        if random.random() < 0.7:
            newer.publish(random, random.choice((1, 2)))
        # It does not know yet.
        if random.random() < 0.7:
            older.publish(random, random.choice((1, 2)))


@operation
def kafka_resend(actors: Actors, random: Random) -> None:
    """A producer resends acknowledged batches."""
    live = [each for each in actors.kafka_producers if each.is_idle and not each.is_over]
    if not live:
        return
    producer, count = random.choice(live), random.choice((1, 2, 5))
    _ask(actors, f"{producer.label} sends again", lambda broker: producer.send_again(broker, count))


@operation
def kafka_boundary(actors: Actors, random: Random) -> None:
    """An age limit is reached, or is missed by a millisecond; then the cleaner runs."""
    world, topic = actors.world, actors.topic(random)
    life = world.oracle.kafka.get(topic)
    if life is None or not life.at:
        return
    config = life.record.kafka.config
    times = sorted({each.timestamp_ms for each in life.at.values()})
    limits = [int(config[each]) for each in _AGES if each in config]
    due = [time_ms + limit for time_ms in times for limit in limits]
    due += [each.time_ms + each.delete_retention_ms for each in life.rounds[-2:]]
    ends = _ends_of_retention(life) if random.random() < 0.5 else []
    due = [each for each in ends if each > world.clock.now_ms() + 1] or due
    due = sorted({each for each in due if each > world.clock.now_ms() + 1})
    if due:
        stop_clock(world, random.choice(due[:4]) + random.choice((-1, 0, 0, 1, 1)))

        async def look(broker: Broker) -> object:
            loaded = await broker.kafka_topic(topic, to_write=True)
            if random.random() < 0.5:
                await loaded.roll()
            await broker.cleaner.retain()
            turn = await broker.cleaner.run_pass(topic)
            world.loop.let_go()
            return turn.deleted_segments

        _ask(actors, "boundary", look)


def _ends_of_retention(life: KafkaLife) -> list[int]:
    """Returns when retention.ms ends for each segment that is not the last."""
    log = life.record.kafka
    limit_ms = int(log.config.get("retention.ms", "-1"))
    if limit_ms < 0:
        return []
    youngest = [
        max((life.at[at].timestamp_ms for at in life.at if begin <= at < end), default=0)
        for begin, end in pairwise(each.base_offset for each in log.segments)
    ]
    return [each + limit_ms for each in youngest]


@operation
def kafka_read(actors: Actors, random: Random) -> None:
    world, topic = actors.world, actors.topic(random)
    life = world.oracle.kafka.get(topic)
    start = None
    if life is not None and life.at and random.random() < 0.6:
        start = random.choice(sorted(life.at))
    committed = random.random() < 0.4

    async def read() -> None:
        told = await read_once(world, topic, start, committed=committed, pauses=random)
        world.note(f"a reader from {start}: {told or 'to the end'}")

    world.caller(read())


@operation
def kafka_roll(actors: Actors, random: Random) -> None:
    topic = actors.topic(random)

    async def roll(broker: Broker) -> object:
        return await (await broker.kafka_topic(topic, to_write=True)).roll()

    _ask(actors, "roll", roll)


@operation
def kafka_clean(actors: Actors, random: Random) -> None:
    topic, rolls = actors.topic(random), random.random() < 0.5

    async def clean(broker: Broker) -> object:
        loaded = await broker.kafka_topic(topic, to_write=True)
        if rolls:
            await loaded.roll()
        turn = await broker.cleaner.run_pass(topic)
        ended = turn.failure or ("aborted" if turn.was_aborted else turn.outcome is not None)
        return f"{turn.topic is not None} {ended!r}"

    _ask(actors, "clean", clean)


@operation
def kafka_retain(actors: Actors, random: Random) -> None:
    async def retain(broker: Broker) -> object:
        return await broker.cleaner.retain()

    _ask(actors, "retain", retain)


@operation
def kafka_config(actors: Actors, random: Random) -> None:
    topic, changes = actors.topic(random), random.choice(_CHANGES)
    oracle = actors.world.oracle

    async def change(broker: Broker) -> None:
        loaded = await broker.kafka_topic(topic)
        life = oracle.kafka.get(topic)
        if life is None:
            raise TopicNotFound(topic)
        with life.changing_settings(oracle.now_ms):
            await change_topic_config(broker, loaded, changes)

    _ask(actors, f"config {changes}", change)


@operation
def kafka_log_start(actors: Actors, random: Random) -> None:
    topic = actors.topic(random)
    life = actors.world.oracle.kafka.get(topic)
    offset = random.choice(sorted(life.at)) if life is not None and life.at else 0

    async def move(broker: Broker) -> object:
        loaded = await broker.kafka_topic(topic, to_write=True)
        return await loaded.partition.set_log_start(offset)

    if life is not None:
        life.starts_asked.append(offset)
    _ask(actors, f"log start {offset}", move)


@operation
def kafka_truncate(actors: Actors, random: Random) -> None:
    """Truncates to a reported offset, usually near the log's end."""
    topic = actors.topic(random)
    life = actors.world.oracle.kafka.get(topic)
    known = sorted(life.at) if life is not None else []
    offset = random.choice(known[-random.choice((3, 10, 100)) :]) if known else 0

    async def truncate(broker: Broker) -> object:
        return await truncate_log(broker, topic, offset)

    _ask(actors, f"truncate to {offset}", truncate)


@operation
def kafka_pause(actors: Actors, random: Random) -> None:
    """Pauses: the cleaning in progress is aborted."""
    topic = actors.topic(random)

    async def pause(broker: Broker) -> None:
        await broker.cleaner.abort_and_pause(topic)
        broker.cleaner.resume(topic)

    _ask(actors, "pause", pause)


async def check_retained(actors: Actors) -> None:
    """Checks that the cleaner's next pass deletes the segments outside retention of a free log."""
    world = actors.world
    for name, life in sorted(world.oracle.kafka.items()):
        left = 0
        for _ in range(_TRIES_MAX):
            world.loop.hold(_HELD_STEPS)
            is_free = await call(world, partial(_retain, name=name))
            is_same = world.oracle.kafka.get(name) is life
            left = world.oracle.may_retain(life) if is_free and is_same else 0
            world.loop.let_go()
            if not left:
                break
            await asyncio.sleep(1)
        if left:
            world.oracle.fail(f"{left} segments of {name} are kept, and nothing keeps them")


async def _retain(broker: Broker, name: str) -> bool:
    """Returns whether deletion may affect it: it is loaded, and neither uncleanable nor paused."""
    await broker.cleaner.retain()
    await broker.cleaner.run_pass()
    is_given_up = broker.cleaner.states.is_uncleanable(name)
    is_paused = isinstance(broker.cleaner.states.of(name), Paused)
    return name in broker.partitions_of_kafka() and not (is_given_up or is_paused)


async def rest(actors: Actors) -> None:
    """Stops running passes, and waits until none is in progress."""
    broker = actors.world.broker
    if broker is not None:
        await call(actors.world, lambda broker: broker.cleaner.stop())


async def look(actors: Actors, random: Random) -> None:
    """Reads everything with each kind of reader."""
    for topic in sorted(actors.world.oracle.kafka):
        for committed in (False, True):
            await _read_all(actors.world, topic, random, committed=committed)


async def _read_all(world: World, topic: str, random: Random, *, committed: bool) -> None:
    """Reads everything from the start: it ends in time, because nothing is appended.

    An administrator's call may unload the topic meanwhile, or retention overtake it: read_once()
    has checked that the refusal is right.
    """
    for _ in range(_TRIES_MAX):
        told = await read_once(world, topic, None, committed=committed, pauses=random)
        if not told or topic not in world.oracle.kafka:
            return
        if told.startswith("DiskFailure"):
            # The store refuses writes for this time after a failure, and a load needs one.
            await asyncio.sleep(RETRY_S)
        elif not told.startswith(("Moved", "KafkaError('Received request for offset")):
            break
    world.oracle.fail(f"the last reader of {topic} ends with {told}")
