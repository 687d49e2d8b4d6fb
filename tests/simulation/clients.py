"""Operations of clients: publishing, reading, consuming."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ledgerfold.broker.rpc.data import data_calls
from ledgerfold.storage.entry import EARLIEST, LATEST
from ledgerfold.v1 import admin_pb2, data_pb2
from tests.simulation.operation import ask_admin, make_vague, operation, seek

if TYPE_CHECKING:
    from tests.simulation.actors import Actors


@operation
def publish(actors: Actors, random: Random) -> None:
    actors.publisher(random).publish(random, random.choice((1, 1, 2, 3, 5, 8)))


@operation
def reconnect(actors: Actors, random: Random) -> None:
    actors.publisher(random).cut(late=random.random() < 0.5)


@operation
def open_reader(actors: Actors, random: Random) -> None:
    topic = actors.topic(random)
    start = random.choice((EARLIEST, EARLIEST, LATEST, actors.some_position(random, topic)))
    read_compacted = random.random() < 0.65
    actors.open_reader(topic, start, read_compacted=read_compacted)


@operation
def permit(actors: Actors, random: Random) -> None:
    reader = actors.reader(random)
    if reader is not None:
        reader.permit(random.choice((1, 1, 2, 3, 10, 1000)))


@operation
def check(actors: Actors, random: Random) -> None:
    reader = actors.reader(random)
    if reader is not None:
        reader.check()


@operation
def seek_reader(actors: Actors, random: Random) -> None:
    reader = actors.reader(random)
    if reader is not None:
        reader.seek(random.choice((EARLIEST, actors.some_position(random, reader.topic_name))))


@operation
def cut_reader(actors: Actors, random: Random) -> None:
    reader = actors.reader(random)
    if reader is not None:
        reader.cut()


@operation
def close_reader(actors: Actors, random: Random) -> None:
    reader = actors.reader(random)
    if reader is not None:
        actors.readers.remove(reader)
        reader.close()


@operation
def open_consumer(actors: Actors, random: Random) -> None:
    actors.open_consumer(random)


@operation
def permit_consumer(actors: Actors, random: Random) -> None:
    consumer = actors.consumer(random)
    if consumer is not None:
        consumer.permit(random.choice((1, 2, 5, 20, 1000)))


@operation
def acknowledge(actors: Actors, random: Random) -> None:
    consumer = actors.consumer(random)
    if consumer is not None:
        consumer.acknowledge(random)


@operation
def redeliver(actors: Actors, random: Random) -> None:
    consumer = actors.consumer(random)
    if consumer is not None:
        consumer.redeliver(random)


@operation
def cut_consumer(actors: Actors, random: Random) -> None:
    consumer = actors.consumer(random)
    if consumer is not None:
        consumer.cut()


@operation
def close_consumer(actors: Actors, random: Random) -> None:
    consumer = actors.consumer(random)
    if consumer is not None:
        actors.consumers.remove(consumer)
        consumer.close()


@operation
def seek_subscription(actors: Actors, random: Random) -> None:
    topic, name = actors.topic(random), f"s{random.randrange(2)}"
    position = random.choice((EARLIEST, actors.some_position(random, topic)))
    actors.world.client(seek(actors.world, topic, name, position))


@operation
def unsubscribe(actors: Actors, random: Random) -> None:
    name, force = f"s{random.randrange(2)}", random.random() < 0.5
    request = data_pb2.UnsubscribeRequest(
        topic=actors.topic(random), subscription=name, force=force
    )
    ask_admin(actors, "unsubscribe", "Unsubscribe", request, data_calls)


@operation
def pass_over(actors: Actors, random: Random) -> None:
    """Skip, or clear the backlog."""
    topic, name = actors.topic(random), f"s{random.randrange(2)}"
    make_vague(actors, topic, name)
    if random.random() < 0.5:
        skip = admin_pb2.SkipMessagesRequest(topic=topic, subscription=name, entries=2)
        ask_admin(actors, "skip", "SkipMessages", skip)
    else:
        clear = admin_pb2.ClearBacklogRequest(topic=topic, subscription=name)
        ask_admin(actors, "clear", "ClearBacklog", clear)
