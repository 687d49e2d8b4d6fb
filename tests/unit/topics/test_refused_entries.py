"""Entries that are refused before they are appended."""

from __future__ import annotations

import asyncio

from ledgerfold.storage.errors import InvalidRequest
from tests.model.broker_lab import BrokerLab
from tests.support.waiting import WAIT_S


def test_a_producer_gets_a_refusal_without_other_traffic() -> None:
    """No entry that becomes durable tells it."""
    lab, refusal = BrokerLab(), InvalidRequest("not this one")
    topic = lab.topic

    async def scenario() -> None:
        producer = await topic.attach_producer("p")
        waiting = asyncio.ensure_future(producer.receipts())
        await asyncio.sleep(0)
        assert not waiting.done()
        producer.refuse(7, 100, refusal)
        [receipt] = await asyncio.wait_for(waiting, WAIT_S)
        assert (receipt.sequence_id, receipt.refusal) == (7, refusal)

    lab.run(scenario())
    lab.stop()
