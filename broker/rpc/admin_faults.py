"""The calls of AdminService about faults (broker/faults/faults.py)."""

from __future__ import annotations

from ledgerfold.broker.common.names import full_topic
from ledgerfold.broker.faults.faults import allowed
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import NotAllowed
from ledgerfold.v1 import admin_pb2


class FaultHandlers:
    """Each call raises NotAllowed unless the broker allows faults."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def add(self, request: admin_pb2.AddFaultRequest) -> admin_pb2.AddFaultResponse:
        """Raises InvalidRequest, LimitExceeded, NotAllowed for a Kafka topic."""
        faults, fault = allowed(self._broker.faults), request.fault
        if fault.topic and fault.operation != admin_pb2.FAULT_OPERATION_LOOKUP:
            record = self._broker.metadata.topic(full_topic(fault.topic))
            if record is not None and record.HasField("kafka"):
                raise NotAllowed(f"{record.name} is a Kafka topic: only its lookups can fail.")
        added = faults.add(fault)
        return admin_pb2.AddFaultResponse(fault=added)

    async def listed(self, request: admin_pb2.ListFaultsRequest) -> admin_pb2.ListFaultsResponse:
        return admin_pb2.ListFaultsResponse(faults=allowed(self._broker.faults).listed())

    async def remove(self, request: admin_pb2.RemoveFaultRequest) -> admin_pb2.RemoveFaultResponse:
        """Raises FaultNotFound."""
        removed = allowed(self._broker.faults).remove(request.id)
        return admin_pb2.RemoveFaultResponse(fault=removed)

    async def clear(self, request: admin_pb2.ClearFaultsRequest) -> admin_pb2.ClearFaultsResponse:
        return admin_pb2.ClearFaultsResponse(faults=allowed(self._broker.faults).clear())
