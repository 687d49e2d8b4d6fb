"""What operations share: their table, and calls of administration.

An operation begins something and does not wait for its end; whatever it needs and is not there (a
reader that was not opened, a broker that is down) makes it do nothing. So any of them can be left
out, and a failure can be shrunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.rpc import subscribe as subscribe_rpc
from ledgerfold.broker.rpc.admin import admin_calls
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.entry import Position
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.v1 import data_pb2
from tests.simulation.connections import call
from tests.simulation.readers import start_at

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
    """Readers of compacted data may miss something by rule."""
    known = actors.world.oracle.topics.get(topic)
    if known is not None:
        known.takings += 1


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
        await subscribe_rpc.seek(broker, request)
        sub.end_move(position)
        ended.append(position)

    try:
        await call(world, serve)
    except LedgerfoldError as error:
        world.note(f"seek: {error!r:.110}")
    if not ended:
        sub.end_move(None)


def ask_admin(
    actors: Actors, what: str, method: str, request: Any, calls: Calls = admin_calls
) -> None:
    """A unary call, of AdminService mostly; what it is answered goes into the trace."""

    async def ask() -> None:
        async def serve(broker: Broker) -> Any:
            return await calls(broker)[method](request)

        try:
            await call(actors.world, serve)
            actors.world.note(f"{what}: done")
        except LedgerfoldError as error:
            actors.world.note(f"{what}: {error!r:.110}")

    actors.world.note(what)
    actors.world.client(ask())
