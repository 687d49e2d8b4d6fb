"""The cursor writer under a steady stream of acknowledgements."""

from __future__ import annotations

import asyncio

from ledgerfold.broker.subscriptions.cursor_writer import CursorWriter
from ledgerfold.v1.records_pb2 import CursorRecord
from tests.support.waiting import WAIT_S


def test_a_flush_returns_during_a_stream_of_acknowledgements() -> None:
    """Each write is followed by another one: its own change is durable after the second."""
    written = list[int]()

    async def persist(record: CursorRecord) -> None:
        written.append(len(written))
        writer.changed()
        writer.when_durable(lambda: None)
        await asyncio.sleep(0)

    writer = CursorWriter(lambda: CursorRecord(subscription="s"), persist, print)

    async def test() -> None:
        writer.changed()
        writer.when_durable(lambda: None)
        await asyncio.sleep(0)
        writer.changed()
        async with asyncio.timeout(WAIT_S):
            assert await writer.flush()
        assert len(written) <= 3
        await writer.stop()

    asyncio.run(test())
