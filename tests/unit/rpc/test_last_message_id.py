"""GetLastMessageId answers from an entry's keys: a batch of a million messages is one number."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from ledgerfold.broker.rpc.read import get_last_message_id
from ledgerfold.storage.entry import HEADER_BYTES, EntryFields, build_entry, read_header, stamp
from ledgerfold.storage.ledger import StoredEntry
from ledgerfold.storage.native import NativeBatchBuilder
from ledgerfold.v1.data_pb2 import GetLastMessageIdRequest, GetLastMessageIdResponse


def test_the_last_message_id_is_found_without_reading_values() -> None:
    """The values of this entry cannot be read."""
    builder = NativeBatchBuilder("p")
    for row in range(10):
        builder.add(b"v", key=b"%d" % row)
    whole = builder.build(sequence_id=9, publish_time_ms=1)
    keys = whole[HEADER_BYTES : HEADER_BYTES + read_header(whole).key_bytes]
    frame = build_entry(keys, b"no values", EntryFields(10))
    data = stamp(frame, 3, 5, append_time_ms=1, producer_number=0)

    async def last_entry(read_compacted: bool) -> StoredEntry:
        return StoredEntry(read_header(data), data)

    async def topic(name: str, create: bool) -> Any:
        return SimpleNamespace(
            name=name, log=SimpleNamespace(search=SimpleNamespace(last_entry=last_entry))
        )

    broker = cast(Any, SimpleNamespace(any_topic=topic))

    async def ask() -> GetLastMessageIdResponse:
        request = GetLastMessageIdRequest(topic="t")
        return await get_last_message_id(broker, request)

    last = asyncio.run(ask()).message_id
    assert (last.ledger_id, last.entry_id, last.batch_index, last.partition) == (3, 5, 9, -1)
