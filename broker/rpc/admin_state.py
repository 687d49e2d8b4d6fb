"""The calls of AdminService for tests: about the whole state of a broker (broker/topics/reset.py,
broker/topics/snapshots.py), and about faults (broker/faults/faults.py).
"""

from __future__ import annotations

from ledgerfold.broker.common.names import full_topic
from ledgerfold.broker.faults.faults import allowed
from ledgerfold.broker.rpc.handlers import Handlers
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.reset import reset
from ledgerfold.broker.topics.snapshots import BrokerSnapshots
from ledgerfold.storage.errors import NotAllowed
from ledgerfold.v1 import admin_pb2


class StateHandlers:
    def __init__(self, broker: Broker) -> None:
        self._broker, self._snapshots = broker, BrokerSnapshots(broker)

    async def reset(self, request: admin_pb2.ResetRequest) -> admin_pb2.ResetResponse:
        """Raises NotAllowed, MetadataLost, StorageError."""
        return admin_pb2.ResetResponse(topics=await reset(self._broker))

    async def save(self, request: admin_pb2.SaveSnapshotRequest) -> admin_pb2.SaveSnapshotResponse:
        """Raises NotAllowed, InvalidRequest, SnapshotExists, LimitExceeded, StorageError."""
        saved = await self._snapshots.save(request.name)
        return admin_pb2.SaveSnapshotResponse(snapshot=saved)

    async def listed(
        self, request: admin_pb2.ListSnapshotsRequest
    ) -> admin_pb2.ListSnapshotsResponse:
        """Raises NotAllowed, StorageError."""
        return admin_pb2.ListSnapshotsResponse(snapshots=await self._snapshots.listed())

    async def restore(
        self, request: admin_pb2.RestoreSnapshotRequest
    ) -> admin_pb2.RestoreSnapshotResponse:
        """Raises NotAllowed, InvalidRequest, SnapshotNotFound, StorageError."""
        restored = await self._snapshots.restore(request.name)
        return admin_pb2.RestoreSnapshotResponse(snapshot=restored)

    async def delete(self, request: admin_pb2.DeleteSnapshotRequest) -> None:
        """Raises NotAllowed, InvalidRequest, SnapshotNotFound, StorageError."""
        await self._snapshots.delete(request.name)


class FaultHandlers(Handlers):
    """Each call raises NotAllowed unless the broker allows faults."""

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
