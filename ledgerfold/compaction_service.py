"""A compaction service of one's own: a plan in, a manifest out (Pulsar's PIP-278).

`serve --compaction-service module:Factory` calls the factory once, without arguments, in the
broker's process, and asks what it gives to carry out the broker's plans, instead of a worker with
Spark. What a plan names and what a manifest tells is in proto/ledgerfold/v1/compactor.proto; how
segment files are written, in docs/FORMATS.md.

The broker checks each file against the manifest before it publishes anything, and removes what a
run that failed has left. A manifest says what the plan said (run, ledger, horizon), and nothing
that was not in the plan's range.

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
    """Its methods are called on an event loop of its own, in a thread of its own.

    One that is asked to check strategies has `async def check_strategy(strategy)` as well, which
    raises for a CompactionStrategy that the service does not know. Without it strategies of one's
    own cannot be set.
    """

    async def run(
        self, plan: CompactionPlan, on_progress: Callable[[CompactionProgress], None]
    ) -> Manifest:
        """Writes the plan's ledger, and says what it wrote; one run at a time.

        An error of any kind fails the run, with its text. A call that is cancelled ends within
        seconds, and nothing writes into the ledger's folder afterwards.
        """
        ...

    async def close(self) -> None:
        """The broker stops; nothing is on its way."""
        ...
