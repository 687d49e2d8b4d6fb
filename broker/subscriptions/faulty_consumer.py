"""A consumer on a broker that allows faults: rules delay its messages, fail it or disconnect it.

Messages that are not sent stay unacknowledged: the subscription delivers them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any

from ledgerfold.broker.faults.faults import Faults, served
from ledgerfold.broker.faults.rules import Subject
from ledgerfold.broker.subscriptions.consumer import Consumer, Output
from ledgerfold.storage.errors import LedgerfoldError


class FaultyConsumer(Consumer):
    """A Consumer of the subscription `subscription` of `topic`."""

    def __init__(
        self, faults: Faults, topic: str, subscription: str, *values: Any, **options: Any
    ) -> None:
        super().__init__(*values, **options)
        self._faults = faults
        self._subject = Subject(topic, subscription=subscription, consumer=self.name)
        # Set when it ends: it does not wait for a delay then.
        self._ending = asyncio.Event()

    def end(self, error: LedgerfoldError | None) -> None:
        super().end(error)
        self._ending.set()

    async def take(self) -> Output | None:
        output = await super().take()
        if output is None or not output.deliveries:
            return output
        met = served(self._faults, self._subject, (each.messages for each in output.deliveries))
        await self._faults.delay(met.delays, interrupted=self._ending)
        if self._ending.is_set():
            return await super().take()
        if met.error is not None:
            self.end(met.error)
        return output._replace(deliveries=output.deliveries[: met.served_count])


def consumer_kind(faults: Faults | None, topic: str, subscription: str) -> Callable[..., Consumer]:
    """Returns what creates consumers on a broker with these faults."""
    return Consumer if faults is None else partial(FaultyConsumer, faults, topic, subscription)
