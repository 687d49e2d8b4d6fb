"""The clients of one simulation: publishers and readers by name, and their lookup by operations."""

from __future__ import annotations

from random import Random

from ledgerfold.storage.entry import EARLIEST, Position
from tests.simulation.consumers import EXCLUSIVE, FAILOVER, TYPES, Consumer
from tests.simulation.kafka_clients import KafkaProducer
from tests.simulation.publishers import Publisher
from tests.simulation.readers import Reader
from tests.simulation.world import World

PUBLISHERS_MAX, READERS_MAX, CONSUMERS_MAX = 3, 3, 3


class Actors:
    def __init__(self, world: World, topics: tuple[str, ...], types: int) -> None:
        self.world, self.topics, self.types = world, topics, types
        self.publishers: dict[tuple[str, str], Publisher] = {}
        self.readers: list[Reader] = []
        self._last_reader = 0
        self.consumers: list[Consumer] = []
        self._last_consumer = 0
        self.kafka_producers: list[KafkaProducer] = []

    def topic(self, random: Random) -> str:
        return random.choice(self.topics)

    def publisher(self, random: Random) -> Publisher:
        topic, name = self.topic(random), f"p{random.randrange(PUBLISHERS_MAX)}"
        found = self.publishers.get((topic, name))
        if found is None:
            found = self.publishers[topic, name] = Publisher(self.world, topic, name)
        return found

    def reader(self, random: Random) -> Reader | None:
        return random.choice(self.readers) if self.readers else None

    def open_reader(self, topic: str, start: Position, *, read_compacted: bool) -> Reader:
        if len(self.readers) >= READERS_MAX:
            self.readers.pop(0).close()
        self._last_reader += 1
        kind = "compacted" if read_compacted else "raw"
        name = f"r{self._last_reader}-{kind}"
        self.world.note(f"{name} opens at {start}")
        reader = Reader(self.world, topic, name, start, read_compacted=read_compacted)
        self.readers.append(reader)
        return reader

    def consumer(self, random: Random) -> Consumer | None:
        return random.choice(self.consumers) if self.consumers else None

    def open_consumer(self, random: Random) -> None:
        """Opens a consumer of one of two subscriptions, usually of the type in the name."""
        if len(self.consumers) >= CONSUMERS_MAX:
            self.consumers.pop(0).close()
        self._last_consumer += 1
        number = random.randrange(2)
        type_ = TYPES[(number + self.types) % 4] if random.random() < 0.9 else random.choice(TYPES)
        read_compacted = type_ in (EXCLUSIVE, FAILOVER) and random.random() < 0.4
        topic, name = self.topic(random), f"c{self._last_consumer}-s{number}"
        self.world.note(f"{name} subscribes, {'compacted' if read_compacted else 'raw'}")
        self.consumers.append(
            Consumer(
                self.world,
                topic,
                f"s{number}",
                name,
                type_,
                read_compacted=read_compacted,
                from_earliest=number == 0,
            )
        )

    def open_passing_consumer(self, random: Random) -> None:
        if len(self.consumers) >= CONSUMERS_MAX:
            self.consumers.pop(0).close()
        self._last_consumer += 1
        topic, number = self.topic(random), self._last_consumer
        name, type_ = f"c{number}-n{number}", random.choice((EXCLUSIVE, EXCLUSIVE, *TYPES))
        self.world.note(f"{name} subscribes, not durably")
        self.consumers.append(
            Consumer(
                self.world,
                topic,
                f"n{number}",
                name,
                type_,
                read_compacted=type_ == EXCLUSIVE and random.random() < 0.3,
                from_earliest=random.random() < 0.8,
                durable=False,
            )
        )

    def some_position(self, random: Random, topic: str) -> Position:
        """Returns the position of an acknowledged entry, or its neighbour's."""
        known = self.world.oracle.topics.get(topic)
        places = sorted(known.at) if known is not None else []
        return random.choice(places) if places else EARLIEST
