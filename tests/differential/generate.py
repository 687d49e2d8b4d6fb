"""Generates scenarios from seeds: steps of the notation, without expectations.

    >>> scenario(7) == scenario(7)
    True

A scenario has a kind: it compacts by publishing order alone; by event time, with runs by publishing
order in between; or by message strategies, with any others in between. The last kind has no event
times and no properties: Pulsar's compactor loses some of them.

It publishes (keys, no keys, tombstones, empty values, batches, compression, event times,
properties), compacts, unloads and trims, and reads: from earliest, latest and ids, inclusive or
not, raw and read-compacted, with readers that stay open and seek, with consumers of each type.
Excluded are outcomes that depend on chance or time in one of the brokers: two consumers that share,
batches of one (Pulsar's clients disagree on them), messages in flight during another operation, and
Pulsar's trimming in the background.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

_KEYS = ("a", "b", "c", "d", "~", '""')
_KEY_WEIGHTS = (6, 6, 4, 3, 2, 1)
_COMPRESSIONS = ("LZ4", "ZLIB", "ZSTD", "SNAPPY")
_STEPS_MIN, _STEPS_MAX = 5, 14
# Kind of a scenario -> its strategies; it begins with the first one.
KINDS = {
    "publishing": (),
    "event-time": ("event-time", "event-time", "publishing-order"),
    "strategic": ("newest", "numeric", "event-time", "publishing-order"),
}


def scenario(seed: int, kinds: Sequence[str] = tuple(KINDS)) -> list[str]:
    """Returns steps, one per line; of one of these kinds."""
    random = Random(seed)
    return _Generator(random, random.choice(kinds)).steps()


class _Generator:
    def __init__(self, random: Random, kind: str) -> None:
        self._random = random
        self._strategies = KINDS[kind]
        # How often a message has an event time, and how often properties.
        self._timed, self._described = {
            "publishing": (0.1, 0.1),
            "event-time": (0.8, 0.1),
            "strategic": (0.0, 0.0),
        }[kind]
        self._value = 0
        self._has_closed = self._has_moved = False
        # Batch size of each entry published so far; 0: published alone.
        self._entries: list[int] = []
        self._readers: list[str] = []
        # The time to wait for messages, by consumer.
        self._consumers: dict[str, str] = {}

    def steps(self) -> list[str]:
        found = [*self._begin(), self._publish()]
        kinds: list[tuple[int, Callable[[], str | None]]] = [
            (7, self._publish),
            (5, lambda: "compact"),
            (2, lambda: "unload"),
            (1, lambda: "trim"),
            (6, self._read),
            (2, self._open_reader),
            (4, self._use_reader),
            (2, self._open_consumer),
            (4, self._use_consumer),
            (1, lambda: self._random.choice(["last-id", "last-id RC"])),
            (1, lambda: self._random.choice(["CL.entries", "H", "removed"])),
            (1, lambda: self._random.choice(["subscribe s", "unsubscribe s"])),
            (2, self._change_strategy),
        ]
        weights = [weight for weight, _ in kinds]
        wanted = self._random.randint(_STEPS_MIN, _STEPS_MAX)
        while len(found) < wanted:
            _, make = self._random.choices(kinds, weights)[0]
            step = make()
            if step is not None:
                found += [step, *self._settled(step)]
        # A last run shows all effects of strategies.
        return [*found, *(["compact"] if self._strategies else []), "RC-read", "raw-read"]

    def _settled(self, step: str) -> list[str]:
        """Trims after a step that moves a cursor past a closed ledger: Pulsar does so
        eventually.
        """
        self._has_closed |= step == "unload"
        self._has_moved |= step == "compact" or " ack" in step
        self._has_moved |= step.startswith(("unsubscribe", "seek c"))
        return ["trim"] if self._has_moved and self._has_closed else []

    # Strategies

    def _begin(self) -> list[str]:
        if not self._strategies:
            return []
        begin = [f"strategy namespace {self._random.choice(self._strategies[:2])}"]
        return [*begin, "null-keys retain"] if self._random.random() < 0.15 else begin

    def _change_strategy(self) -> str | None:
        if not self._strategies:
            return None
        return f"strategy namespace {self._random.choice(self._strategies)}"

    # Publishing

    def _publish(self) -> str:
        entries = [self._entry() for _ in range(self._random.randint(1, 4))]
        text = " ".join(entries)
        if self._random.random() < 0.15:
            text += f" with compression={self._random.choice(_COMPRESSIONS)}"
        return text

    def _entry(self) -> str:
        if self._random.random() < 0.65:
            self._entries.append(0)
            return self._message()
        size = self._random.randint(2, 4)
        self._entries.append(size)
        return f"[{' '.join(self._message() for _ in range(size))}]"

    def _message(self) -> str:
        key = self._random.choices(_KEYS, _KEY_WEIGHTS)[0]
        self._value += 1
        # Numbers that rise and fall, and repeat.
        number = self._value * 7 % 11 if self._strategies else self._value
        value = self._random.choices((str(number), "∅", '""'), (7, 2, 1))[0]
        text = f"{key}={value}"
        if self._random.random() < self._timed:
            text += f"@{self._random.randint(1, 5)}"
        if self._random.random() < self._described:
            text += f"{{p:{self._value}}}"
        return text

    # Reading

    def _position(self) -> str:
        entry = self._random.randrange(len(self._entries))
        size = self._entries[entry]
        return f"E{entry}.{self._random.randrange(size)}" if size else f"E{entry}"

    def _start(self) -> str:
        kind = self._random.random()
        if kind < 0.35:
            return ""
        if kind < 0.45:
            return " from=latest" + self._random.choice(["", " inclusive"])
        return f" from={self._position()}" + self._random.choice(["", " inclusive"])

    def _read(self) -> str:
        verb = self._random.choice(["RC-read", "RC-read", "raw-read"])
        return verb + self._start()

    def _open_reader(self) -> str | None:
        if len(self._readers) == 2:
            return None
        name = f"r{len(self._readers)}"
        self._readers.append(name)
        rc = self._random.choice([" RC", " RC", ""])
        return f"reader {name}{rc}{self._start()}"

    def _use_reader(self) -> str | None:
        if not self._readers:
            return None
        name = self._random.choice(self._readers)
        return self._random.choice(
            [
                f"read {name}",
                f"read {name}",
                f"read {name} max={self._random.randint(1, 3)}",
                f"has-more {name}",
                f"seek {name} {self._position()}",
                f"seek {name} earliest",
                f"seek {name} latest",
                f"last-id {name}",
            ]
        )

    # Consuming

    def _open_consumer(self) -> str | None:
        if len(self._consumers) == 2:
            return None
        name = f"c{len(self._consumers)}"
        kind = self._random.choice(
            ["RC", "RC", "RC type=Failover", "", "type=Shared", "type=Failover", "type=Key_Shared"]
        )
        # Pulsar makes a Failover consumer the active one after a second.
        self._consumers[name] = "within=2s" if "Failover" in kind else "within=1s"
        return f"consumer {name} {kind}".rstrip()

    def _use_consumer(self) -> str | None:
        if not self._consumers:
            return None
        name, within = self._random.choice(list(self._consumers.items()))
        return self._random.choice(
            [
                f"receive {name} max=50 {within}",
                f"receive {name} max=50 {within} ack",
                f"receive {name} max=3 {within} ack",
                f"receive {name} max=3 {within} ack-cumulative",
                f"seek {name} {self._position()}",
                f"seek {name} earliest",
            ]
        )
