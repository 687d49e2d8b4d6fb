"""A scenario: what is drawn from a seed up front, and its run.

>>> print(run(Scenario.draw(seed=7)).failure)
None
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from ledgerfold.storage.ledger import StoreSettings
from ledgerfold.v1.records_pb2 import CompactionStrategy
from tests.simulation import administration, clients, kafka_operations, machine, partitioned
from tests.simulation.actors import Actors
from tests.simulation.administration import STRATEGIES
from tests.simulation.converge import converge
from tests.simulation.executor import cooperative_locks
from tests.simulation.loop import Hang, Pace
from tests.simulation.operation import OPERATIONS
from tests.simulation.world import World

# Whose operations are in the table, once they are imported.
ROOMS = (clients, administration, machine, partitioned, kafka_operations)
WEIGHTS = {
    "publish": 30,
    "reconnect": 3,
    "open_reader": 7,
    "permit": 10,
    "check": 8,
    "seek_reader": 2,
    "cut_reader": 2,
    "close_reader": 1,
    "open_consumer": 6,
    "permit_consumer": 8,
    "acknowledge": 10,
    "redeliver": 2,
    "cut_consumer": 2,
    "close_consumer": 1,
    "seek_subscription": 2,
    "unsubscribe": 1,
    "pass_over": 1,
    "compact": 10,
    "cancel": 2,
    "kill_worker": 3,
    "unload": 3,
    "trim": 2,
    "stats": 1,
    "truncate": 1,
    "expire": 1,
    "disable_compaction": 1,
    "set_policies": 2,
    "terminate": 0,
    "delete_topic": 1,
    "pass_time": 2,
    "kill_broker": 2,
    "lose_power": 3,
    "restart": 1,
    "fail_call": 4,
    "slow_call": 5,
    "fill_disk": 1,
}
FLIPS = 6
# What a scenario is mostly about; the rest comes now and then.
THEMES = (
    (),
    (),
    ("open_reader", "permit", "check", "compact", "slow_call"),
    ("open_consumer", "permit_consumer", "acknowledge", "compact", "kill_broker"),
    ("compact", "kill_worker", "cancel", "slow_call", "fail_call"),
    ("lose_power", "kill_broker", "reconnect", "slow_call"),
    ("fail_call", "unload", "reconnect", "lose_power"),
)
DAMAGE = ("flip_bit", "kill_broker", "compact", "lose_power")
EPISODE = ("publish", "publish", "flip_bit", "kill_broker", "compact", "compact", "compact")
# Time alone changes what is left.
LATER = ("publish", "publish", "compact", "pass_time", "compact")
# Turns come by themselves, too; and nothing is forgotten of producers, however time passes.
KAFKA_CONFIG = {
    "log.cleaner.backoff.ms": "400",
    "log.retention.check.interval.ms": "700",
    "producer.id.expiration.ms": "2000000000",
}
NO_CLEANER = {"log.cleaner.enable": "false"}
TOPIC = "persistent://public/default/t"


class Step(NamedTuple):
    """An operation, its numbers, and for how many steps of the loop nothing else is begun."""

    name: str
    seed: int
    pause: int

    def __str__(self) -> str:
        return f"{self.name}({self.seed}) then {self.pause}"


@dataclass(frozen=True)
class Scenario:
    seed: int
    profile: str
    store: StoreSettings
    threshold_bytes: int
    pace: Pace
    steps: tuple[Step, ...]
    schedule: int
    # Pages reach the disk in order.
    in_order: bool = False
    is_damaged: bool = False
    # Of the clients; a name that is there twice is used twice as often.
    topics: tuple[str, ...] = (TOPIC,)
    # Of topics that have none of their own.
    strategy: CompactionStrategy = field(default_factory=lambda: STRATEGIES[0])
    # Of the broker.
    kafka_config: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def draw(
        cls, seed: int, without: frozenset[str] = frozenset(), kind: str = "faults"
    ) -> Scenario:
        """`without`: operations that are left out; "reordering" of pages, too.

        `kind`: "faults"; "damage", in which bits flip and errors are the right answer; "partitions"
        of a topic that grows; "kafka", a Kafka topic; or "truncation", one whose log is truncated.
        """
        random = Random(seed)
        profile = random.choice(("documented", "documented", "pulsar-4"))
        store = StoreSettings(
            segment_bytes_max=random.choice((300, 600, 1000)),
            ledger_entries_max=random.choice((2, 3, 4, 6)),
        )
        threshold = random.choice((0, 0, 0, 500))
        pace = Pace(
            jobs=random.choice((0.1, 0.3, 0.5, 0.7)), in_order=random.choice((0.0, 0.3, 0.8))
        )
        table = WEIGHTS | partitioned.WEIGHTS if kind == "partitions" else WEIGHTS
        is_kafka = kind in ("kafka", "truncation")
        if is_kafka:
            table = kafka_operations.WEIGHTS
        if kind == "truncation":
            table = kafka_operations.TRUNCATION_WEIGHTS
        names = [name for name in table if name not in without]
        if kind == "damage":
            names.append("flip_bit")
        weights = [table.get(name, FLIPS) for name in names]
        themes: tuple[tuple[str, ...], ...] = THEMES
        if kind == "partitions":
            themes = partitioned.THEMES
        if is_kafka:
            themes = kafka_operations.THEMES
        # Some operations are rare in one scenario and frequent in another.
        theme = DAMAGE if kind == "damage" and random.random() < 0.4 else random.choice(themes)
        weights = [
            weight * (4 if name in theme else random.choice((0, 1, 1, 3) if not theme else (0, 1)))
            for name, weight in zip(names, weights, strict=True)
        ]
        publish = "kafka_publish" if is_kafka else "publish"
        weights[names.index(publish)] = 25
        steps = tuple(
            Step(name, random.randrange(1 << 30), random.choice((0, 1, 3, 10, 40)))
            for name in random.choices(names, weights, k=random.choice((10, 20, 30, 40)))
        )
        if kind == "damage" and random.random() < 0.6:
            # What is damaged while it is open shows at the next start, and to the next runs.
            steps += tuple(Step(name, random.randrange(1 << 30), 40) for name in EPISODE)
        strategy = STRATEGIES[0] if random.random() < 0.4 else random.choice(STRATEGIES)
        if strategy.name == "event-time-window" and kind == "faults":
            steps += tuple(Step(name, random.randrange(1 << 30), 400) for name in LATER)
        if kind == "partitions":
            steps = (Step("create_partitioned", random.randrange(1 << 30), 40), *steps)
        return cls(
            seed,
            profile,
            store,
            threshold,
            pace,
            steps,
            seed,
            in_order="reordering" in without,
            is_damaged=kind == "damage",
            topics=partitioned.PARTITIONS if kind == "partitions" else (TOPIC,),
            strategy=strategy,
            kafka_config=KAFKA_CONFIG if is_kafka else NO_CLEANER,
        )

    def with_steps(self, steps: tuple[Step, ...]) -> Scenario:
        return replace(self, steps=steps)


class Outcome(NamedTuple):
    """`failure` None: all that must hold held."""

    failure: BaseException | None
    trace: list[str]
    loop_steps: int


def run(scenario: Scenario) -> Outcome:
    random = Random(scenario.schedule)
    world = World(
        random,
        scenario.pace,
        scenario.profile,
        scenario.store,
        scenario.threshold_bytes,
        scenario.strategy,
        scenario.kafka_config,
    )
    world.in_order = scenario.in_order
    world.oracle.is_damaged = scenario.is_damaged
    errors = _Errors(world)
    logging.getLogger().addHandler(errors)
    failure: BaseException | None = None
    # Collections would come at any time, and end generators that nobody finished.
    gc.disable()
    with cooperative_locks(world.loop.jobs):
        try:
            world.loop.run_until_complete(_play(world, scenario))
        except (AssertionError, Hang) as error:
            failure = error
        finally:
            world.close()
            logging.getLogger().removeHandler(errors)
            gc.enable()
    return Outcome(failure, world.trace, world.loop.steps)


async def _play(world: World, scenario: Scenario) -> None:
    actors = Actors(world, scenario.topics, scenario.seed)
    world.client(world.boot())
    await world.is_up.wait()
    for step in scenario.steps:
        OPERATIONS[step.name](actors, Random(step.seed))
        for _ in range(step.pause):
            await asyncio.sleep(0)
    await converge(actors)


class _Errors(logging.Handler):
    """What the broker logs with a stack is a defect, whoever swallowed it."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.ERROR)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        error: Any = record.exc_info[1] if record.exc_info else None
        if error is None:
            return
        from ledgerfold.storage.errors import LedgerfoldError
        from tests.simulation.jobs import Crash

        process = self._world.process
        if isinstance(error, LedgerfoldError | Crash) or process is None or process.is_dead:
            return
        self._world.oracle.unexpected(error)
