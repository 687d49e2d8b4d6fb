"""Operations on a Kafka topic (tests/simulation/kafka_clients.py), and how its scenario ends."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ledgerfold.broker.topics.kafka_settings import change_topic_config
from ledgerfold.broker.topics.kafka_truncation import truncate_log
from ledgerfold.storage.errors import LedgerfoldError
from tests.simulation.connections import call
from tests.simulation.kafka_clients import KafkaProducer, read_once
from tests.simulation.operation import operation

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ledgerfold.broker.topics.broker import Broker
    from tests.simulation.actors import Actors
    from tests.simulation.world import World

WEIGHTS = {
    "publish": 0,
    "kafka_publish": 30,
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
    ("fail_call", "kafka_clean", "unload", "fill_disk"),
    ("lose_power", "kafka_roll", "slow_call"),
)
PRODUCERS_MAX = 4
# Of the last reader: two are seen, in one seed of some hundreds.
_TRIES_MAX = 10
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
)


def _ask(actors: Actors, what: str, work: Callable[[Broker], Awaitable[object]]) -> None:
    async def ask() -> None:
        try:
            told = await call(actors.world, work)
            actors.world.note(f"{what}: {told or 'done'!s:.150}")
        except LedgerfoldError as error:
            actors.world.note(f"{what}: {error!r:.110}")

    actors.world.note(what)
    actors.world.client(ask())


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

    world.client(read())


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

    async def change(broker: Broker) -> None:
        await change_topic_config(broker, await broker.kafka_topic(topic), changes)

    _ask(actors, f"config {changes}", change)


@operation
def kafka_log_start(actors: Actors, random: Random) -> None:
    topic = actors.topic(random)
    life = actors.world.oracle.kafka.get(topic)
    offset = random.choice(sorted(life.at)) if life is not None and life.at else 0

    async def move(broker: Broker) -> object:
        return await (await broker.kafka_topic(topic, to_write=True)).set_log_start(offset)

    _ask(actors, f"log start {offset}", move)


@operation
def kafka_truncate(actors: Actors, random: Random) -> None:
    """To what somebody was told of, mostly near the log's end."""
    topic = actors.topic(random)
    life = actors.world.oracle.kafka.get(topic)
    known = sorted(life.at) if life is not None else []
    offset = random.choice(known[-random.choice((3, 10, 100)) :]) if known else 0

    async def truncate(broker: Broker) -> object:
        return await truncate_log(broker, topic, offset)

    _ask(actors, f"truncate to {offset}", truncate)


@operation
def kafka_pause(actors: Actors, random: Random) -> None:
    """The round that is on its way is aborted."""
    topic = actors.topic(random)

    async def pause(broker: Broker) -> None:
        await broker.cleaner.abort_and_pause(topic)
        broker.cleaner.resume(topic)

    _ask(actors, "pause", pause)


async def rest(actors: Actors) -> None:
    """No turn is taken any more, and none is on its way."""
    broker = actors.world.broker
    if broker is not None:
        await call(actors.world, lambda broker: broker.cleaner.stop())


async def look(actors: Actors, random: Random) -> None:
    """Everything that is there is read, by each kind of reader."""
    for topic in sorted(actors.world.oracle.kafka):
        for committed in (False, True):
            await _read_all(actors.world, topic, random, committed=committed)


async def _read_all(world: World, topic: str, random: Random, *, committed: bool) -> None:
    """A reader that begins anew ends in time: nothing is appended, and little is on its way.

    An administrator's call unloads the topic under it, or retention overtakes it: that its refusal
    is right read_once() has seen.
    """
    for _ in range(_TRIES_MAX):
        told = await read_once(world, topic, None, committed=committed, pauses=random)
        if not told or topic not in world.oracle.kafka:
            return
        if not told.startswith(("Moved", "KafkaError('Received request for offset")):
            break
    world.oracle.fail(f"the last reader of {topic} ends with {told}")
