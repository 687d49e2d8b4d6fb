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

from ledgerfold.v1 import admin_pb2, data_pb2
from ledgerfold.v1.records_pb2 import Policies

from broker.broker import Broker
from broker.rpc import subscribe as subscribe_rpc
from broker.rpc.admin import AdminService
from storage.entry import EARLIEST, LATEST, Position
from storage.errors import LedgerfoldError
from tests.simulation.connections import call
from tests.simulation.disk import DATA, Fault, File, Folder
from tests.simulation.readers import start_at

if TYPE_CHECKING:
    from tests.simulation.actors import Actors
    from tests.simulation.world import World

_SEEK = subscribe_rpc.seek.__wrapped__  # type: ignore[attr-defined]
_UNSUBSCRIBE = subscribe_rpc.unsubscribe.__wrapped__  # type: ignore[attr-defined]
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
    frozenset({"read", "open_read", "open_append", "map", "listdir"}),
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


# Consuming


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
    _ask(actors, "unsubscribe", _UNSUBSCRIBE, request, of_broker=True)


@operation
def pass_over(actors: Actors, random: Random) -> None:
    """Skip, or clear the backlog."""
    topic, name = actors.topic(random), f"s{random.randrange(2)}"
    make_vague(actors, topic, name)
    if random.random() < 0.5:
        skip = admin_pb2.SkipMessagesRequest(topic=topic, subscription=name, entries=2)
        _ask(actors, "skip", AdminService.SkipMessages, skip)
    else:
        clear = admin_pb2.ClearBacklogRequest(topic=topic, subscription=name)
        _ask(actors, "clear", AdminService.ClearBacklog, clear)


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


@operation
def truncate(actors: Actors, random: Random) -> None:
    topic = actors.topic(random)
    make_vague(actors, topic)
    known = actors.world.oracle.topics.get(topic)
    if known is not None:
        known.truncations += 1
        known.takings += 1
    _ask(
        actors, "truncate", AdminService.TruncateTopic, admin_pb2.TruncateTopicRequest(topic=topic)
    )


@operation
def expire(actors: Actors, random: Random) -> None:
    topic = actors.topic(random)
    make_vague(actors, topic)
    request = admin_pb2.ExpireMessagesRequest(topic=topic, older_than_ms=random.choice((1, 500)))
    _ask(actors, "expire", AdminService.ExpireMessages, request)


@operation
def disable_compaction(actors: Actors, random: Random) -> None:
    topic = actors.topic(random)
    known = actors.world.oracle.topics.get(topic)
    if known is not None:
        known.takings += 1
    request = data_pb2.UnsubscribeRequest(topic=topic, subscription="__compaction")
    _ask(actors, "disable compaction", _UNSUBSCRIBE, request, of_broker=True)


@operation
def set_policies(actors: Actors, random: Random) -> None:
    topic = actors.topic(random)
    policies = random.choice(
        (
            Policies(compaction_threshold_bytes=random.choice((0, 300, 1000))),
            Policies(retain_null_key=random.random() < 0.5),
            Policies(message_ttl_ms=500),
            Policies(retention_ms=random.choice((0, 1000, -1)), retention_bytes=-1),
        )
    )
    if policies.message_ttl_ms:
        make_vague(actors, topic)
    scope = admin_pb2.PolicyScope(topic=topic)
    request = admin_pb2.UpdatePoliciesRequest(scope=scope, set=policies)
    _ask(actors, "set policies", AdminService.UpdatePolicies, request)


@operation
def terminate(actors: Actors, random: Random) -> None:
    request = admin_pb2.TerminateTopicRequest(topic=actors.topic(random))
    _ask(actors, "terminate", AdminService.TerminateTopic, request)


@operation
def delete_topic(actors: Actors, random: Random) -> None:
    force = random.random() < 0.8
    request = admin_pb2.DeleteTopicRequest(topic=actors.topic(random), force=force)
    _ask(actors, "delete", AdminService.DeleteTopic, request)


@operation
def pass_time(actors: Actors, random: Random) -> None:
    actors.world.loop.advance(random.choice((1.0, 130.0, 15_000.0)))


# The machine


@operation
def flip_bit(actors: Actors, random: Random) -> None:
    """Somewhere in a segment, open or sealed; the more to the end, the likelier."""
    disk, folder = actors.world.disk, actors.world.disk.find(DATA / "ledgers")
    paths = [
        DATA / "ledgers" / ledger / name
        for ledger, node in sorted(folder.names.items() if isinstance(folder, Folder) else ())
        for name, file in sorted(node.names.items() if isinstance(node, Folder) else ())
        if name.endswith(".log") and isinstance(file, File) and file.data
    ]
    if paths:
        path = paths[-1 - int(len(paths) * random.random() ** 2)]
        at = random.randrange(len(disk.file(path).data))
        disk.damage(path, at, random.randrange(8))
        actors.world.note(f"a bit flips in {path.parent.name}/{path.name} at {at}")


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


def make_vague(actors: Actors, topic: str, name: str = "") -> None:
    """What this subscription, or all, must get is not known any more."""
    actors.world.oracle.passed_over.add((topic, name))


async def seek(world: World, topic: str, name: str, position: Position) -> None:
    """Moves a subscription; what was acknowledged before is void from then on."""
    known = world.oracle.topics.get(topic)
    sub = known.subscriptions.get(name) if known is not None else None
    if sub is None:
        return
    world.note(f"{name} is moved to {position}")
    start = start_at(position, inclusive=True)
    request = data_pb2.SeekRequest(topic=topic, subscription=name, start=start)
    ended: list[Position] = []
    sub.begin_move()

    async def serve(broker: Broker) -> None:
        await _SEEK(broker, request, None)
        sub.end_move(position)
        ended.append(position)

    try:
        await call(world, serve)
    except LedgerfoldError as error:
        world.note(f"seek: {error!r:.110}")
    if not ended:
        sub.end_move(None)


def _ask(actors: Actors, what: str, method: Any, request: Any, *, of_broker: bool = False) -> None:
    """A unary call of AdminService; what it is answered goes into the trace."""

    async def ask() -> None:
        async def serve(broker: Broker) -> Any:
            if of_broker:
                return await method(broker, request, None)
            return await method.__wrapped__(AdminService(broker), request, None)

        try:
            await call(actors.world, serve)
            actors.world.note(f"{what}: done")
        except LedgerfoldError as error:
            actors.world.note(f"{what}: {error!r:.110}")

    actors.world.note(what)
    actors.world.client(ask())
