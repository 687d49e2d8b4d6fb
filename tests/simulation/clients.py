"""Operations of clients: publishing, reading, consuming."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from ledgerfold.broker.rpc.data import data_calls
from ledgerfold.storage.entry import EARLIEST, LATEST
from ledgerfold.v1 import admin_pb2, data_pb2
from tests.simulation.operation import ask_admin, operation, order_of, seek
from tests.simulation.subscriptions import Order

if TYPE_CHECKING:
    from tests.simulation.actors import Actors


@operation
def publish(actors: Actors, random: Random) -> None:
    actors.publisher(random).publish(random, random.choice((1, 1, 2, 3, 5, 8)))


@operation
def reconnect(actors: Actors, random: Random) -> None:
    actors.publisher(random).cut(late=random.random() < 0.5)


@operation
def resend(actors: Actors, random: Random) -> None:
    """Sends an acknowledged message again."""
    actors.publisher(random).resend(random.choice((1, 2, 5, 12)))


@operation
def leave(actors: Actors, random: Random) -> None:
    """A publisher leaves, perhaps for long."""
    actors.publisher(random).leave()


@operation
def stand_behind(actors: Actors, random: Random) -> None:
    """A reader reads one entry near the end of the log, and no other for a while."""
    topic = actors.topic(random)
    known = actors.world.oracle.topics.get(topic)
    places = sorted(known.at) if known is not None else []
    if places:
        start = places[-min(len(places), random.choice((1, 2, 2, 3, 5)))]
        reader = actors.open_reader(topic, start, read_compacted=random.random() < 0.8)
        reader.permit(1)


@operation
def stand_at_end(actors: Actors, random: Random) -> None:
    """A reader of compacted data that has read everything, and reads no new messages."""
    topic = actors.topic(random)
    known = actors.world.oracle.topics.get(topic)
    if known is not None and known.at:
        reader = actors.open_reader(topic, EARLIEST, read_compacted=True)
        reader.permit(sum(len(each.rows) for each in known.at.values()))


@operation
def delete_seen(actors: Actors, random: Random) -> None:
    """Deletes keys whose values some reader of compacted data has read."""
    for reader in reversed(actors.readers):
        keys = [key for key, (_, has_value) in reader.seen.keys.items() if has_value]
        if reader.read_compacted and keys:
            publisher = actors.publisher(random)
            publisher.delete(random, random.sample(keys, min(len(keys), random.choice((1, 2, 4)))))
            return


@operation
def follow_view(actors: Actors, random: Random) -> None:
    """A reader of the view reads some of it, and continues later."""
    reader = actors.open_reader(actors.topic(random), EARLIEST, read_compacted=True)
    reader.permit(random.choice((1, 1, 2, 3)))


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
    actors.world.caller(seek(actors.world, topic, name, position))


@operation
def unsubscribe(actors: Actors, random: Random) -> None:
    name, force = f"s{random.randrange(2)}", random.random() < 0.5
    request = data_pb2.UnsubscribeRequest(
        topic=actors.topic(random), subscription=name, force=force
    )
    ask_admin(actors, "unsubscribe", "Unsubscribe", request, data_calls)


@operation
def pass_over(actors: Actors, random: Random) -> None:
    """Skips entries, or clears the backlog."""
    topic, name = actors.topic(random), f"s{random.randrange(2)}"
    if random.random() < 0.6:
        count = random.choice((1, 2, 3))
        ended = order_of(actors, topic, Order(name, entries=count))
        skip = admin_pb2.SkipMessagesRequest(topic=topic, subscription=name, entries=count)
        ask_admin(actors, f"skip {count}", "SkipMessages", skip, ended=ended)
    else:
        _clear(actors, topic, name)


@operation
def clear_all(actors: Actors, random: Random) -> None:
    """Every subscription of a topic passes all messages."""
    topic = actors.topic(random)
    known = actors.world.oracle.topics.get(topic)
    for name in known.subscriptions if known is not None else ():
        _clear(actors, topic, name)


def _clear(actors: Actors, topic: str, name: str) -> None:
    ended = order_of(actors, topic, Order(name))
    clear = admin_pb2.ClearBacklogRequest(topic=topic, subscription=name)
    ask_admin(actors, "clear", "ClearBacklog", clear, ended=ended)
