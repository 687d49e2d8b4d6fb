"""The client for asyncio, with the names of `pulsar.asyncio`.

    from ledgerfold import MessageId
    from ledgerfold.aio import Client

    async with Client("127.0.0.1:7650") as client:
        producer = await client.create_producer("prices")
        await producer.send(b"10", partition_key="p3")
        reader = await client.create_reader("prices", MessageId.earliest)
        async for message in reader:
            print(message.data())

Messages, ids and choices are those of `ledgerfold`, errors those of `ledgerfold.errors`.
"""

from __future__ import annotations

from ledgerfold.broker.client.aio import Client, Consumer, Producer, Reader, TableView

__all__ = ["Client", "Consumer", "Producer", "Reader", "TableView"]
