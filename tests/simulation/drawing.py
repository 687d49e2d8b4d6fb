"""Draws a scenario from a seed: limits, weights of operations, and steps.

>>> draw(seed=7).seed
7
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from ledgerfold.storage.ledger import StoreSettings
from tests.simulation import (
    administration,
    boundaries,
    clients,
    kafka_operations,
    machine,
    partitioned,
    whole_state,
)
from tests.simulation.administration import STRATEGIES
from tests.simulation.endings import LAST, LAST_EVERY
from tests.simulation.loop import Pace
from tests.simulation.moments import (
    KAFKA_PAIRS,
    PAIRS,
    WHOLE_KAFKA_PAIRS,
    WHOLE_PAIRS,
    Pair,
    is_being_written,
    pair_of,
)
from tests.simulation.scenario import Scenario, Step

# Their operations are in the table once they are imported.
ROOMS = (
    clients,
    administration,
    boundaries,
    machine,
    partitioned,
    kafka_operations,
    whole_state,
)
KINDS = ("faults", "damage", "partitions", "kafka", "truncation", "metadata", "codecs")
WEIGHTS = {
    "publish": 30,
    "resend": 3,
    "leave": 2,
    "reconnect": 3,
    "open_reader": 7,
    "stand_behind": 3,
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
    "expire_exactly": 2,
    "disable_compaction": 1,
    "set_policies": 2,
    "limit_age": 2,
    "limit_exactly": 2,
    "at_boundary": 4,
    "housekeeping": 2,
    "grow_old": 1,
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
# The main subject of a scenario; other operations occur now and then.
THEMES: tuple[tuple[str, ...], ...] = (
    (),
    (),
    ("open_reader", "permit", "check", "compact", "slow_call"),
    ("open_consumer", "permit_consumer", "acknowledge", "compact", "kill_broker"),
    ("compact", "kill_worker", "cancel", "slow_call", "fail_call"),
    ("lose_power", "kill_broker", "reconnect", "slow_call", "resend"),
    ("fail_call", "unload", "reconnect", "lose_power"),
    ("limit_age", "limit_exactly", "at_boundary", "compact", "open_consumer"),
    ("open_consumer", "permit_consumer", "acknowledge", "expire_exactly", "pass_over", "unload"),
)
DAMAGE = ("flip_bit", "kill_broker", "compact", "lose_power")
# Sequences of operations that rarely occur by chance: with the pauses between them, and the moment
# at which one begins, if it waits for that.
Episode = tuple[tuple[str, int] | tuple[str, int, str], ...]
DAMAGED: Episode = tuple(
    (name, 40)
    for name in ("publish", "publish", "flip_bit", "kill_broker", "compact", "compact", "compact")
)
# A bad entry before good ones, in a ledger that is open until the broker dies.
DAMAGED_EARLY: Episode = (
    ("publish", 80),
    ("publish", 150),
    ("flip_early", 0),
    ("die", 150),
    ("publish", 150),
    ("compact", 250),
    ("compact", 250),
)
# Time alone changes what remains.
LATER: Episode = tuple(
    (name, 400) for name in ("publish", "publish", "compact", "pass_time", "compact")
)
# A reader is directly after an entry that a run passes, while its ledger is trimmed.
STANDING: Episode = (
    ("publish", 100),
    ("publish", 150),
    ("stand_behind", 100),
    ("publish", 100),
    ("compact", 400),
    ("trim", 100),
    ("permit", 40),
    ("check", 40),
)
# A run commits while a reader of the view continues.
OVERTAKEN: Episode = (
    ("publish", 80),
    ("publish", 80),
    ("compact", 250),
    ("follow_view", 60),
    ("publish", 80),
    ("permit", 0, is_being_written("commit")),
    ("check", 0, is_being_written("commit")),
    ("slow_read", 0, is_being_written("commit")),
    ("compact", 250),
    ("permit", 30),
    ("check", 30),
)
# A ledger is retained to the millisecond, or to the byte.
BY_AGE: Episode = (
    ("limit_age", 60),
    ("publish", 150),
    ("publish", 150),
    ("compact", 400),
    ("at_boundary", 200),
    ("at_boundary", 200),
)
BY_SIZE: Episode = (
    ("publish", 150),
    ("publish", 150),
    ("limit_exactly", 60),
    ("compact", 400),
    ("limit_exactly", 60),
    ("trim", 150),
)
# Messages expire, under consumers.
EXPIRING: Episode = (
    ("open_consumer", 60),
    ("publish", 150),
    ("permit_consumer", 100),
    ("acknowledge", 20),
    ("publish", 150),
    ("expire_exactly", 150),
    ("at_boundary", 150),
)
# The state of sequence ids is captured again before it is written, and then used.
CAPTURED: Episode = (
    ("publish", 40),
    ("slow_call", 0),
    ("publish", 20),
    ("publish", 20),
    ("publish", 60),
    ("compact", 300),
    ("trim", 100),
    ("kill_broker", 100),
    ("resend", 200),
)
# Producers leave and are forgotten, or nearly.
FORGOTTEN: Episode = (
    ("publish", 150),
    ("compact", 300),
    ("housekeeping", 60),
    ("leave", 60),
    ("grow_old", 300),
    ("resend", 200),
    ("unload", 200),
    ("housekeeping", 60),
    ("grow_old", 300),
    ("resend", 200),
)
EPISODES = (STANDING, OVERTAKEN, BY_AGE, BY_SIZE, EXPIRING, CAPTURED, FORGOTTEN)
# Everything is saved, changes, and is restored.
WHOLE_THEME = ("save_snapshot", "restore_snapshot", "import_topic", "compact", "trim", "truncate")
_SAVED: Episode = (("publish", 80), ("compact", 200), ("save_snapshot", 200), ("publish", 100))
WHOLE: tuple[Episode, ...] = (
    (*_SAVED, ("trim", 100), ("restore_snapshot", 300), ("publish", 100)),
    (*_SAVED, ("truncate", 150), ("restore_snapshot", 300), ("compact", 200)),
    (*_SAVED, ("delete_topic", 150), ("publish", 150), ("restore_snapshot", 200), ("publish", 60)),
    (*_SAVED, ("restore_snapshot", 0), ("kill_broker", 200), ("restore_snapshot", 300)),
    (("import_topic", 200), ("publish", 100), ("import_topic", 200), ("save_snapshot", 150)),
    (("publish", 150), ("truncate", 0), ("kill_broker", 150), ("publish", 100), ("truncate", 60)),
)
_KAFKA_SAVED: Episode = (
    ("kafka_publish", 60),
    ("kafka_roll", 60),
    ("save_snapshot", 200),
    ("kafka_publish", 60),
)
KAFKA_WHOLE: tuple[Episode, ...] = (
    (*_KAFKA_SAVED, ("kafka_clean", 200), ("restore_snapshot", 300), ("kafka_publish", 60)),
    (*_KAFKA_SAVED, ("kafka_truncate", 150), ("restore_snapshot", 300), ("kafka_truncate", 100)),
    (*_KAFKA_SAVED, ("kafka_truncate", 150), ("kafka_publish", 60), ("kafka_truncate", 100)),
    (*_KAFKA_SAVED, ("delete_topic", 100), ("kafka_publish", 60), ("restore_snapshot", 200)),
)
# The operation that causes a moment, by the prefix of its name.
_COMPACTING: Episode = (("publish", 60), ("publish", 60), ("compact", 200))
_CONSUMING: Episode = (
    ("open_consumer", 60),
    ("publish", 80),
    ("permit_consumer", 60),
    ("acknowledge", 10),
    ("acknowledge", 20),
)
_READING: Episode = (("open_reader", 30), ("publish", 80), ("permit", 30), ("check", 20))
_PUBLISHING: Episode = (("publish", 20), ("publish", 20), ("publish", 80))
BRINGING: Mapping[str, Episode] = {
    "cursor": _CONSUMING,
    "an ack": _CONSUMING,
    "an entry": _READING,
    "snapshot": _PUBLISHING,
    "producer": _PUBLISHING,
    "ledger": _PUBLISHING,
    "segment": _PUBLISHING,
    "a receipt": _PUBLISHING,
    "commit": _COMPACTING,
    "run": _COMPACTING,
    "trim": (*_COMPACTING, ("trim", 60)),
    "remove_dir": (*_COMPACTING, ("trim", 60)),
    "the worker": _COMPACTING,
    "a manifest": _COMPACTING,
}
_CLEANING: Episode = (
    ("kafka_publish", 40),
    ("kafka_publish", 40),
    ("kafka_roll", 40),
    ("kafka_clean", 150),
)
KAFKA_BRINGING: Mapping[str, Episode] = {
    "kafka clean": _CLEANING,
    "kafka drop": (*_CLEANING, ("kafka_log_start", 40), ("kafka_retain", 60)),
    "kafka": (("kafka_publish", 40), ("kafka_roll", 40)),
    "the worker": _CLEANING,
    "a manifest": _CLEANING,
}
# Passes also run by themselves; and producers are never forgotten, however time passes.
KAFKA_CONFIG = {
    "log.cleaner.backoff.ms": "400",
    "log.retention.check.interval.ms": "700",
    "producer.id.expiration.ms": "2000000000",
}
NO_CLEANER = {"log.cleaner.enable": "false"}
TOPIC = "persistent://public/default/t"


def draw(seed: int, without: frozenset[str] = frozenset(), kind: str = "faults") -> Scenario:
    """`without`: operations to leave out; also "reordering" of pages.

    `kind`: "faults"; "codecs", the same with entries of Pulsar's clients; "damage", in which bits
    flip and errors are the right answer; "partitions" of a topic that grows; "kafka", a Kafka
    topic; "truncation", one whose log is truncated; or "metadata", which lose writes at the end: of
    topics of both kinds, which snapshots bring back.
    """
    random = Random(seed)
    is_mixed = kind == "codecs"
    if is_mixed:
        kind = "faults"
    is_kafka = kind in ("kafka", "truncation") or (kind == "metadata" and seed % 3 == 0)
    profile = random.choice(("documented", "documented", "pulsar-4"))
    if kind == "metadata":
        # The durability of the broker that opens them again.
        profile = "documented"
    store = StoreSettings(
        segment_bytes_max=random.choice((300, 600, 1000)),
        ledger_entries_max=random.choice((2, 3, 4, 6)),
    )
    threshold_bytes = random.choice((0, 0, 0, 500))
    pace = Pace(jobs=random.choice((0.1, 0.3, 0.5, 0.7)), in_order=random.choice((0.0, 0.3, 0.8)))
    strategy = STRATEGIES[0] if random.random() < 0.4 else random.choice(STRATEGIES)
    steps = _Steps(random, seed, kind, without, is_kafka=is_kafka)
    return Scenario(
        seed,
        profile,
        store,
        threshold_bytes,
        pace,
        steps.drawn(strategy.name),
        seed,
        partitioned.PARTITIONS if kind == "partitions" else (TOPIC,),
        strategy,
        in_order="reordering" in without,
        is_mixed=is_mixed,
        is_damaged=kind == "damage",
        loses_metadata=kind == "metadata",
        kafka_config=KAFKA_CONFIG if is_kafka else NO_CLEANER,
    )


class _Steps:
    """The steps of one scenario."""

    def __init__(
        self, random: Random, seed: int, kind: str, without: frozenset[str], *, is_kafka: bool
    ) -> None:
        self._random, self._seed, self._kind, self._without = random, seed, kind, without
        self._is_kafka = is_kafka

    def drawn(self, strategy: str) -> tuple[Step, ...]:
        random, kind = self._random, self._kind
        armed = self._armed()
        steps = self._by_chance()
        if kind == "damage" and random.random() < 0.6:
            # Damage to an open file is found at the next start, and by the next runs.
            steps += self._episode(random.choice((DAMAGED, DAMAGED_EARLY)))
        if strategy == "event-time-window" and kind == "faults":
            steps += self._episode(LATER)
        elif kind in ("faults", "partitions") and random.random() < 0.6:
            steps += self._episode(random.choice(EPISODES))
        elif self._is_kafka and random.random() < 0.5:
            steps += self._episode(random.choice(kafka_operations.EPISODES))
        if kind == "metadata" and random.random() < 0.5:
            table = KAFKA_WHOLE if self._is_kafka else WHOLE
            steps += self._episode(random.choice(table))
        for pair in armed:
            # Early: the moment is still to come.
            at = random.randrange(len(steps) * 2 // 3 + 1)
            step = Step(pair.operation, random.randrange(1 << 30), 0, pair.moment)
            steps[at:at] = [step, *self._bringing(pair.moment)]
        if kind in LAST and self._seed % LAST_EVERY == 0:
            steps += self._episode(LAST[kind][self._seed // LAST_EVERY % len(LAST[kind])])
        if kind == "partitions":
            steps.insert(0, self._step("create_partitioned", 40))
        return tuple(each for each in steps if each.name not in self._without)

    def _step(self, name: str, pause: int) -> Step:
        return Step(name, self._random.randrange(1 << 30), pause)

    def _episode(self, episode: Episode) -> list[Step]:
        return [Step(each[0], self._random.randrange(1 << 30), *each[1:]) for each in episode]

    def _armed(self) -> list[Pair]:
        """Pairs of a moment and an operation: those of the seed's number."""
        all_pairs = KAFKA_PAIRS if self._is_kafka else PAIRS
        if self._kind == "metadata":
            all_pairs = WHOLE_KAFKA_PAIRS if self._is_kafka else WHOLE_PAIRS
        count = self._random.choice((0, 1, 2, 2, 3))
        return [pair_of(all_pairs, self._seed * 3 + at) for at in range(count)]

    def _bringing(self, moment: str) -> list[Step]:
        """Returns the operation that usually causes it."""
        table = KAFKA_BRINGING if self._is_kafka else BRINGING
        found = next((each for begin, each in table.items() if moment.startswith(begin)), ())
        return self._episode(found) if self._random.random() < 0.8 else []

    def _by_chance(self) -> list[Step]:
        random, theme = self._random, self._theme()
        table = self._table()
        names = [name for name in table if name not in self._without]
        # Some operations are rare in one scenario and frequent in another.
        weights = [
            table[name]
            * (4 if name in theme else random.choice((0, 1, 1, 3) if not theme else (0, 1)))
            for name in names
        ]
        weights[names.index("kafka_publish" if self._is_kafka else "publish")] = 25
        return [
            self._step(name, random.choice((0, 1, 3, 10, 40)))
            for name in random.choices(names, weights, k=random.choice((5, 10, 20, 30)))
        ]

    def _table(self) -> Mapping[str, int]:
        match self._kind:
            case "partitions":
                return WEIGHTS | partitioned.WEIGHTS
            case "kafka":
                return kafka_operations.WEIGHTS
            case "truncation":
                return kafka_operations.TRUNCATION_WEIGHTS
            case "damage":
                return WEIGHTS | {"flip_bit": FLIPS}
            case "metadata":
                table = kafka_operations.TRUNCATION_WEIGHTS if self._is_kafka else WEIGHTS
                return table | whole_state.WEIGHTS
        return WEIGHTS

    def _theme(self) -> tuple[str, ...]:
        random = self._random
        if self._kind == "damage" and random.random() < 0.4:
            return DAMAGE
        if self._is_kafka:
            return random.choice(kafka_operations.THEMES)
        if self._kind == "metadata" and random.random() < 0.4:
            return WHOLE_THEME
        return random.choice(partitioned.THEMES if self._kind == "partitions" else THEMES)
