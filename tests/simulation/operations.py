"""What happens in a scenario, by name: each operation is a function of the world and its numbers.

An operation begins something and does not wait for its end; whatever it needs and is not there (a
reader that was not opened, a broker that is down) makes it do nothing. So any of them can be left
out, and a failure can be shrunk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from ledgerfold.v1 import admin_pb2

from broker.broker import Broker
from broker.rpc.admin import AdminService
from storage.entry import EARLIEST, LATEST
from storage.errors import LedgerfoldError
from tests.simulation.connections import call
from tests.simulation.disk import Fault

if TYPE_CHECKING:
    from tests.simulation.actors import Actors

Operation = Callable[["Actors", Random], None]
OPERATIONS: dict[str, Operation] = {}
_ERRORS = (errno.EIO, errno.EIO, errno.ENOSPC, errno.EMFILE)
_FAULTY = (
    frozenset({"sync"}),
    frozenset({"write"}),
    frozenset({"metadata"}),
    frozenset({"create", "make_dir"}),
    frozenset({"sync_dir"}),
    frozenset({"remove", "remove_dir"}),
    frozenset({"replace", "truncate", "copy"}),
    frozenset({"read", "open_read", "map", "listdir"}),
)


def operation(function: Operation) -> Operation:
    OPERATIONS[function.__name__] = function
    return function


# Publishing


@operation
def publish(actors: Actors, random: Random) -> None:
    actors.publisher(random).publish(random, random.choice((1, 1, 2, 3, 5, 8)))


@operation
def reconnect(actors: Actors, random: Random) -> None:
    actors.publisher(random).cut(late=random.random() < 0.5)


# Reading


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


# Administration


@operation
def compact(actors: Actors, random: Random) -> None:
    request = admin_pb2.TriggerCompactionRequest(topic=actors.topic(random))
    _ask(actors, "compact", AdminService.TriggerCompaction, request)


@operation
def cancel(actors: Actors, random: Random) -> None:
    request = admin_pb2.CancelCompactionRequest(topic=actors.topic(random))
    _ask(actors, "cancel", AdminService.CancelCompaction, request)


@operation
def kill_worker(actors: Actors, random: Random) -> None:
    compactor = actors.world.compactor
    if compactor is not None and compactor.is_running:
        late = random.choice((0, 1, 3, 10, 40))
        actors.world.note(f"the worker is killed, and late by {late} calls")
        compactor.kill(late)


@operation
def unload(actors: Actors, random: Random) -> None:
    request = admin_pb2.UnloadTopicRequest(topic=actors.topic(random))
    _ask(actors, "unload", AdminService.UnloadTopic, request)


@operation
def trim(actors: Actors, random: Random) -> None:
    request = admin_pb2.TrimTopicRequest(topic=actors.topic(random))
    _ask(actors, "trim", AdminService.TrimTopic, request)


@operation
def stats(actors: Actors, random: Random) -> None:
    request = admin_pb2.GetTopicInternalStatsRequest(topic=actors.topic(random))
    _ask(actors, "stats", AdminService.GetTopicInternalStats, request)


# The machine


@operation
def kill_broker(actors: Actors, random: Random) -> None:
    """kill -9, a little later."""
    actors.world.crash(power=False, calls=random.choice((0, 1, 2, 5, 10, 20, 40)))


@operation
def lose_power(actors: Actors, random: Random) -> None:
    actors.world.crash(power=True, calls=random.choice((0, 1, 2, 5, 10, 20, 40)))


@operation
def restart(actors: Actors, random: Random) -> None:
    actors.world.client(actors.world.stop())


@operation
def fail_call(actors: Actors, random: Random) -> None:
    """One call of the disk, soon."""
    fault = Fault(
        random.choice(_FAULTY), random.choice((1, 1, 2, 3, 5, 10)), random.choice(_ERRORS)
    )
    actors.world.disk.faults.append(fault)


@operation
def slow_call(actors: Actors, random: Random) -> None:
    operations = random.choice(
        (frozenset({"sync"}), frozenset({"metadata"}), frozenset({"read"}), *_FAULTY)
    )
    delay_s = random.choice((0.05, 0.5, 5.0))
    actors.world.disk.faults.append(Fault(operations, random.choice((1, 2, 4)), 0, delay_s))


@operation
def fill_disk(actors: Actors, random: Random) -> None:
    """And it is emptied some time later."""
    world = actors.world
    world.disk.is_full = True
    world.note("the disk is full")
    delay_s = random.choice((0.05, 0.5, 3.0))

    def free() -> None:
        if world.disk.is_full:
            world.disk.is_full = False
            world.note("the disk has room again")

    world.loop.call_later(delay_s, free)


def _ask(actors: Actors, what: str, method: Any, request: Any) -> None:
    """A unary call of AdminService; what it is answered goes into the trace."""

    async def ask() -> None:
        async def serve(broker: Broker) -> Any:
            return await method.__wrapped__(AdminService(broker), request, None)

        try:
            await call(actors.world, serve)
            actors.world.note(f"{what}: done")
        except LedgerfoldError as error:
            actors.world.note(f"{what}: {error!r:.110}")

    actors.world.note(what)
    actors.world.client(ask())
