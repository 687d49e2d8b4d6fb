"""The calls of AdminService about the whole state of a broker.

They are implemented in broker/topics/reset.py and broker/topics/snapshots.py.
"""

from __future__ import annotations

from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.reset import reset
from ledgerfold.broker.topics.snapshots import BrokerSnapshots
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
