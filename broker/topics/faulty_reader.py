"""A reader on a broker that allows faults: rules delay its messages, fail it or disconnect it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ledgerfold.broker.faults.faults import Faults
from ledgerfold.broker.faults.reading import served
from ledgerfold.broker.faults.rules import Subject
from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.policies.profiles import Emulation
from ledgerfold.broker.topics.loaded_topic import LoadedTopic
from ledgerfold.broker.topics.reader import Reader, ReaderOptions
from ledgerfold.broker.topics.stream_reader import Entries, Step
from ledgerfold.storage.errors import LedgerfoldError


class FaultyReader(Reader):
    """A Reader, with the options of one."""

    def __init__(
        self,
        faults: Faults,
        topic: LoadedTopic,
        log: TopicLog,
        emulation: Callable[[], Emulation],
        options: ReaderOptions,
        readers: set[Reader],
    ) -> None:
        super().__init__(topic, log, emulation, options, readers)
        self._faults = faults
        self._subject = Subject(topic.name, subscription=self.subscription, consumer=self.name)
        # Set when it ends: it does not wait for a delay then.
        self._ending = asyncio.Event()

    def end(self, error: LedgerfoldError) -> None:
        super().end(error)
        self._ending.set()

    def wake(self) -> None:
        super().wake()
        # Not at the termination of the topic: the reader reads the rest.
        if self._state.closed is not None:
            self._ending.set()

    def finish(self) -> None:
        super().finish()
        self._ending.set()

    async def _next_steps(self) -> list[Step]:
        steps = await super()._next_steps()
        for number, step in enumerate(steps):
            if not isinstance(step, Entries):
                continue
            counts = (entry.header.message_count for entry in step.entries)
            met = served(self._faults, self._subject, counts)
            await self._faults.delay(met.delays, interrupted=self._ending)
            if met.error is not None:
                self.end(met.error)
                kept = step.entries[: met.kept]
                return [*steps[:number], *([Entries(kept)] if kept else [])]
        return steps


def reader_kind(faults: Faults | None) -> Callable[..., Reader]:
    """Returns what creates readers on a broker with these faults."""
    return Reader if faults is None else partial(FaultyReader, faults)
