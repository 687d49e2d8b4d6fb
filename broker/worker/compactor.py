"""The compactor of a broker: the supervised worker, or a user's service."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from typing import Any

from ledgerfold.storage.metadata import MetadataStore
from ledgerfold.storage.records import PULSAR_ENTRIES
from ledgerfold.v1.admin_pb2 import (
    COMPACTOR_STATE_DISABLED,
    COMPACTOR_STATE_READY,
    CompactionProgress,
    CompactorState,
)
from ledgerfold.v1.compactor_pb2 import (
    AnalyzeRequest,
    CleanManifest,
    CleanPlan,
    CompactionPlan,
    DescribeDecisionsRequest,
    DescribeDecisionsResponse,
    Manifest,
)
from ledgerfold.v1.records_pb2 import CompactionStrategy
from ledgerfold.v1.what_if_pb2 import TopicWhatIf

OnProgress = Callable[[CompactionProgress], None]
# Compactor.run(), or a replacement of it.
RunPlan = Callable[[CompactionPlan, OnProgress], Coroutine[Any, Any, Manifest]]


def has_vectors(plan: CompactionPlan) -> bool:
    """Returns whether a segment has a deletion vector, which not every compactor supports."""
    return any(segment.HasField("dead") for segment in plan.segments)


def may_have_pulsar_entries(metadata: MetadataStore) -> bool:
    """Returns whether a Pulsar client has ever connected a producer."""
    store = metadata.store()
    return store is not None and PULSAR_ENTRIES in store.features


def needs_new_worker(plan: CompactionPlan) -> bool:
    """Returns whether a worker of the first version cannot execute the plan."""
    return has_vectors(plan) or plan.has_pulsar_entries


class Compactor(ABC):
    """Executes plans for one broker, for its lifetime. The broker reports its state."""

    state: CompactorState = COMPACTOR_STATE_READY
    message = ""
    # The number of restarts of the worker.
    restarts = 0

    @property
    def is_disabled(self) -> bool:
        return self.state == COMPACTOR_STATE_DISABLED

    @property
    def pid(self) -> int:
        """The pid of a worker that this broker started; 0 if there is none."""
        return 0

    @abstractmethod
    def start(self) -> None:
        """Starts it without waiting; does nothing if it has started."""

    async def launch(self) -> None:
        """Starts its process, if it has one, before the broker recovers its data."""
        return

    @abstractmethod
    async def stop(self) -> None:
        """Ends it; a run in progress fails."""

    def retry_now(self) -> None:
        """Ends the pause after a failed start, if there is one."""
        return

    async def known(self) -> None:
        """Returns when it is known whether it works on this machine.

        Then `message` describes its state.
        """
        return

    @abstractmethod
    async def run(self, plan: CompactionPlan, on_progress: OnProgress) -> Manifest:
        """Executes a plan. Raises CompactionError, StorageError.

        Cancelling the task ends the run in the worker, then raises CancelledError.
        """

    @abstractmethod
    async def clean(self, plan: CleanPlan) -> CleanManifest:
        """Runs one cleaning of a Kafka log; see run()."""

    @abstractmethod
    async def analyze(self, request: AnalyzeRequest) -> TopicWhatIf:
        """Computes what-if results of strategies; see run().

        Also raises InvalidRequest, NotAllowed.
        """

    @abstractmethod
    async def check_strategy(self, strategy: CompactionStrategy) -> None:
        """Checks that a user-defined strategy can be set.

        Raises InvalidStrategy, CompactorUnavailable (it cannot be checked now).
        """

    @abstractmethod
    async def describe_decisions(
        self, request: DescribeDecisionsRequest
    ) -> DescribeDecisionsResponse:
        """Returns a user-defined strategy's descriptions of messages.

        Raises CompactorUnavailable.
        """
