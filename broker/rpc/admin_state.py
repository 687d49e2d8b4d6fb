"""The calls of AdminService about the whole state of a broker (broker/topics/reset.py)."""

from __future__ import annotations

from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.reset import reset
from ledgerfold.v1 import admin_pb2


class StateHandlers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def reset(self, request: admin_pb2.ResetRequest) -> admin_pb2.ResetResponse:
        """Raises NotAllowed, MetadataLost, StorageError."""
        return admin_pb2.ResetResponse(topics=await reset(self._broker))
