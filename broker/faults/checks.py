"""The check of a new rule: which fields its kind has, and their bounds.

>>> fault = checked(Fault(kind=FAULT_KIND_LOSE_RECEIPT, topic="t", next=1))
>>> fault.topic, FaultOperation.Name(fault.operation)
('persistent://public/default/t', 'FAULT_OPERATION_PUBLISH')
"""

from __future__ import annotations

from typing import NamedTuple

from ledgerfold.broker.common.given_names import check_name
from ledgerfold.broker.common.names import (
    full_topic,
    is_non_persistent,
    namespace_of,
    parse_namespace,
)
from ledgerfold.broker.faults.errors import names_for
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.admin_pb2 import (
    COMPACTION_PHASE_COMMIT,
    COMPACTION_PHASE_ONE,
    COMPACTION_PHASE_TWO,
    FAULT_KIND_DELAY,
    FAULT_KIND_DISCONNECT,
    FAULT_KIND_DISK_FULL,
    FAULT_KIND_FAIL,
    FAULT_KIND_FAIL_COMPACTION,
    FAULT_KIND_LOSE_RECEIPT,
    FAULT_OPERATION_CREATE_PRODUCER,
    FAULT_OPERATION_LOOKUP,
    FAULT_OPERATION_PUBLISH,
    FAULT_OPERATION_READ,
    FAULT_OPERATION_SUBSCRIBE,
    Fault,
    FaultKind,
    FaultOperation,
)

DELAY_MAX_MS = 3_600_000
COUNT_MAX = 1_000_000_000
PHASES = (COMPACTION_PHASE_ONE, COMPACTION_PHASE_TWO, COMPACTION_PHASE_COMMIT)
_TOPICS = frozenset(("topic", "namespace"))
_ALWAYS = frozenset(("id", "kind", "hits", "next"))
_RATES = frozenset(("every", "probability", "seed"))


class _Form(NamedTuple):
    """The operations and further fields of a kind."""

    operations: tuple[FaultOperation, ...] = ()
    fields: frozenset[str] = frozenset()


# The restrictions that a rule of an operation can have.
_SCOPES = {
    FAULT_OPERATION_CREATE_PRODUCER: _TOPICS | {"producer"},
    FAULT_OPERATION_PUBLISH: _TOPICS | {"producer"},
    FAULT_OPERATION_SUBSCRIBE: _TOPICS | {"subscription"},
    FAULT_OPERATION_READ: _TOPICS | {"subscription", "consumer"},
    FAULT_OPERATION_LOOKUP: _TOPICS,
}
_FORMS = {
    FAULT_KIND_FAIL: _Form(tuple(_SCOPES), _RATES | {"operation", "error"}),
    FAULT_KIND_DISCONNECT: _Form(
        (FAULT_OPERATION_PUBLISH, FAULT_OPERATION_READ), _RATES | {"operation"}
    ),
    FAULT_KIND_DELAY: _Form(tuple(_SCOPES), _RATES | {"operation", "delay_ms"}),
    FAULT_KIND_LOSE_RECEIPT: _Form(
        (FAULT_OPERATION_PUBLISH,), _RATES | {"operation", "keeps_connection"}
    ),
    FAULT_KIND_DISK_FULL: _Form(),
    FAULT_KIND_FAIL_COMPACTION: _Form(fields=_TOPICS | _RATES | {"phase"}),
}


def checked(requested: Fault) -> Fault:
    """Returns a new rule with full names and without hits. Raises InvalidRequest."""
    fault = Fault()
    fault.CopyFrom(requested)
    fault.ClearField("id")
    fault.ClearField("hits")
    form = _FORMS.get(fault.kind)
    if form is None:
        raise InvalidRequest(f"A fault needs a kind: {_listed(FaultKind, tuple(_FORMS))}.")
    kind = _word(FaultKind, fault.kind)
    if len(form.operations) == 1:
        fault.operation = fault.operation or form.operations[0]
    if form.operations and fault.operation not in form.operations:
        operations = _listed(FaultOperation, form.operations)
        raise InvalidRequest(f"A fault {kind!r} needs an operation: {operations}.")
    allowed = _ALWAYS | form.fields | _SCOPES.get(fault.operation, frozenset())
    for field, _ in fault.ListFields():
        if field.name not in allowed:
            what = kind
            if form.operations:
                what += f" {_word(FaultOperation, fault.operation)}"
            raise InvalidRequest(f"A fault {what!r} has no {field.name}.")
    _check_numbers(fault)
    _check_effect(fault)
    _check_names(fault)
    return fault


def _check_numbers(fault: Fault) -> None:
    for name, number in (("next", fault.next), ("every", fault.every)):
        if not 0 <= number <= COUNT_MAX:
            raise InvalidRequest(f"{name} is {number}: it must be from 0 to {COUNT_MAX:,}.")
    if not 0 <= fault.probability <= 1:
        raise InvalidRequest(f"probability is {fault.probability}: it must be from 0 to 1.")
    if fault.probability and fault.every:
        raise InvalidRequest("A fault has either every or a probability, not both.")
    if fault.seed and not fault.probability:
        raise InvalidRequest("A fault with a seed needs a probability.")


def _check_effect(fault: Fault) -> None:
    if fault.kind == FAULT_KIND_FAIL and fault.error not in names_for(fault.operation):
        operation = _word(FaultOperation, fault.operation)
        names = ", ".join(names_for(fault.operation))
        raise InvalidRequest(f"{operation} cannot fail with {fault.error!r}. Use {names}.")
    if fault.kind == FAULT_KIND_DELAY and not 0 < fault.delay_ms <= DELAY_MAX_MS:
        raise InvalidRequest(
            f"delay_ms is {fault.delay_ms}: it must be from 1 to {DELAY_MAX_MS:,} (an hour)."
        )
    if fault.kind == FAULT_KIND_FAIL_COMPACTION and fault.phase not in PHASES:
        raise InvalidRequest("A fault 'fail-compaction' needs a phase: one, two, commit.")


def _check_names(fault: Fault) -> None:
    if fault.topic:
        fault.topic = full_topic(fault.topic)
    if is_non_persistent(fault.topic) and fault.operation != FAULT_OPERATION_LOOKUP:
        raise InvalidRequest(f"{fault.topic} is non-persistent: only its lookups can fail.")
    if fault.namespace:
        parse_namespace(fault.namespace)
    if fault.topic and fault.namespace not in ("", namespace_of(fault.topic)):
        raise InvalidRequest(f"{fault.topic} is not in the namespace {fault.namespace}.")
    for what in ("producer", "subscription", "consumer"):
        if name := getattr(fault, what):
            check_name(f"A {what}", name)


def _word(enum: type[FaultKind] | type[FaultOperation], value: int) -> str:
    """Returns a value's name as users write it."""
    name: str = enum.Name(value)
    return name.split("_", 2)[2].lower().replace("_", "-")


def _listed(enum: type[FaultKind] | type[FaultOperation], values: tuple[int, ...]) -> str:
    return ", ".join(_word(enum, value) for value in values)
