"""A fault rule: the operations that it applies to, and those that it hits. Pure.

    >>> rule = Rule(Fault(kind=FAULT_KIND_DISCONNECT, topic="persistent://a/b/t", every=3))
    >>> rule.applies_to(Subject("persistent://a/b/t-partition-0")), rule.applies_to(Subject("u"))
    (True, False)
    >>> [rule.take() for _ in range(6)]
    [False, False, True, False, False, True]

A rule with `every` counts messages: an entry with a batch of them counts as all of them, and is hit
at most once. It never hits two entries in a row: otherwise a batch that is larger than the period
would be hit each time a client sends it again. A rule with `probability` draws a number for each
entry: the size of a batch does not matter. Its generator starts with `seed`, so a test that repeats
the same operations gets the same faults. A rule with `next` has no effect after so many hits; it
stays in the list.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from ledgerfold.broker.common.names import namespace_of
from ledgerfold.storage.partition_names import base_topic
from ledgerfold.v1.admin_pb2 import FAULT_KIND_DISCONNECT, Fault

__all__ = ["FAULT_KIND_DISCONNECT", "Fault", "Rule", "Subject"]


class Subject(NamedTuple):
    """The names that an operation concerns. `topic`: a full one. "": there is none."""

    topic: str = ""
    producer: str = ""
    subscription: str = ""
    consumer: str = ""


class Rule:
    """A rule and its counts. Only one thread at a time may use it."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self._message_count = 0
        self._has_just_hit = False
        self._random = random.Random(fault.seed % 2**64)

    @property
    def is_spent(self) -> bool:
        """Returns whether it has hit as often as it may."""
        return 0 < self.fault.next <= self.fault.hits

    def applies_to(self, subject: Subject) -> bool:
        """Returns whether the subject is in its scope."""
        fault = self.fault
        return (
            # A rule of a partitioned topic applies to its partitions.
            (not fault.topic or fault.topic in (subject.topic, base_topic(subject.topic)))
            and (not fault.namespace or fault.namespace == namespace_of(subject.topic))
            and (not fault.producer or fault.producer == subject.producer)
            and (not fault.subscription or fault.subscription == subject.subscription)
            and (not fault.consumer or fault.consumer == subject.consumer)
        )

    def take(self, messages: int = 1) -> bool:
        """Counts the messages of an entry in its scope. Returns whether it hits the entry."""
        if self.is_spent:
            return False
        if self.fault.probability:
            hits = self._random.random() < self.fault.probability
        else:
            hits = self._is_due(messages)
        self.fault.hits += hits
        return hits

    def _is_due(self, messages: int) -> bool:
        every, before = self.fault.every or 1, self._message_count
        self._message_count += max(1, messages)
        is_due = self._message_count // every > before // every
        self._has_just_hit = is_due and not (self._has_just_hit and every > 1)
        return self._has_just_hit
