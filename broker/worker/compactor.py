"""The compactor as used by runs and by the broker: the supervised worker, or a user's service.

A run uses `Compactor`; the broker, which starts and stops it, uses `BrokerCompactor`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ledgerfold.v1.admin_pb2 import CompactionProgress, CompactorState
from ledgerfold.v1.compactor_pb2 import (
    AnalyzeRequest,
    CleanManifest,
    CleanPlan,
    CompactionPlan,
    Manifest,
    TellChoicesRequest,
    TellChoicesResponse,
)
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import TopicWhatIf

OnProgress = Callable[[CompactionProgress], None]


class Compactor(Protocol):
    """The part of a compactor that a run uses (supervisor.py)."""

    @property
    def is_disabled(self) -> bool: ...
    def retry_now(self) -> None:
        """Ends the pause after a failed start."""
        ...

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        """Executes a plan.

        Cancelling the task ends the run in the worker, then raises CancelledError.
        """
        ...


class BrokerCompactor(Compactor, Protocol):
    """The part that the broker uses: it lives as long as the broker, which reports its state."""

    state: CompactorState
    message: str
    # The number of restarts of the worker.
    restarts: int

    @property
    def pid(self) -> int: ...
    def start(self) -> None:
        """Starts it without waiting."""
        ...

    async def stop(self) -> None: ...
    async def known(self) -> None:
        """Returns when it is known whether it works on this machine.

        Then `message` describes its state.
        """
        ...

    async def clean(self, plan: CleanPlan) -> CleanManifest:
        """Runs one cleaning of a Kafka log.

        Cancelling the task ends it in the worker, as in run().
        """
        ...

    async def analyze(self, request: AnalyzeRequest) -> TopicWhatIf:
        """Computes what-if results of strategies. Cancelling the task ends it."""
        ...

    async def check_strategy(self, strategy: CompactionStrategy) -> None:
        """Checks that a user-defined strategy can be set.

        Raises InvalidStrategy, CompactorUnavailable (it cannot be checked now).
        """
        ...

    async def tell_choices(self, request: TellChoicesRequest) -> TellChoicesResponse:
        """Returns a user-defined strategy's descriptions of messages.

        Raises CompactorUnavailable.
        """
        ...
