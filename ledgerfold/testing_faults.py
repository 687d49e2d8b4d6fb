"""Fault injection in the topics of a test's namespace. The faults end with the test.

    >>> from ledgerfold.testing import ExistingBroker, Namespace
    >>> with ExistingBroker("127.0.0.1:7650") as broker, Namespace(broker, "tests/faulty") as made:
    ...     busy = made.faults.fail("publish", "ProducerBusy", topic="prices", next=1)
    ...     producer = made.client.create_producer(made.topic("prices"))
    ...     try:
    ...         producer.send(b"10")
    ...     except ProducerBusy:
    ...         print("busy", busy.hits)
    ...     message_id = producer.send(b"10")
    busy 1

docs/TESTING.md describes the kinds. The broker must allow them: `serve --allow-faults`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypedDict, TypeVar, Unpack

from ledgerfold.errors import FaultNotFound, ProducerBusy
from ledgerfold.testing_broker import milliseconds

if TYPE_CHECKING:
    from ledgerfold.admin import Admin
    from ledgerfold.testing_broker import ExistingBroker

_P = ParamSpec("_P")
_R = TypeVar("_R")
# For the example above.
__all__ = ["AsyncFaults", "Faults", "InjectedFault", "ProducerBusy", "Scope"]


class Scope(TypedDict, total=False):
    """The operations that a rule hits: those that match all given names.

    `topic`: the short name of a topic of the namespace, or a full name; by default all topics of
    the namespace. `next`: the number of hits after which the rule ends; by default it never does.
    `every`: with 100, the rule hits each hundredth message. `probability`, from 0 to 1: the rule
    hits entries at random, and for the same `seed` always the same ones.
    """

    topic: str
    producer: str
    subscription: str
    consumer: str
    next: int
    every: int
    probability: float
    seed: int


class InjectedFault:
    """A rule. A `with` or `async with` statement with it removes it at the end of the block."""

    def __init__(self, admin: Admin, id_: int) -> None:
        self._admin, self.id = admin, id_

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.remove()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await asyncio.to_thread(self.remove)

    @property
    def hits(self) -> int:
        """The number of its hits. Raises FaultNotFound once it is removed."""
        for fault in self._admin.list_faults():
            if fault.id == self.id:
                return fault.hits
        raise FaultNotFound(self.id)

    def remove(self) -> None:
        """Removes the rule; what it delays continues at once. Idempotent."""
        with suppress(FaultNotFound):
            self._admin.remove_fault(self.id)


class Faults:
    """The faults of a namespace. All methods raise NotAllowed, InvalidRequest, LimitExceeded."""

    def __init__(self, broker: ExistingBroker, namespace: str) -> None:
        self._broker, self._namespace = broker, namespace
        self._added: list[InjectedFault] = []

    def fail(self, operation: str, error: str, **scope: Unpack[Scope]) -> InjectedFault:
        """Fails an operation with an error: the name of a class of `ledgerfold.errors`.

        `operation`: "create-producer", "publish", "subscribe", "read" or "lookup".
        """
        return self._add("fail", operation, scope, error=error)

    def disconnect(self, operation: str, **scope: Unpack[Scope]) -> InjectedFault:
        """Disconnects producers ("publish"), or consumers and readers ("read")."""
        return self._add("disconnect", operation, scope)

    def delay(self, operation: str, by: timedelta, **scope: Unpack[Scope]) -> InjectedFault:
        """Delays each answer of an operation by a time, also if the broker has a manual clock."""
        return self._add("delay", operation, scope, delay_ms=milliseconds(by))

    def lose_receipts(
        self, *, keep_connection: bool = False, **scope: Unpack[Scope]
    ) -> InjectedFault:
        """Stores messages, but disconnects their producer instead of sending the receipts.

        `keep_connection`: the producer stays connected, and the receipts are only not sent.
        """
        return self._add("lose-receipt", "", scope, keeps_connection=keep_connection)

    def fail_compactions(self, phase: str, **scope: Unpack[Scope]) -> InjectedFault:
        """Kills the compactor in phase "one" or "two" of a compaction, or fails the "commit"."""
        return self._add("fail-compaction", "", scope, phase=phase)

    def disk_full(self, *, next: int = 0) -> InjectedFault:
        """Fails all writes of the broker, also those of other namespaces."""
        added = self._broker.admin.add_fault("disk-full", next=next)
        return self._noted(added.id)

    def clear(self) -> None:
        """Removes the rules that were added here."""
        while self._added:
            self._added.pop().remove()

    def _add(self, kind: str, operation: str, scope: Scope, **effect: Any) -> InjectedFault:
        given: dict[str, Any] = {**scope, **effect}
        topic = given.get("topic")
        if topic and "://" not in topic:
            given["topic"] = f"persistent://{self._namespace}/{topic}"
        added = self._broker.admin.add_fault(kind, operation, namespace=self._namespace, **given)
        return self._noted(added.id)

    def _noted(self, id_: int) -> InjectedFault:
        fault = InjectedFault(self._broker.admin, id_)
        self._added.append(fault)
        return fault


def _in_thread(
    method: Callable[Concatenate[Faults, _P], _R],
) -> Callable[Concatenate[AsyncFaults, _P], Coroutine[Any, Any, _R]]:
    """Returns a method of AsyncFaults that calls the one of Faults without blocking the loop."""

    @functools.wraps(method)
    async def call(self: AsyncFaults, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        # By name: a subclass of Faults may have another method.
        own: Callable[_P, _R] = getattr(self._faults, method.__name__)
        return await asyncio.to_thread(own, *args, **kwargs)

    return call


class AsyncFaults:
    """The methods of Faults for asyncio: they do not block the event loop."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    fail = _in_thread(Faults.fail)
    disconnect = _in_thread(Faults.disconnect)
    delay = _in_thread(Faults.delay)
    lose_receipts = _in_thread(Faults.lose_receipts)
    fail_compactions = _in_thread(Faults.fail_compactions)
    disk_full = _in_thread(Faults.disk_full)
    clear = _in_thread(Faults.clear)
