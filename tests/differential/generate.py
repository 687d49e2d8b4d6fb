"""Scenarios from seeds: steps of the notation, with no expectation.

    >>> scenario(7) == scenario(7)
    True

A scenario publishes (keys, no keys, tombstones, empty values, batches, compression, event times,
properties), compacts, unloads and trims, and reads: from earliest, latest and ids, inclusive or
not, raw and read-compacted, with readers that stay open and seek, with consumers of each type.
What depends on chance or on time in one of the brokers is left out: two consumers that share,
batches of one (Pulsar's clients disagree on them), what is on its way while something happens, and
what Pulsar trims in the background.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

_KEYS = ("a", "b", "c", "d", "~", '""')
_KEY_WEIGHTS = (6, 6, 4, 3, 2, 1)
_COMPRESSIONS = ("LZ4", "ZLIB", "ZSTD", "SNAPPY")
_STEPS_MIN, _STEPS_MAX = 5, 14


def scenario(seed: int) -> list[str]:
    """Steps, one a line."""
    return _Generator(Random(seed)).steps()


class _Generator:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._value = 0
        self._has_closed = self._has_moved = False
        # Batch size of each entry published so far; 0: published alone.
        self._entries: list[int] = []
        self._readers: list[str] = []
        # How long to wait for messages, by consumer.
        self._consumers: dict[str, str] = {}

    def steps(self) -> list[str]:
        found = [self._publish()]
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
        ]
        weights = [weight for weight, _ in kinds]
        wanted = self._random.randint(_STEPS_MIN, _STEPS_MAX)
        while len(found) < wanted:
            _, make = self._random.choices(kinds, weights)[0]
            step = make()
            if step is not None:
                found += [step, *self._settled(step)]
        return [*found, "RC-read", "raw-read"]

    def _settled(self, step: str) -> list[str]:
        """What moves a cursor behind a closed ledger has it trimmed, sooner or later: now."""
        self._has_closed |= step == "unload"
        self._has_moved |= step == "compact" or " ack" in step
        self._has_moved |= step.startswith(("unsubscribe", "seek c"))
        return ["trim"] if self._has_moved and self._has_closed else []

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
        value = self._random.choices((str(self._value), "∅", '""'), (7, 2, 1))[0]
        text = f"{key}={value}"
        if self._random.random() < 0.1:
            text += f"@{self._random.randint(1, 9)}"
        if self._random.random() < 0.1:
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
