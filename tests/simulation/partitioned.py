"""Operations of the kind "partitions": a partitioned topic that grows while it is used.

Clients are connected to partitions, as the client library's are; administrators name the
partitioned topic itself. It is deleted and recreated, its partitions are deleted one by one and
terminated, and there are consumers with non-durable subscriptions.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING

from ledgerfold.storage.partition_names import partition_name
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.records_pb2 import Policies
from tests.simulation.operation import ask_admin, begin_truncation, operation

if TYPE_CHECKING:
    from tests.simulation.actors import Actors

PARTITIONED = "persistent://public/default/parts"
# The initial ones are used more often.
PARTITIONS = tuple(partition_name(PARTITIONED, index) for index in (0, 0, 1, 1, 2, 3))
WEIGHTS = {
    "create_partitioned": 2,
    "grow": 6,
    "delete_partitioned": 1,
    "compact_partitions": 6,
    "cancel_partitions": 1,
    "unload_partitions": 1,
    "trim_partitions": 2,
    "truncate_partitions": 1,
    "set_partitioned_policies": 2,
    "open_passing_consumer": 6,
    "terminate": 2,
}
THEMES = (
    (),
    ("grow", "open_consumer", "permit_consumer", "delete_partitioned", "create_partitioned"),
    ("grow", "compact_partitions", "open_reader", "permit", "slow_call"),
    ("terminate", "open_reader", "permit", "slow_call", "lose_power"),
    ("terminate", "delete_topic", "reconnect", "fail_call", "kill_broker"),
    ("open_passing_consumer", "permit_consumer", "acknowledge", "cut_consumer", "grow"),
)


@operation
def create_partitioned(actors: Actors, random: Random) -> None:
    request = admin_pb2.CreatePartitionedTopicRequest(
        topic=PARTITIONED, partitions=random.choice((1, 2, 2, 3))
    )
    ended = _begin_growing(actors)
    ask_admin(actors, "create partitioned", "CreatePartitionedTopic", request, ended=ended)


@operation
def grow(actors: Actors, random: Random) -> None:
    request = admin_pb2.UpdatePartitionedTopicRequest(
        topic=PARTITIONED, partitions=random.choice((2, 3, 3, 4))
    )
    ask_admin(actors, "grow", "UpdatePartitionedTopic", request, ended=_begin_growing(actors))


def _begin_growing(actors: Actors) -> Callable[[], None]:
    growing, step = actors.world.oracle.growing, actors.world.loop.steps
    number = len(growing) + step * 100
    growing[number] = step

    def ended() -> None:
        del growing[number]

    return ended


@operation
def delete_partitioned(actors: Actors, random: Random) -> None:
    request = admin_pb2.DeletePartitionedTopicRequest(
        topic=PARTITIONED, force=random.random() < 0.8
    )
    ask_admin(actors, "delete partitioned", "DeletePartitionedTopic", request)


@operation
def compact_partitions(actors: Actors, random: Random) -> None:
    request = admin_pb2.TriggerCompactionRequest(topic=PARTITIONED)
    ask_admin(actors, "compact all", "TriggerCompaction", request)


@operation
def cancel_partitions(actors: Actors, random: Random) -> None:
    request = admin_pb2.CancelCompactionRequest(topic=PARTITIONED)
    ask_admin(actors, "cancel all", "CancelCompaction", request)


@operation
def unload_partitions(actors: Actors, random: Random) -> None:
    request = admin_pb2.UnloadTopicRequest(topic=PARTITIONED)
    ask_admin(actors, "unload all", "UnloadTopic", request)


@operation
def trim_partitions(actors: Actors, random: Random) -> None:
    request = admin_pb2.TrimTopicRequest(topic=PARTITIONED)
    ask_admin(actors, "trim all", "TrimTopic", request)


@operation
def truncate_partitions(actors: Actors, random: Random) -> None:
    begin_truncation(actors, PARTITIONED, sorted(set(PARTITIONS)))


@operation
def set_partitioned_policies(actors: Actors, random: Random) -> None:
    """Sets the policies of all partitions, also of later ones."""
    policies = random.choice(
        (
            Policies(compaction_threshold_bytes=random.choice((0, 300, 1000))),
            Policies(retain_null_key=random.random() < 0.5),
            Policies(retention_ms=random.choice((0, 1000, -1)), retention_bytes=-1),
            Policies(message_ttl_ms=500),
        )
    )
    request = admin_pb2.UpdatePoliciesRequest(
        scope=admin_pb2.PolicyScope(topic=PARTITIONED), set=policies
    )
    ask_admin(actors, "set policies of all", "UpdatePolicies", request)


@operation
def open_passing_consumer(actors: Actors, random: Random) -> None:
    """Opens a consumer of a non-durable subscription, which ends with it."""
    actors.open_passing_consumer(random)
