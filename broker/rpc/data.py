"""DataService: the handler of each call. Its streams carry raw bytes (broker/wire/frames.py)."""

from __future__ import annotations

from functools import partial

from ledgerfold.broker.common.names import full_topic
from ledgerfold.broker.faults.faults import looked_up
from ledgerfold.broker.rpc.handlers import Handler
from ledgerfold.broker.rpc.publish import publish
from ledgerfold.broker.rpc.read import get_last_message_id, read
from ledgerfold.broker.rpc.subscribe import seek, subscribe, unsubscribe
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.v1 import data_pb2


def data_calls(broker: Broker) -> dict[str, Handler]:
    """Returns the handlers by their names in the wire contract."""
    return {
        "Publish": partial(publish, broker),
        "Subscribe": partial(subscribe, broker),
        "Read": partial(read, broker),
        "GetPartitions": partial(get_partitions, broker),
        "GetLastMessageId": partial(get_last_message_id, broker),
        "Seek": partial(seek, broker),
        "Unsubscribe": partial(unsubscribe, broker),
    }


async def get_partitions(
    broker: Broker, request: data_pb2.GetPartitionsRequest
) -> data_pb2.GetPartitionsResponse:
    name = full_topic(request.topic)
    await looked_up(broker.faults, name)
    return data_pb2.GetPartitionsResponse(partitions=broker.partitions.count(name))
