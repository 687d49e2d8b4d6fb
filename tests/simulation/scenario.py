"""A scenario, and its run. drawing.py describes what is drawn from a seed."""

from __future__ import annotations

import asyncio
import gc
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple
from unittest import mock

from ledgerfold.broker.topics import producer as broker_producer
from ledgerfold.broker.topics.producer import REFUSED_CODECS
from ledgerfold.storage.ledger import StoreSettings
from ledgerfold.v1.records_pb2 import CompactionStrategy
from tests.simulation import lost_metadata, whole_state
from tests.simulation.actors import Actors
from tests.simulation.converge import converge
from tests.simulation.coverage import Coverage
from tests.simulation.executor import cooperative_locks
from tests.simulation.loop import STEP_S, Hang, Pace
from tests.simulation.operation import OPERATIONS
from tests.simulation.world import World

# How often a moment passes before the one at which an operation begins.
SKIPS = (0, 0, 0, 1, 2, 4)
_IDLE_STEPS = 5


class Step(NamedTuple):
    """An operation, its numbers, and for how many steps of the loop nothing else is begun.

    `at`: the moment at which the step begins (moments.py); "" means now.
    """

    name: str
    seed: int
    pause: int
    at: str = ""

    def __str__(self) -> str:
        when = f" at {self.at!r}" if self.at else ""
        return f"{self.name}({self.seed}){when} then {self.pause}"


@dataclass(frozen=True)
class Scenario:
    seed: int
    profile: str
    store: StoreSettings
    threshold_bytes: int
    pace: Pace
    steps: tuple[Step, ...]
    schedule: int
    # Names of clients; a name listed twice is used twice as often.
    topics: tuple[str, ...]
    # Settings of topics without their own.
    strategy: CompactionStrategy
    # Pages reach the disk in order.
    in_order: bool = False
    # Some entries are those of Pulsar's clients.
    is_mixed: bool = False
    is_damaged: bool = False
    # Begins with metadata older than their files.
    loses_metadata: bool = False
    # Settings of the broker.
    kafka_config: Mapping[str, str] = field(default_factory=dict)

    def with_steps(self, steps: tuple[Step, ...]) -> Scenario:
        return replace(self, steps=steps)


# The dead share of a segment that is allowed, by seed.
_GARBAGE_MAX = (0.0, 0.3, 0.9)


class Outcome(NamedTuple):
    """The result of a simulation; `failure` is None if no check failed."""

    failure: BaseException | None
    trace: list[str]
    loop_steps: int
    coverage: Coverage


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
        _GARBAGE_MAX[scenario.seed % len(_GARBAGE_MAX)],
    )
    world.in_order, world.is_mixed = scenario.in_order, scenario.is_mixed
    world.oracle.is_damaged = scenario.is_damaged
    if scenario.loses_metadata:
        # Made before the simulation runs.
        whole_state.archive()
    errors = _Errors(world)
    logging.getLogger().addHandler(errors)
    failure: BaseException | None = None
    # Collections would run at any time, and end unfinished generators.
    gc.disable()
    refused = frozenset[int]() if scenario.is_mixed else REFUSED_CODECS
    with (
        cooperative_locks(world.loop.jobs),
        mock.patch.object(broker_producer, "REFUSED_CODECS", refused),
    ):
        try:
            world.loop.run_until_complete(_play(world, scenario))
            if scenario.loses_metadata:
                lost_metadata.check(world, Random(scenario.seed))
        except (AssertionError, Hang) as error:
            failure = error
        finally:
            world.close()
            logging.getLogger().removeHandler(errors)
            gc.enable()
    world.coverage.ended((each.name for each in scenario.steps), world.moments)
    return Outcome(failure, world.trace, world.loop.steps, world.coverage)


async def _play(world: World, scenario: Scenario) -> None:
    actors = Actors(world, scenario.topics, scenario.seed)
    world.client(world.boot())
    await world.is_up.wait()
    for step in scenario.steps:
        _begin(actors, step)
        await _pause(world, step.pause)
    if scenario.loses_metadata:
        await lost_metadata.die(world, Random(scenario.seed))
    else:
        await converge(actors)


async def _pause(world: World, steps: int) -> None:
    """Waits for that many steps, or for that much time once nothing else runs."""
    idle = 0
    for step in range(steps):
        await asyncio.sleep(0)
        idle = idle + 1 if world.loop.is_idle else 0
        if idle > _IDLE_STEPS:
            await asyncio.sleep((steps - step) * STEP_S)
            return


def _begin(actors: Actors, step: Step) -> None:
    random = Random(step.seed)
    if not step.at:
        OPERATIONS[step.name](actors, random)
        return

    def act() -> None:
        actors.world.note(f"{step.name}, for {step.at!r} has come")
        OPERATIONS[step.name](actors, random)

    actors.world.moments.arm(step.at, random.choice(SKIPS), step.name, act)


class _Errors(logging.Handler):
    """Records errors that the broker logs with a stack: each is a defect, even if caught."""

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
