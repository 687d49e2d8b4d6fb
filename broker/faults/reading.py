"""Applies rules to entries that are about to be sent to a consumer or reader."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from ledgerfold.broker.faults.faults import Faults
from ledgerfold.broker.faults.rules import Rule, Subject
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.v1.admin_pb2 import FAULT_OPERATION_READ


class Served(NamedTuple):
    """The number of entries to send, the delays before them, and the error after them."""

    kept: int
    delays: list[Rule]
    error: LedgerfoldError | None = None


def served(faults: Faults, subject: Subject, messages: Iterable[int]) -> Served:
    """Applies the rules to entries, of each of which `messages` has the number of its messages.

    An entry that fails is not sent; one that disconnects is the last one.
    """
    kept, delays = 0, list[Rule]()
    for count in messages:
        effect = faults.effect(FAULT_OPERATION_READ, subject, count)
        if effect is not None:
            delays += effect.delays
            if effect.error is not None:
                return Served(kept, delays, effect.error)
            if effect.disconnection is not None:
                return Served(kept + 1, delays, effect.disconnection)
        kept += 1
    return Served(kept, delays)
