"""Moments: points exactly during, or right after, an event, at which an operation may begin.

An operation armed for a moment begins at the loop's next step after it: a consumer acknowledges
while its cursor is being written, the power fails right after a receipt, a topic is unloaded while
a run is in the worker. The seed's number among all pairs (`pairs`) determines the pair of moment
and operation of a scenario, so that rare ones occur as often as any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ledgerfold.v1.records_pb2 import (
    LEDGER_STATE_DELETING,
    RUN_STATE_SUCCESS,
    LedgerRecord,
    RunRecord,
    TopicRecord,
)

# Metadata writes, by subject (write_kind()).
WRITES = ("cursor", "snapshot", "producer", "commit", "run", "trim", "ledger", "segment", "topic")
CALLS = ("write", "sync", "create", "remove_dir", "read")
RECEIPT, ANSWER, DELIVERY = "a receipt is sent", "an ack is answered", "an entry is sent"
DONE = "an order is answered"
WORKER_READS, WORKER_WRITES = "the worker reads", "the worker writes"
MANIFEST = "a manifest comes"


def is_being_written(kind: str) -> str:
    return f"{kind}: before its write"


def is_written(kind: str) -> str:
    return f"{kind}: behind its write"


def is_called(call: str) -> str:
    return f"{call}: before the call"


CALLED = {each: is_called(each) for each in CALLS}
CALLED_BY_WORKER = {"read": WORKER_READS, "write": WORKER_WRITES}

MOMENTS = (
    *map(is_being_written, WRITES),
    *map(is_written, WRITES),
    *map(is_called, CALLS),
    RECEIPT,
    ANSWER,
    DELIVERY,
    DONE,
    WORKER_READS,
    WORKER_WRITES,
    MANIFEST,
)
# The operations that begin at one, with their relative frequencies.
ACTIONS: Mapping[str, int] = {
    "die": 2,
    "go_dark": 2,
    "publish": 1,
    "resend": 1,
    "reconnect": 1,
    "acknowledge": 2,
    "cut_consumer": 1,
    "seek_subscription": 1,
    "unsubscribe": 1,
    "pass_over": 1,
    "check": 1,
    "permit": 1,
    "compact": 1,
    "cancel": 1,
    "unload": 2,
    "trim": 1,
    "truncate": 1,
    "disable_compaction": 1,
    "set_policies": 1,
    "delete_topic": 1,
    "fail_call": 2,
    "kill_worker": 1,
}
KAFKA_WRITES = ("kafka roll", "kafka clean", "kafka drop", "kafka record", "segment")
KAFKA_MOMENTS = (
    *map(is_being_written, KAFKA_WRITES),
    *map(is_written, KAFKA_WRITES),
    *map(is_called, CALLS),
    RECEIPT,
    DONE,
    WORKER_READS,
    WORKER_WRITES,
    MANIFEST,
)
KAFKA_ACTIONS: Mapping[str, int] = {
    "die": 2,
    "go_dark": 2,
    "kafka_publish": 1,
    "kafka_resend": 1,
    "kafka_bump": 2,
    "kafka_read": 1,
    "kafka_roll": 1,
    "kafka_clean": 1,
    "kafka_retain": 1,
    "kafka_config": 1,
    "kafka_log_start": 1,
    "kafka_pause": 1,
    "unload": 2,
    "delete_topic": 1,
    "fail_call": 2,
    "kill_worker": 1,
}
# Where snapshots bring everything back.
_WHOLE_ACTIONS = {"save_snapshot": 1, "restore_snapshot": 2, "delete_snapshot": 1}
_PRIME = 7_919


class Pair(NamedTuple):
    moment: str
    operation: str


def pairs(moments: Iterable[str], actions: Mapping[str, int]) -> tuple[Pair, ...]:
    """Returns all pairs; an action with double weight occurs twice."""
    return tuple(
        Pair(moment, action)
        for moment in moments
        for action, count in actions.items()
        for _ in range(count)
    )


PAIRS = pairs(MOMENTS, ACTIONS)
KAFKA_PAIRS = pairs(KAFKA_MOMENTS, KAFKA_ACTIONS)
WHOLE_PAIRS = pairs(MOMENTS, {**ACTIONS, **_WHOLE_ACTIONS})
WHOLE_KAFKA_PAIRS = pairs(KAFKA_MOMENTS, {**KAFKA_ACTIONS, **_WHOLE_ACTIONS, "kafka_truncate": 2})


def pair_of(all_pairs: tuple[Pair, ...], number: int) -> Pair:
    """Returns a pair for a number: consecutive numbers give unrelated pairs, and all of them."""
    return all_pairs[number * _PRIME % len(all_pairs)]


class Moments:
    """The moments of one simulation. `fired`: the pairs that occurred; `last`: the previous one."""

    def __init__(self) -> None:
        self._armed: dict[str, list[tuple[int, str, Callable[[], None]]]] = {}
        self._due: list[Callable[[], None]] = []
        self.fired: Counter[Pair] = Counter()
        self.last = ""

    def arm(self, moment: str, skip: int, name: str, action: Callable[[], None]) -> None:
        """Arms for the moment after the next `skip` of its kind."""
        self._armed.setdefault(moment, []).append((skip, name, action))

    def reach(self, moment: str) -> None:
        """Records that the moment has come."""
        self.last = moment
        waiting = self._armed.get(moment)
        if not waiting:
            return
        skip, name, action = waiting[0]
        if skip:
            waiting[0] = (skip - 1, name, action)
            return
        del waiting[0]
        self.fired[Pair(moment, name)] += 1
        self._due.append(action)

    def disarm(self) -> None:
        """Disarms: the event will not occur."""
        self._armed.clear()
        self._due.clear()

    def run_due(self) -> None:
        """Called between two steps of the loop."""
        while self._due:
            self._due.pop(0)()


def write_kind(puts: Mapping[bytes, bytes], get: Callable[[bytes], bytes | None]) -> str:
    """Returns the kind of a metadata write; "": no particular kind."""
    kinds = {key.partition(b"/")[0] for key in puts}
    if b"cursor" in kinds:
        return "cursor"
    if b"run" in kinds:
        runs = (value for key, value in puts.items() if key.startswith(b"run/"))
        is_commit = b"topic" in kinds and any(
            RunRecord.FromString(each[1:]).state == RUN_STATE_SUCCESS for each in runs
        )
        return "commit" if is_commit else "run"
    if b"producer" in kinds:
        return "producer" if b"topic" in kinds else "snapshot"
    if b"topic" not in kinds:
        return "segment" if b"ledger" in kinds else ""
    ledgers = [
        LedgerRecord.FromString(value[1:])
        for key, value in puts.items()
        if key.startswith(b"ledger/")
    ]
    key, value = next((key, value) for key, value in puts.items() if key.startswith(b"topic/"))
    record = TopicRecord.FromString(value[1:])
    if record.HasField("kafka"):
        return _kafka_kind(record, get(key))
    if any(each.state == LEDGER_STATE_DELETING for each in ledgers):
        return "trim"
    return "ledger" if ledgers else "topic"


def _kafka_kind(record: TopicRecord, before: bytes | None) -> str:
    known = TopicRecord() if before is None else TopicRecord.FromString(before[1:])
    if record.kafka.first_dirty_offset != known.kafka.first_dirty_offset:
        return "kafka clean"
    if record.kafka.log_start_offset != known.kafka.log_start_offset:
        return "kafka drop"
    if len(record.ledger_ids) > len(known.ledger_ids):
        return "kafka roll"
    return "kafka record"
