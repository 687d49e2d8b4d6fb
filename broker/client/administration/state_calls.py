"""The calls of Admin about the whole state of a broker (broker/client/administration/admin.py).

They need a broker that allows them: `serve --allow-reset`, or `--test-clock`.
"""

from __future__ import annotations

from ledgerfold.broker.client.administration.channel import Calls
from ledgerfold.v1 import admin_pb2


class StateCalls(Calls):
    """The calls about everything that a broker has."""

    def reset(self) -> int:
        """Deletes everything: topics, schemas, policies, namespaces, tenants. Ends all runs.

        Clients that are connected reconnect, as after a deletion. Returns how many topics there
        were, partitions included. Raises NotAllowed.
        """
        return int(self._call(admin_pb2.ResetRequest()).topics)
