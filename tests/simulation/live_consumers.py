"""The messages owed to consumers that stay connected, once faults have stopped.

An answer for each acknowledgement that requested one; and, for a durable subscription, all
unacknowledged entries: each goes to one connected consumer, also entries that another one had.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ledgerfold.storage.entry import Position
from ledgerfold.v1.data_pb2 import SUBSCRIPTION_TYPE_KEY_SHARED as KEY_SHARED
from tests.simulation.subscriptions import Subscription, covers

if TYPE_CHECKING:
    from tests.simulation.actors import Actors
    from tests.simulation.consumers import Consumer
    from tests.simulation.life import Attempt, Topic
    from tests.simulation.oracle import Oracle

# Emulated: cursors are written, and retried, within a second.
_PATIENCE_S = 60.0
_PERMITS = 100_000


async def check_owed(actors: Actors) -> None:
    """Waits until they have received it. Nothing is promised if files were damaged."""
    world = actors.world
    if world.oracle.is_damaged:
        return
    for consumer in actors.consumers:
        consumer.permit(_PERMITS)
    end_s = world.loop.time() + _PATIENCE_S
    while why := _owed(actors):
        if world.loop.time() > end_s:
            world.oracle.fail(why)
            return
        await asyncio.sleep(0.2)


def _owed(actors: Actors) -> str:
    oracle = actors.world.oracle
    by_subscription: dict[tuple[str, str], list[Consumer]] = {}
    for each in actors.consumers:
        if each.is_connected and each.is_durable:
            if each.unanswered:
                return f"{each.name} has no answer for {each.unanswered} acknowledgements"
            by_subscription.setdefault((each.topic_name, each.subscription_name), []).append(each)
    for (name, subscription), consumers in by_subscription.items():
        missing = _missing(oracle, name, subscription, consumers)
        if missing:
            got = ", ".join(map(str, sorted(missing)))
            return f"no connected consumer of {subscription} gets {got}, which nobody acknowledged"
    return ""


def _missing(
    oracle: Oracle, name: str, subscription: str, consumers: list[Consumer]
) -> set[Position]:
    topic = oracle.topics.get(name)
    sub = topic.subscriptions.get(subscription) if topic is not None else None
    if topic is None or sub is None or sub.has_compacted or sub.is_moving:
        return set()
    got = {position for each in consumers for position in each.got_here}
    return _due(topic, sub) - got - _held_back(topic, sub, consumers)


def _held_back(topic: Topic, sub: Subscription, consumers: list[Consumer]) -> set[Position]:
    """Key_Shared: entries after an unacknowledged entry of the same key may belong to another
    consumer by now, which must wait for it. (Keys stand for their slots.)
    """
    record = topic.cursors.get(sub.name)
    if record is None or len(consumers) < 2 or any(each.type != KEY_SHARED for each in consumers):
        return set()
    held: dict[bytes, Position] = {}
    # A load leaves no consumer connected to the previous topic.
    able = [each for each in consumers if each.connected_ms >= topic.loaded_ms]
    for position in {position for each in able for position in each.got_here}:
        if position in topic.at and not covers(record, position):
            key = _key(topic.at[position])
            held[key] = min(position, held.get(key, position))
    return {at for at, attempt in topic.at.items() if at > held.get(_key(attempt), at)}


def _key(attempt: Attempt) -> bytes:
    """Returns the first message's key; messages without one are together."""
    return attempt.rows[0].key or b""


def _due(topic: Topic, sub: Subscription) -> set[Position]:
    record = topic.cursors.get(sub.name)
    if record is None:
        return set()
    return {
        position
        for attempt, position in topic.acked.items()
        if position is not None
        and not topic.is_gone(position)
        and sub.is_due(position, attempt.step)
        and not covers(record, position)
    }
