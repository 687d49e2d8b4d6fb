"""The rules of a broker, and what they do to an operation.

    >>> faults = Faults()
    >>> kind, on = FAULT_KIND_FAIL, FAULT_OPERATION_PUBLISH
    >>> added = faults.add(Fault(kind=kind, operation=on, error="ProducerBusy", next=1))
    >>> subject = Subject("persistent://public/default/t", producer="p")
    >>> type(faults.effect(on, subject).error).__name__, faults.effect(on, subject)
    ('ProducerBusy', None)
    >>> faults.listed()[0].hits
    1

Every rule sees every operation in its scope, and counts it. If several rules apply, an error takes
precedence over a disconnection, and that over a lost receipt. Delays always apply. Rules are in
memory only. A broker that does not allow faults has no Faults object.

Delays use the machine's clock, even on a broker with a manual clock, because clients measure them
by their own time limits.

Bound: RULES_MAX rules. Thread-safe: writes to the disk ask from other threads.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from copy import deepcopy
from typing import NamedTuple

from ledgerfold.broker.common.shielding import first_of
from ledgerfold.broker.faults.checks import checked
from ledgerfold.broker.faults.errors import disconnected, error_of
from ledgerfold.broker.faults.rules import Rule, Subject
from ledgerfold.storage.errors import FaultNotFound, LedgerfoldError, LimitExceeded, NotAllowed
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_UNSPECIFIED,
    FAULT_KIND_DELAY,
    FAULT_KIND_DISCONNECT,
    FAULT_KIND_DISK_FULL,
    FAULT_KIND_FAIL,
    FAULT_KIND_FAIL_COMPACTION,
    FAULT_KIND_LOSE_RECEIPT,
    FAULT_OPERATION_LOOKUP,
    FAULT_OPERATION_PUBLISH,  # noqa: F401 - for the example above
    FAULT_OPERATION_READ,
    CompactionPhase,
    Fault,
)

RULES_MAX = 100


class Loss(NamedTuple):
    """The loss of a receipt, and the disconnection that comes with it, if any."""

    disconnection: LedgerfoldError | None


class Effect(NamedTuple):
    """The effect of all rules on an operation."""

    delays: Sequence[Rule]
    error: LedgerfoldError | None = None
    disconnection: LedgerfoldError | None = None
    loss: Loss | None = None

    @property
    def cut(self) -> LedgerfoldError | None:
        """The disconnection that it leads to, if any."""
        if self.error is not None:
            return None
        return self.disconnection or (None if self.loss is None else self.loss.disconnection)


class Faults:
    """The rules of one broker, in order of their ids, which are never used twice."""

    def __init__(self) -> None:
        self._rules: dict[int, Rule] = {}
        self._last_id = 0
        self._lock = threading.Lock()
        # Set, and replaced, when rules were removed.
        self._removed = asyncio.Event()
        # Whether a deletion uses the disk reserve: writes succeed then.
        self.is_reserve_lent: Callable[[], bool] = lambda: False

    @property
    def is_empty(self) -> bool:
        """Returns whether there are no rules."""
        return not self._rules

    # Administration, on the event loop

    def add(self, requested: Fault) -> Fault:
        """Adds a rule. Returns it with its id. Raises InvalidRequest, LimitExceeded."""
        fault = checked(requested)
        with self._lock:
            if len(self._rules) >= RULES_MAX:
                remedy = "Remove some: `ledgerfold faults clear` removes all."
                raise LimitExceeded("Faults", RULES_MAX + 1, RULES_MAX, remedy)
            self._last_id += 1
            fault.id = self._last_id
            self._rules[fault.id] = Rule(fault)
            return deepcopy(fault)

    def listed(self) -> list[Fault]:
        """Returns all rules, oldest first."""
        with self._lock:
            return [deepcopy(rule.fault) for rule in self._rules.values()]

    def remove(self, id_: int) -> Fault:
        """Removes a rule. Returns it. Raises FaultNotFound."""
        with self._lock:
            rule = self._rules.pop(id_, None)
        if rule is None:
            raise FaultNotFound(id_)
        self._end_delays()
        return rule.fault

    def clear(self) -> int:
        """Removes all rules. Returns their number."""
        with self._lock:
            count = len(self._rules)
            self._rules.clear()
        self._end_delays()
        return count

    def _end_delays(self) -> None:
        removed, self._removed = self._removed, asyncio.Event()
        removed.set()

    # Operations of clients, on the event loop

    def effect(self, operation: int, subject: Subject, messages: int = 1) -> Effect | None:
        """Returns what happens to an operation, and counts it; None: nothing."""
        if self.is_empty:
            return None
        with self._lock:
            hits = [
                rule
                for rule in self._rules.values()
                if rule.fault.operation == operation
                and rule.applies_to(subject)
                and rule.take(messages)
            ]
        if not hits:
            return None
        failing = _first(hits, FAULT_KIND_FAIL)
        disconnecting = _first(hits, FAULT_KIND_DISCONNECT)
        losing = _first(hits, FAULT_KIND_LOSE_RECEIPT)
        return Effect(
            [rule for rule in hits if rule.fault.kind == FAULT_KIND_DELAY],
            None if failing is None else error_of(failing.error, failing.id, subject),
            None if disconnecting is None else disconnected(disconnecting.id, subject),
            None if losing is None else _loss(losing, subject),
        )

    async def apply_rules(self, operation: int, subject: Subject) -> None:
        """Delays an operation, and fails it, as the rules say."""
        effect = self.effect(operation, subject)
        if effect is None:
            return
        await self.delay(effect.delays)
        if effect.error is not None:
            raise effect.error

    async def delay(
        self,
        rules: Iterable[Rule],
        *,
        since_s: float | None = None,
        interrupted: asyncio.Event | None = None,
    ) -> None:
        """Waits as long as rules that still exist say.

        `since_s`: when the delay began, by the loop's clock; None: now. `interrupted` ends it.
        """
        loop, rules = asyncio.get_running_loop(), list(rules)
        since_s = loop.time() if since_s is None else since_s
        while not (interrupted is not None and interrupted.is_set()):
            left_s = since_s + self._longest_s(rules) - loop.time()
            if left_s <= 0:
                return
            events = [self._removed, *([] if interrupted is None else [interrupted])]
            await first_of(*(event.wait() for event in events), timeout_s=left_s)

    def _longest_s(self, rules: Iterable[Rule]) -> float:
        with self._lock:
            present = [rule for rule in rules if rule.fault.id in self._rules]
        return max((rule.fault.delay_ms / 1000 for rule in present), default=0.0)

    def failing_phase(self, topic: str) -> CompactionPhase:
        """Returns the phase in which the compaction that begins is to fail, and counts it."""
        subject = Subject(topic)
        with self._lock:
            for rule in self._of_kind(FAULT_KIND_FAIL_COMPACTION):
                if rule.applies_to(subject) and rule.take():
                    return rule.fault.phase
        return COMPACTION_PHASE_UNSPECIFIED

    # The disk, on any thread

    @property
    def is_disk_full(self) -> bool:
        with self._lock:
            return any(not rule.is_spent for rule in self._of_kind(FAULT_KIND_DISK_FULL))

    def check_disk(self) -> None:
        """Raises OSError (ENOSPC) if the disk is said to be full. Counts it."""
        if self.is_reserve_lent():
            return
        with self._lock:
            # One rule counts each write: the next one takes over when that is spent.
            is_full = any(rule.take() for rule in self._of_kind(FAULT_KIND_DISK_FULL))
        if is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _of_kind(self, kind: int) -> list[Rule]:
        return [rule for rule in self._rules.values() if rule.fault.kind == kind]


async def looked_up(faults: Faults | None, topic: str) -> None:
    """Delays or refuses a client's lookup of a topic, as the rules of a broker say."""
    if faults is not None:
        await faults.apply_rules(FAULT_OPERATION_LOOKUP, Subject(topic))


def allowed(faults: Faults | None) -> Faults:
    """Returns the faults of a broker that allows them. Raises NotAllowed."""
    if faults is None:
        raise NotAllowed(
            "This broker does not allow faults. Start it with --allow-faults; any client can then "
            "make it fail."
        )
    return faults


def _first(hits: Iterable[Rule], kind: int) -> Fault | None:
    return next((rule.fault for rule in hits if rule.fault.kind == kind), None)


def _loss(fault: Fault, subject: Subject) -> Loss:
    return Loss(None if fault.keeps_connection else disconnected(fault.id, subject))


class Served(NamedTuple):
    """The number of entries to send, the delays before them, and the error after them."""

    served_count: int
    delays: list[Rule]
    error: LedgerfoldError | None = None


def served(faults: Faults, subject: Subject, messages: Iterable[int]) -> Served:
    """Applies the rules to entries, of each of which `messages` has the number of its messages.

    An entry that fails is not sent; one that disconnects is the last one.
    """
    served_count, delays = 0, list[Rule]()
    for count in messages:
        effect = faults.effect(FAULT_OPERATION_READ, subject, count)
        if effect is not None:
            delays += effect.delays
            if effect.error is not None:
                return Served(served_count, delays, effect.error)
            if effect.disconnection is not None:
                return Served(served_count + 1, delays, effect.disconnection)
        served_count += 1
    return Served(served_count, delays)
