"""Pulsar's protocol without a network: a connection, or only its consumers."""

from __future__ import annotations

import asyncio
from typing import Any

from ledgerfold.broker.pulsar.consuming import AllBatchAcks, Consuming
from ledgerfold.broker.pulsar.frames import Splitter, parse
from ledgerfold.broker.pulsar.link import Link
from ledgerfold.broker.pulsar.shared import Shared
from ledgerfold.v1.pulsar_pb2 import BaseCommand
from tests.model.broker_lab import BrokerLab
from tests.support.recording_transport import Client


class MemoryTransport(Client):
    """A connection whose end, and whose commands, a test reads."""

    is_aborted = False

    def abort(self) -> None:
        self.is_aborted = True

    def commands(self) -> list[BaseCommand]:
        """Returns what was written since the last call."""
        splitter, frames = Splitter(2**31), list[bytes]()
        while not self.answers.empty():
            data: Any = self.answers.get_nowait()
            frames += splitter.feed(data)
        return [parse(each).command for each in frames]


class ConsumerLab:
    """The consumers of one connection. `acks`: those of all connections."""

    def __init__(self, lab: BrokerLab, acks: AllBatchAcks | None = None) -> None:
        self.transport = MemoryTransport()
        self.link = Link(lab.broker, self.transport)
        self.acks = AllBatchAcks() if acks is None else acks
        self.consuming = Consuming(self.link, self.acks, Shared(lab.broker).end_silent)

    async def commands(self, count: int) -> list[BaseCommand]:
        """Waits for the next `count` commands."""
        found = self.transport.commands()
        while len(found) < count:
            await asyncio.sleep(0)
            found += self.transport.commands()
        assert len(found) == count, found
        return found

    def lose(self) -> None:
        """Loses the connection."""
        self.link.closed(self.consuming.closed)
