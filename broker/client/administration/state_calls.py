"""The calls of Admin about the whole state of a broker (broker/client/administration/admin.py).

They need a broker that allows them: `serve --allow-reset`, or `--test-clock`.
"""

from __future__ import annotations

from ledgerfold.broker.client.administration.channel import Calls
from ledgerfold.v1 import admin_pb2, records_pb2


class StateCalls(Calls):
    """The calls about everything that a broker has."""

    def reset(self) -> int:
        """Deletes everything: topics, schemas, policies, namespaces, tenants. Ends all runs.

        Connected clients reconnect, as after a deletion. Returns the number of deleted topics,
        partitions included. Raises NotAllowed.
        """
        return int(self._call(admin_pb2.ResetRequest()).topics)

    def save_snapshot(self, name: str) -> records_pb2.Snapshot:
        """Saves everything under a name of 1 to 64 letters, digits, "-" and "_".

        Connected clients reconnect, and runs in progress are ended. Raises NotAllowed,
        SnapshotExists, InvalidRequest.
        """
        saved: records_pb2.Snapshot = self._call(admin_pb2.SaveSnapshotRequest(name=name)).snapshot
        return saved

    def list_snapshots(self) -> list[records_pb2.Snapshot]:
        """Returns the snapshots by name."""
        return list(self._call(admin_pb2.ListSnapshotsRequest()).snapshots)

    def restore_snapshot(self, name: str) -> records_pb2.Snapshot:
        """Replaces everything by the contents of the snapshot, with the same message ids.

        The snapshot stays. Connected clients reconnect, as after a deletion. Raises NotAllowed,
        SnapshotNotFound.
        """
        request = admin_pb2.RestoreSnapshotRequest(name=name)
        restored: records_pb2.Snapshot = self._call(request).snapshot
        return restored

    def delete_snapshot(self, name: str) -> None:
        """Deletes a snapshot. Raises NotAllowed, SnapshotNotFound."""
        self._call(admin_pb2.DeleteSnapshotRequest(name=name))
