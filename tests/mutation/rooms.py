"""The mutated rooms, with their own tests and the simulator's kinds that may notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Room:
    """`kinds`: the simulator's kinds, with the share of the seeds that each gets."""

    name: str
    tests: tuple[str, ...]
    kinds: tuple[tuple[str, float], ...]

    def seeds(self, count: int, first: int = 1) -> list[str]:
        """Returns the seeds in the form of tests.mutation.seeds."""
        return [f"{kind}:{first}:{max(1, round(count * share))}" for kind, share in self.kinds]


_PULSAR = (("faults", 0.7), ("damage", 0.1), ("partitions", 0.2))
_KAFKA = (("kafka", 0.6), ("truncation", 0.4))
_KAFKA_TOO = (("kafka", 0.2), ("truncation", 0.1))
ROOMS = (
    Room(
        "storage",
        ("tests/unit/storage", "tests/crash/test_storage_crashes.py"),
        (("faults", 0.4), ("damage", 0.2), ("partitions", 0.1), *_KAFKA_TOO),
    ),
    Room(
        "broker/log",
        ("tests/unit/log", "tests/crash/test_failing_topic.py"),
        (("faults", 0.6), ("damage", 0.1), *_KAFKA_TOO),
    ),
    Room(
        "broker/subscriptions",
        (
            "tests/unit/subscriptions",
            "tests/unit/topics/test_reader_names.py",
            "tests/unit/topics/test_deleted_meanwhile.py",
            "tests/crash/test_failing_operations.py",
        ),
        _PULSAR,
    ),
    Room(
        "broker/compaction",
        ("tests/unit/compaction", "tests/crash/test_failing_compaction.py"),
        _PULSAR,
    ),
    Room(
        "broker/topics",
        ("tests/unit/topics", "tests/crash/test_failing_partitions.py"),
        (("faults", 0.5), ("partitions", 0.2), *_KAFKA_TOO),
    ),
    Room(
        "broker/kafka",
        ("tests/unit/kafka", "tests/unit/topics", "tests/crash/test_failing_truncation.py"),
        _KAFKA,
    ),
)


def room_of(path: str) -> Room:
    """Raises ValueError for a path in no room."""
    for room in ROOMS:
        if path.startswith(f"{room.name}/"):
            return room
    raise ValueError(f"{path} is in none of the rooms {', '.join(each.name for each in ROOMS)}")
