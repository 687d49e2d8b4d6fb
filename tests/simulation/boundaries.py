"""Operations that stop the clock, or set a limit, exactly when something becomes due, or one step
beside.

The clock stops until the resulting request has been answered, or for HELD_STEPS of the loop: so the
oracle knows the millisecond at which the broker decided (limits.py).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.rpc.admin import admin_calls
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.records_pb2 import LedgerRecord, Policies
from tests.simulation.connections import call
from tests.simulation.life import Topic
from tests.simulation.limits import AWAY_MS, due_times, size_of
from tests.simulation.operation import ask_admin, operation, order_of
from tests.simulation.subscriptions import Order

if TYPE_CHECKING:
    from ledgerfold.broker.topics.broker import Broker
    from tests.simulation.actors import Actors
    from tests.simulation.world import World

HELD_STEPS = 800


def stop_clock(world: World, at_ms: int) -> None:
    """Stops the clock at that millisecond, or now, if that is past."""
    world.loop.stop_at(world.clock.time_of(at_ms))
    world.loop.hold(HELD_STEPS)
    world.note(f"the clock stands at {at_ms}")


def ledgers_of(actors: Actors, topic: Topic) -> list[LedgerRecord]:
    found = [actors.world.oracle.ledger(each) for each in topic.record.ledger_ids]
    return [each for each in found if each is not None]


async def housekeep(world: World) -> None:
    """Runs housekeeping as the broker does periodically; the clock continues when it is done."""

    async def check(broker: Broker) -> None:
        await broker.housekeeping.check_all()

    try:
        await call(world, check)
    except LedgerfoldError as error:
        world.note(f"housekeeping: {error!r:.110}")
    world.loop.let_go()


@operation
def housekeeping(actors: Actors, random: Random) -> None:
    """Ledgers roll by age, messages expire, ledgers are deleted, producers are forgotten."""
    actors.world.caller(housekeep(actors.world))


@operation
def at_boundary(actors: Actors, random: Random) -> None:
    """Returns the next millisecond at which an age limit is reached, or one beside it."""
    world = actors.world
    topic = world.oracle.topics.get(actors.topic(random))
    if topic is None:
        return
    due = due_times(ledgers_of(actors, topic), world.oracle.policies_of(topic))
    ttl_ms = world.oracle.policies_of(topic).message_ttl_ms
    if ttl_ms > 0:
        due += [each.publish_time_ms + ttl_ms for each in topic.at.values()]
    due = sorted({each for each in due if each > world.clock.now_ms() + 1})
    if due:
        stop_clock(world, random.choice(due[:3]) + random.choice((-1, 0, 0, 1, 1)))
        world.caller(housekeep(world))


@operation
def grow_old(actors: Actors, random: Random) -> None:
    """Producers that left have been away for as long as they are remembered, or a little less."""
    world = actors.world
    topic = world.oracle.topics.get(actors.topic(random))
    if topic is None:
        return
    left = [at for name, at in topic.seen_ms.items() if name not in topic.connected]
    due = [each + AWAY_MS for each in left] + [topic.loaded_ms + AWAY_MS]
    due = sorted({each for each in due if each > world.clock.now_ms() + 2})
    if due:
        stop_clock(world, random.choice(due[-2:]) + random.choice((-2, 0, 1, 2, 1_000)))
        world.caller(housekeep(world))


@operation
def limit_exactly(actors: Actors, random: Random) -> None:
    """Retention keeps exactly the bytes of some ledgers, or one more or less."""
    world, name = actors.world, actors.topic(random)
    topic = world.oracle.topics.get(name)
    ledgers = ledgers_of(actors, topic) if topic is not None else []
    if not ledgers:
        return
    count = random.randrange(len(ledgers)) + 1
    size_bytes = sum(map(size_of, ledgers[:count])) + random.choice((-1, 0, 0, 1))
    if size_bytes <= 0:
        return
    policies = Policies(retention_ms=-1, retention_bytes=size_bytes)
    request = admin_pb2.UpdatePoliciesRequest(scope=admin_pb2.PolicyScope(topic=name), set=policies)
    ask_admin(actors, f"keep {size_bytes} bytes", "UpdatePolicies", request)


@operation
def limit_age(actors: Actors, random: Random) -> None:
    """Sets retention, or message TTL, by age alone: short enough to be reached."""
    name = actors.topic(random)
    policies = random.choice(
        (
            Policies(retention_ms=random.choice((300, 1_000)), retention_bytes=-1),
            Policies(retention_ms=random.choice((300, 1_000)), retention_bytes=-1),
            Policies(message_ttl_ms=random.choice((300, 1_000))),
        )
    )
    request = admin_pb2.UpdatePoliciesRequest(scope=admin_pb2.PolicyScope(topic=name), set=policies)
    ask_admin(actors, "limit age", "UpdatePolicies", request)


@operation
def expire_exactly(actors: Actors, random: Random) -> None:
    """Expires exactly at the age of some message, or one millisecond before or after."""
    world, name = actors.world, actors.topic(random)
    topic = world.oracle.topics.get(name)
    if topic is None or not topic.at:
        return
    age_ms = world.clock.now_ms() - random.choice(list(topic.at.values())).publish_time_ms
    limit_ms = age_ms + random.choice((-1, 0, 0, 1))
    if limit_ms < 1:
        return
    stop_clock(world, world.clock.now_ms())
    world.caller(_expire(actors, name, limit_ms))


async def _expire(actors: Actors, name: str, limit_ms: int) -> None:
    """Expires; each subscription must then be at its expected position, if nothing failed."""
    world = actors.world
    ended = order_of(actors, name, Order(limit_ms=limit_ms))
    request: Any = admin_pb2.ExpireMessagesRequest(topic=name, older_than_ms=limit_ms)
    now_ms, life = world.clock.now_ms(), world.oracle.topics.get(name)
    old = [] if life is None else world.oracle.expired(life, now_ms - limit_ms)

    async def serve(broker: Broker) -> None:
        await admin_calls(broker)["ExpireMessages"](request)
        topic = broker.topics.get(name)
        if topic is not None and world.oracle.topics.get(name) is life is not None:
            cursors = {each.name: each.cursor for each in topic.subscriptions.values()}
            if world.clock.now_ms() == now_ms:
                world.oracle.check_expired(life, old, cursors)

    try:
        await call(world, serve)
        world.note(f"expire {limit_ms}: done")
    except LedgerfoldError as error:
        world.note(f"expire {limit_ms}: {error!r:.110}")
    finally:
        ended()
        world.loop.let_go()
