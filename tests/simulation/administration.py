"""Operations of administrators: compacting, unloading, trimming, policies, deleting."""

from __future__ import annotations

import asyncio
from random import Random
from typing import TYPE_CHECKING

from ledgerfold.broker.rpc.data import data_calls
from ledgerfold.v1 import admin_pb2, data_pb2
from ledgerfold.v1.records_pb2 import CompactionStrategy, Policies
from tests.simulation.operation import (
    ask_admin,
    begin_truncation,
    operation,
    order_of,
    take_away,
)
from tests.simulation.publishers import VERSION
from tests.simulation.subscriptions import Order

if TYPE_CHECKING:
    from tests.simulation.actors import Actors
    from tests.simulation.world import World


# The strategies by which topics are compacted: the pure models support them
# (tests/model/choice_model.py).
STRATEGIES = (
    CompactionStrategy(name="publishing-order"),
    CompactionStrategy(name="event-time"),
    CompactionStrategy(name="keep-n", settings={"n": "2"}),
    CompactionStrategy(name="event-time-window", settings={"lag_ms": "500"}),
    CompactionStrategy(name="event-time-window", settings={"lag_ms": "60000"}),
    CompactionStrategy(name="newest"),
    CompactionStrategy(name="numeric"),
    CompactionStrategy(name="keep-first"),
    CompactionStrategy(name="header-version", settings={"property": VERSION}),
)


@operation
def compact(actors: Actors, random: Random) -> None:
    request = admin_pb2.TriggerCompactionRequest(topic=actors.topic(random))
    ask_admin(actors, "compact", "TriggerCompaction", request)


@operation
def cancel(actors: Actors, random: Random) -> None:
    request = admin_pb2.CancelCompactionRequest(topic=actors.topic(random))
    ask_admin(actors, "cancel", "CancelCompaction", request)


@operation
def kill_worker(actors: Actors, random: Random) -> None:
    """Kills the worker in the middle of the current run, or of the next one."""
    late, steps = random.choice((1, 3, 6, 10, 20, 40)), random.choice((0, 5, 20, 60))
    actors.world.client(_kill_worker(actors.world, late, steps))


async def _kill_worker(world: World, late: int, steps: int) -> None:
    for _ in range(300):
        if world.is_converging:
            return
        compactor = world.compactor
        if compactor is not None and compactor.is_running:
            if steps <= 0:
                world.note(f"the worker is killed, and late by {late} calls")
                compactor.kill(late)
                return
            steps -= 1
        await asyncio.sleep(0)


@operation
def unload(actors: Actors, random: Random) -> None:
    request = admin_pb2.UnloadTopicRequest(topic=actors.topic(random))
    ask_admin(actors, "unload", "UnloadTopic", request)


@operation
def trim(actors: Actors, random: Random) -> None:
    request = admin_pb2.TrimTopicRequest(topic=actors.topic(random))
    ask_admin(actors, "trim", "TrimTopic", request)


@operation
def stats(actors: Actors, random: Random) -> None:
    request = admin_pb2.GetTopicInternalStatsRequest(topic=actors.topic(random))
    ask_admin(actors, "stats", "GetTopicInternalStats", request)


@operation
def truncate(actors: Actors, random: Random) -> None:
    topic = actors.topic(random)
    begin_truncation(actors, topic)


@operation
def expire(actors: Actors, random: Random) -> None:
    topic, limit_ms = actors.topic(random), random.choice((1, 500))
    ended = order_of(actors, topic, Order(limit_ms=limit_ms))
    request = admin_pb2.ExpireMessagesRequest(topic=topic, older_than_ms=limit_ms)
    ask_admin(actors, "expire", "ExpireMessages", request, ended=ended)


@operation
def disable_compaction(actors: Actors, random: Random) -> None:
    topic = actors.topic(random)
    take_away(actors, topic)
    request = data_pb2.UnsubscribeRequest(topic=topic, subscription="__compaction")
    ask_admin(actors, "disable compaction", "Unsubscribe", request, data_calls)


@operation
def set_policies(actors: Actors, random: Random) -> None:
    topic = actors.topic(random)
    policies = random.choice(
        (
            Policies(compaction_threshold_bytes=random.choice((0, 300, 1000))),
            Policies(retain_null_key=random.random() < 0.5),
            Policies(message_ttl_ms=500),
            Policies(retention_ms=random.choice((0, 1000, -1)), retention_bytes=-1),
            Policies(compaction_strategy=random.choice(STRATEGIES)),
            Policies(compaction_strategy=random.choice(STRATEGIES)),
        )
    )
    scope = admin_pb2.PolicyScope(topic=topic)
    request = admin_pb2.UpdatePoliciesRequest(scope=scope, set=policies)
    ask_admin(actors, "set policies", "UpdatePolicies", request)


@operation
def terminate(actors: Actors, random: Random) -> None:
    request = admin_pb2.TerminateTopicRequest(topic=actors.topic(random))
    ask_admin(actors, "terminate", "TerminateTopic", request)


@operation
def delete_topic(actors: Actors, random: Random) -> None:
    force = random.random() < 0.8
    request = admin_pb2.DeleteTopicRequest(topic=actors.topic(random), force=force)
    ask_admin(actors, "delete", "DeleteTopic", request)


@operation
def pass_time(actors: Actors, random: Random) -> None:
    actors.world.loop.advance(random.choice((1.0, 130.0, 15_000.0)))
