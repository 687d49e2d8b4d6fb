"""Histories of Kafka logs from seeds: requests of the kafka-oracle.

    >>> history(7) == history(7)
    True

A history creates one to three logs with different settings, and then appends (plain, idempotent,
transactional, as a follower, without keys), ends transactions, rolls, moves the clock, the high
watermark and the log start, truncates, reopens and crashes, changes settings, pauses, and runs
passes. It only estimates the end of a log, never too low, so that a follower's offsets fit.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Mapping
from typing import Any

Request = dict[str, Any]

# Kafka's longest: no delete horizon has so many bits.
_FOREVER = str(2**63 - 1)
_KEYS = tuple("abcdefg")
_CODECS = ("gzip", "snappy", "lz4", "zstd")
_STEPS_MIN, _STEPS_MAX = 15, 60
_CRASH_POINTS = ("writing", "renaming", "renamed", "marking", "finishing", "swapped")
TURNS = ("clean", "crash")


def history(
    seed: int,
    *,
    compressed: bool = True,
    leaves_out: Collection[str] = (),
    since_ms: int | None = None,
) -> list[Request]:
    """`leaves_out`: kinds of requests (kind_of) that a subject does not support.

    `since_ms`: its start, if a clock cannot be set back.
    """
    made = _History(random.Random(seed), compressed, leaves_out)
    if since_ms is not None:
        made.begin_at(since_ms)
    return made.requests()


def kind_of(request: Mapping[str, Any]) -> str:
    """Returns the operation, with the parts that not every subject supports."""
    op: str = request["op"]
    if op == "crash":
        return f"{op} {request['point']}"
    if op == "read":
        return f"{op} {request['isolation']}"
    if op == "plan" and "checkpoint" in request:
        return f"{op} from"
    if op == "reopen":
        return f"{op} closed" if request["clean"] else f"{op} killed"
    for hook in request.get("during", ()):
        return f"{op} during {hook['ops'][0]['op']}"
    return op


class _Producer:
    def __init__(self, pid: int) -> None:
        self.pid, self.epoch, self.sequence = pid, 0, 0
        self.is_open = False


class _Log:
    def __init__(self, name: str) -> None:
        self.name, self.end = name, 0
        self.producers: dict[int, _Producer] = {}
        self.paused = 0


class _History:
    def __init__(
        self, chance: random.Random, compressed: bool, leaves_out: Collection[str]
    ) -> None:
        self._chance, self._compressed, self._leaves_out = chance, compressed, leaves_out
        self._value = 0
        self._now_ms = chance.choice([0, 1_000_000, 1_700_000_000_000])
        self._logs = [_Log(f"t-{n}") for n in range(chance.choices([1, 2, 3], [7, 2, 1])[0])]

    def _is(self, probability: float) -> bool:
        return self._chance.random() < probability

    def begin_at(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def requests(self) -> list[Request]:
        made = [self._reset(), *(self._create(log) for log in self._logs)]
        kinds: list[tuple[int, Callable[[_Log], Request | None]]] = [
            (10, self._append),
            (7, self._idempotent),
            (6, self._transactional),
            (4, self._marker),
            (1, self._follow),
            (7, self._roll),
            (5, self._advance),
            (2, self._high_watermark),
            (1, self._move_start),
            (0 if "truncate" in self._leaves_out else 1, self._truncate),
            (1, self._reopen),
            (1, self._change),
            (1, self._retention),
            (1, self._pause),
            (1, self._checkpoint),
            (1, self._crash),
            (2, self._ask),
            (9, self._clean),
        ]
        weights = [weight for weight, _ in kinds]
        wanted = self._chance.randint(_STEPS_MIN, _STEPS_MAX)
        while len(made) < wanted:
            _, make = self._chance.choices(kinds, weights)[0]
            request = make(self._chance.choice(self._logs))
            if request is not None and kind_of(request) not in self._leaves_out:
                made.append(request)
        return [*made, {"op": "clean"}]

    # Settings

    def _reset(self) -> Request:
        request: Request = {"op": "reset", "clock": self._now_ms}
        if self._is(0.3):
            request["keys"] = self._chance.randint(1, 6)
        elif self._is(0.1):
            request |= {"dedupeBufferBytes": 24 * self._chance.randint(4, 9), "loadFactor": 0.5}
        if self._is(0.25):
            request["producerIdExpirationMs"] = self._chance.choice([1, 1000, 600_000])
        return request

    def _create(self, log: _Log) -> Request:
        config = {
            "cleanup.policy": self._policy(),
            "min.cleanable.dirty.ratio": self._chance.choice(["0", "0", "0.01", "0.3", "0.5", "1"]),
            "internal.segment.bytes": str(self._chance.choice([150, 300, 500, 1000, 1 << 20])),
            "index.interval.bytes": self._chance.choice(["0", "100", "4096"]),
            "delete.retention.ms": self._chance.choice(["0", "10", "1000", "86400000", _FOREVER]),
        }
        for probability, name, choices in (
            (0.15, "min.compaction.lag.ms", ["1", "50", "1000"]),
            (0.15, "max.compaction.lag.ms", ["1000", "2000"]),
            (0.15, "segment.ms", ["1", "500"]),
            (0.3, "retention.ms", ["1", "1000", "-1"]),
            (0.2, "retention.bytes", ["0", "500", "2000"]),
            (0.1, "message.timestamp.type", ["LogAppendTime"]),
            (0.05, "max.message.bytes", ["120", "300"]),
        ):
            if self._is(probability):
                config[name] = self._chance.choice(choices)
        if len(self._logs) > 1 and self._is(0.2):
            # A cleaning may fail because of it, which a crash cannot emulate.
            config["segment.index.bytes"] = self._chance.choice(["36", "48", "100"])
        return {"op": "create", "log": log.name, "config": config}

    def _policy(self) -> str:
        policies = ["compact", "compact,delete", "delete"]
        return self._chance.choices(policies, [6, 2, 2])[0]

    def _change(self, log: _Log) -> Request:
        config = self._chance.choice(
            [
                {"cleanup.policy": self._policy()},
                {"cleanup.policy": "compact"},
                {"min.cleanable.dirty.ratio": "0"},
                {"delete.retention.ms": self._chance.choice(["0", "500", None])},
                {"min.compaction.lag.ms": self._chance.choice(["100", None])},
                {"internal.segment.bytes": self._chance.choice(["200", "800", "100000"])},
            ]
        )
        return {"op": "config", "log": log.name, "config": config}

    # Appending

    def _records(self) -> list[Request]:
        count = self._chance.choices([1, 2, 3, 5], [6, 3, 2, 1])[0]
        return [self._record() for _ in range(count)]

    def _record(self) -> Request:
        self._value += 1
        key = None if self._is(0.04) else self._chance.choice(_KEYS)
        record: Request = {"key": key, "value": f"v{self._value}"}
        if self._is(0.25):
            record["value"] = None
        elif self._is(0.1):
            record = {"key": key, "valueBytes": self._chance.choice([0, 30, 100, 200])}
        if self._is(0.15):
            record["timestamp"] = max(0, self._now_ms + self._chance.randint(-3000, 3000))
        elif self._is(0.03):
            # None, or one that is too far ahead.
            record["timestamp"] = self._chance.choice([-1, self._now_ms + 3_600_001])
        return record

    def _batch(self, log: _Log, **fields: Any) -> Request:
        request: Request = {"op": "append", "log": log.name, "records": self._records()}
        if fields or self._is(0.6):
            request["batch"] = True
        if self._compressed and self._is(0.12):
            request["codec"] = self._chance.choice(_CODECS)
        log.end += len(request["records"])
        return {**request, **fields}

    def _append(self, log: _Log) -> Request:
        return self._batch(log, origin="coordinator") if self._is(0.03) else self._batch(log)

    def _sent(self, log: _Log, is_transactional: bool) -> Request:
        pid = self._chance.randint(1, 3) + (10 if is_transactional else 0)
        producer = log.producers.setdefault(pid, _Producer(pid))
        if self._is(0.05):
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        sequence = producer.sequence
        if self._is(0.06):
            sequence = max(0, sequence + self._chance.randint(-2, 2))
        fields: Request = {"pid": pid, "epoch": producer.epoch, "sequence": sequence}
        if is_transactional:
            fields["transactional"] = producer.is_open = True
        request = self._batch(log, **fields)
        producer.sequence = sequence + len(request["records"])
        return request

    def _idempotent(self, log: _Log) -> Request:
        return self._sent(log, is_transactional=False)

    def _transactional(self, log: _Log) -> Request:
        return self._sent(log, is_transactional=True)

    def _marker(self, log: _Log) -> Request | None:
        begun = [producer for producer in log.producers.values() if producer.is_open]
        if not begun:
            return None
        producer = self._chance.choice(begun)
        producer.is_open = self._is(0.05)
        log.end += 1
        kind = self._chance.choice(["commit", "abort"])
        fields = {"pid": producer.pid, "epoch": producer.epoch, "type": kind}
        return {"op": "marker", "log": log.name, **fields}

    def _follow(self, log: _Log) -> Request:
        at = log.end + self._chance.choices([0, 1, 5, 2**31 - 2], [8, 6, 6, 1])[0]
        request = self._batch(log, at=at)
        count = len(request["records"])
        for n, record in enumerate(request["records"]):
            if self._is(0.5):
                record["offset"] = at + 2 * n
        offset = at
        for record in request["records"]:
            offset = max(record.get("offset", offset), offset) + 1
            record["offset"] = offset - 1
        log.end = offset
        if self._is(0.3):
            log.end += count
            request["last"] = log.end - 1
        return request

    # Time and offsets

    def _roll(self, log: _Log) -> Request:
        return {"op": "roll", "log": log.name}

    def _advance(self, log: _Log) -> Request:
        by = self._chance.choice([1, 10, 100, 1000, 2000, 100_000, 700_000, 90_000_000])
        self._now_ms += by
        return {"op": "clock", "advance": by}

    def _offset(self, log: _Log) -> int:
        return self._chance.randint(0, log.end)

    def _high_watermark(self, log: _Log) -> Request:
        request: Request = {"op": "high-watermark", "log": log.name}
        if self._is(0.5):
            request["offset"] = self._offset(log)
        return request

    def _move_start(self, log: _Log) -> Request:
        return {"op": "log-start", "log": log.name, "offset": self._offset(log)}

    def _truncate(self, log: _Log) -> Request:
        offset = self._offset(log)
        log.end = min(log.end, offset)
        return {"op": "truncate", "log": log.name, "offset": offset}

    def _reopen(self, log: _Log) -> Request:
        return {"op": "reopen", "log": log.name, "clean": self._is(0.5)}

    # The cleaner

    def _retention(self, log: _Log) -> Request:
        return self._chance.choice([{"op": "retention"}, {"op": "delete-old", "log": log.name}])

    def _pause(self, log: _Log) -> Request:
        if log.paused and self._is(0.8):
            log.paused -= 1
            return {"op": "resume", "log": log.name}
        log.paused += 1
        return {"op": "pause", "log": log.name}

    def _checkpoint(self, log: _Log) -> Request:
        return {"op": "checkpoint-set", "log": log.name, "offset": self._offset(log)}

    def _ask(self, log: _Log) -> Request:
        """Requests something that changes nothing."""
        isolation = self._chance.choice(["uncommitted", "committed", "end"])
        sizes = {"bytes": self._chance.randint(100, 2000), "indexBytes": 100}
        asked: Request = self._chance.choice(
            [
                {"op": "plan"},
                {"op": "plan", "checkpoint": self._offset(log)},
                {"op": "read", "isolation": isolation, "offset": self._offset(log) + 1},
                {"op": "group", **sizes},
                {"op": "state"},
            ]
        )
        return {**asked, "log": log.name}

    def _clean(self, log: _Log) -> Request:
        """Runs a pass, rarely with another request during it."""
        if not self._is(0.12):
            return {"op": "clean"}
        make = self._chance.choice([self._append, self._roll, self._move_start, self._halt])
        phase = self._chance.choice(["map", "copy"])
        return {"op": "clean", "during": [{"at": phase, "ops": [make(log)]}]}

    def _halt(self, log: _Log) -> Request:
        log.paused += 1
        return {"op": "pause", "log": log.name}

    def _crash(self, log: _Log) -> Request | None:
        """The oracle's crash ends the background work of all its logs: with one alone."""
        if len(self._logs) > 1:
            return None
        return {"op": "crash", "log": log.name, "point": self._chance.choice(_CRASH_POINTS)}
