"""The interface of a user-defined compaction service: a plan in, a manifest out (Pulsar's PIP-278).

`serve --compaction-service module:Factory` calls the factory once, without arguments, in the
broker's process, and uses the returned service, instead of a worker with Spark, to execute the
broker's plans. proto/ledgerfold/v1/compactor.proto documents plans and manifests, docs/FORMATS.md
the segment files.

The broker checks each file against the manifest before it publishes anything, and removes the files
of a failed run. A manifest repeats the plan's run, ledger and horizon, and covers only the plan's
range.

    >>> class Nothing:
    ...     async def run(self, plan, on_progress):
    ...         return Manifest(run_id=plan.run_id, ledger_id=plan.ledger_id, horizon=plan.horizon)
    ...     async def close(self):
    ...         pass
    >>> service: CompactionService = Nothing()
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ledgerfold.v1.admin_pb2 import CompactionProgress
from ledgerfold.v1.compactor_pb2 import CompactionPlan, Manifest
from ledgerfold.v1.records_pb2 import CompactionStrategy

__all__ = [
    "CompactionPlan",
    "CompactionProgress",
    "CompactionService",
    "CompactionStrategy",
    "Manifest",
]


class CompactionService(Protocol):
    """A compaction service. Its methods are called on its own event loop, in its own thread.

    To support user-defined strategies, it also has `async def check_strategy(strategy)`, which
    raises for an unknown CompactionStrategy. Without that method they cannot be set.

    A plan whose segments have deletion vectors (`dead`; docs/FORMATS.md) is given only to a service
    with an attribute `reads_deletion_vectors = True`, which omits the dead messages.
    """

    async def run(
        self, plan: CompactionPlan, on_progress: Callable[[CompactionProgress], None]
    ) -> Manifest:
        """Writes the plan's ledger and returns its manifest; one run at a time.

        Any error fails the run, with its text. A cancelled call must end within seconds, and must
        not write into the ledger's folder afterwards.
        """
        ...

    async def close(self) -> None:
        """Closes the service when the broker stops; no run is in progress."""
        ...
