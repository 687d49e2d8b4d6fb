"""The compactor, as runs and the broker see it: the supervised worker, or a service of the user's.

A run sees `Compactor`; the broker, which starts and stops it, sees `OwnCompactor`.
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
    """The worker, as a run sees it (supervisor.py)."""

    @property
    def is_disabled(self) -> bool: ...
    def retry_now(self) -> None:
        """Does not wait out the pause after a failed start."""
        ...

    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        """Cancelling the task ends the run in the worker before this raises CancelledError."""
        ...


class OwnCompactor(Compactor, Protocol):
    """As the broker sees it: it comes and goes with the broker, which shows how it is."""

    state: CompactorState
    message: str
    # How often another worker was started.
    restarts: int

    @property
    def pid(self) -> int: ...
    def start(self) -> None:
        """Returns at once."""
        ...

    async def stop(self) -> None: ...
    async def known(self) -> None:
        """Returns when it is known whether it can work here; `message` says what it does then."""
        ...

    async def clean(self, plan: CleanPlan) -> CleanManifest:
        """A round of Kafka's cleaner. Cancelling the task ends it in the worker, as in run()."""
        ...

    async def analyze(self, request: AnalyzeRequest) -> TopicWhatIf:
        """What strategies would come to. Cancelling the task ends it."""
        ...

    async def check_strategy(self, strategy: CompactionStrategy) -> None:
        """Whether one of the user's own can be set. Raises InvalidStrategy, CompactorUnavailable
        (nobody can tell now).
        """
        ...

    async def tell_choices(self, request: TellChoicesRequest) -> TellChoicesResponse:
        """What a strategy of the user's own says of messages. Raises CompactorUnavailable."""
        ...
