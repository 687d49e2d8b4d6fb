"""The common parts of operations: their table, and administrative calls.

An operation begins something and does not wait for its end; if something that it needs is missing
(a reader that was not opened, a broker that is down), it does nothing. So any of them can be
omitted, and a failure can be minimized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.rpc import subscribe as subscribe_rpc
from ledgerfold.broker.rpc.admin import admin_calls
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import DiskFailure, LedgerfoldError
from ledgerfold.v1 import admin_pb2, data_pb2
from tests.simulation.connections import call
from tests.simulation.readers import start_at
from tests.simulation.subscriptions import Move, Order

if TYPE_CHECKING:
    from tests.simulation.actors import Actors
    from tests.simulation.world import World

Operation = Callable[["Actors", Random], None]
Calls = Callable[[Broker], Mapping[str, Any]]
OPERATIONS: dict[str, Operation] = {}


def operation(function: Operation) -> Operation:
    OPERATIONS[function.__name__] = function
    return function


def take_away(actors: Actors, topic: str) -> None:
    """Readers of compacted data may miss entries by rule."""
    known = actors.world.oracle.topics.get(topic)
    if known is not None:
        known.takings += 1


def order_of(actors: Actors, topic: str, order: Order) -> Callable[[], None]:
    """Entries may be passed over because of it from now on; the result is called when it has
    ended.
    """
    oracle = actors.world.oracle
    on_their_way = oracle.orders.setdefault(topic, [])
    on_their_way.append(order)
    known = oracle.topics.get(topic)
    if known is not None:
        known.orders.append(order)

    def ended() -> None:
        on_their_way.remove(order)
        # It may have found another topic of the name.
        life = oracle.topics.get(topic, known)
        if life is not None:
            oracle.end_order(life, order)

    return ended


def begin_truncation(actors: Actors, asked: str, topics: Iterable[str] = ()) -> None:
    """`topics`: whose entries are deleted; the requested one by default."""
    oracle, names = actors.world.oracle, tuple(topics) or (asked,)
    ends = []
    for name in names:
        oracle.truncating[name] += 1
        oracle.ever_truncated.add(name)
        ends.append(order_of(actors, name, Order()))
        take_away(actors, name)

    def ended() -> None:
        for name, end in zip(names, ends, strict=True):
            oracle.truncating[name] -= 1
            end()

    request = admin_pb2.TruncateTopicRequest(topic=asked)
    ask_admin(actors, "truncate", "TruncateTopic", request, ended=ended)


async def seek(world: World, topic: str, name: str, position: Position) -> None:
    """Moves a subscription; earlier acknowledgements are invalid from then on."""
    oracle = world.oracle
    known = oracle.topics.get(topic)
    sub = known.subscriptions.get(name) if known is not None else None
    if sub is None:
        return
    world.note(f"{name} is moved to {position}")
    start = start_at(position, inclusive=True)
    request = data_pb2.SeekRequest(topic=topic, subscription=name, start=start)
    move, moves = Move(position), oracle.moves.setdefault((topic, name), [])
    moves.append(move)
    move.may_find(sub)

    moves_before = sub.moves

    async def serve(broker: Broker) -> None:
        loaded = broker.topics.get(topic)
        found = loaded.subscriptions.get(name) if loaded is not None else None
        incarnation = found.incarnation if found is not None else 0
        try:
            answer = await subscribe_rpc.seek(broker, request)
        except DiskFailure:
            is_only = sub.moves == moves_before and sub.is_moving == 1
            if found is not None and is_only and found.incarnation != incarnation:
                oracle.fail(f"the seek of {name} to {position} failed, and has moved it")
            raise
        # The topic may have been deleted and recreated meanwhile.
        life = oracle.topics.get(topic)
        record = life.cursors.get(name) if life is not None else None
        if record is not None and record.incarnation < answer.incarnation:
            oracle.fail(f"{name} is said to have moved to {position}, and no record tells")

    try:
        await call(world, serve)
    except LedgerfoldError as error:
        world.note(f"seek: {error!r:.110}")
    finally:
        moves.remove(move)
        move.end()


def ask_admin(
    actors: Actors,
    what: str,
    method: str,
    request: Any,
    calls: Calls = admin_calls,
    ended: Callable[[], None] = lambda: None,
) -> None:
    """A unary call, usually of AdminService; its answer is added to the trace.

    `ended`: called when there is an answer, or will never be one.
    """

    async def ask() -> None:
        async def serve(broker: Broker) -> Any:
            return await calls(broker)[method](request)

        try:
            await call(actors.world, serve)
            actors.world.note(f"{what}: done")
        except LedgerfoldError as error:
            actors.world.note(f"{what}: {error!r:.110}")
        finally:
            ended()

    actors.world.note(what)
    actors.world.caller(ask())
