"""The errors that a rule can fail an operation with, by the names of their classes.

>>> print(error_of("ProducerBusy", 7, Subject("persistent://a/b/t", producer="p")))
Topic persistent://a/b/t accepts no producer: fault 7 refuses it (`ledgerfold faults list`).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import NamedTuple

from ledgerfold.broker.faults.rules import Subject
from ledgerfold.storage.errors import (
    BacklogQuotaExceeded,
    Corruption,
    DiskFailure,
    LedgerfoldError,
    Moved,
    NotAllowed,
    Overloaded,
    ProducerBusy,
    ProducerFenced,
    SubscriptionBusy,
    TopicNotFound,
    TopicTerminated,
    Unavailable,
)
from ledgerfold.v1.admin_pb2 import (
    FAULT_OPERATION_CREATE_PRODUCER,
    FAULT_OPERATION_LOOKUP,
    FAULT_OPERATION_PUBLISH,
    FAULT_OPERATION_READ,
    FAULT_OPERATION_SUBSCRIBE,
)

_PRODUCING = frozenset((FAULT_OPERATION_CREATE_PRODUCER, FAULT_OPERATION_PUBLISH))
_CONNECTING = frozenset(
    (FAULT_OPERATION_CREATE_PRODUCER, FAULT_OPERATION_SUBSCRIBE, FAULT_OPERATION_LOOKUP)
)
_ANY = _PRODUCING | _CONNECTING | {FAULT_OPERATION_READ}


class _Kind(NamedTuple):
    """An error: the operations that it fits, and how it is built from a subject and a reason."""

    operations: frozenset[int]
    make: Callable[[Subject, str], LedgerfoldError]


def _full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


_KINDS = {
    "BacklogQuotaExceeded": _Kind(_PRODUCING, lambda on, why: BacklogQuotaExceeded(on.topic)),
    "Corruption": _Kind(
        frozenset((FAULT_OPERATION_READ,)),
        lambda on, why: Corruption(on.topic, 0, "what was written", why.rstrip(".")),
    ),
    "DiskFailure": _Kind(
        _ANY - {FAULT_OPERATION_LOOKUP}, lambda on, why: DiskFailure(on.topic, why, _full())
    ),
    "NotAllowed": _Kind(_ANY, lambda on, why: NotAllowed(f"{on.topic}: {why}")),
    "Overloaded": _Kind(_ANY, lambda on, why: Overloaded(f"{on.topic}: {why}")),
    "ProducerBusy": _Kind(_PRODUCING, lambda on, why: ProducerBusy(on.topic, on.producer, why)),
    "ProducerFenced": _Kind(_PRODUCING, lambda on, why: ProducerFenced(on.topic, why)),
    "SubscriptionBusy": _Kind(
        frozenset((FAULT_OPERATION_SUBSCRIBE,)),
        lambda on, why: SubscriptionBusy(on.topic, on.subscription, why),
    ),
    "TopicNotFound": _Kind(_CONNECTING, lambda on, why: TopicNotFound(on.topic, why.capitalize())),
    "TopicTerminated": _Kind(_PRODUCING, lambda on, why: TopicTerminated(on.topic)),
    "Unavailable": _Kind(_ANY, lambda on, why: Unavailable(f"{on.topic}: {why}")),
}


def names_for(operation: int) -> list[str]:
    """Returns the names of the errors that an operation can fail with."""
    return [name for name, kind in _KINDS.items() if operation in kind.operations]


def error_of(name: str, fault_id: int, subject: Subject) -> LedgerfoldError:
    """Returns the error of a rule that hits."""
    return _KINDS[name].make(subject, f"fault {fault_id} refuses it (`ledgerfold faults list`).")


def disconnected(fault_id: int, subject: Subject) -> Moved:
    """Returns the error of a disconnected producer, consumer or reader, which connects again."""
    return Moved(f"{subject.topic}: fault {fault_id} has disconnected it; connect again.")
