"""The choice of a broker's compactor: a worker, or a user's compaction service."""

from __future__ import annotations

from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.broker.worker.compactor import Compactor
from ledgerfold.broker.worker.service_compactor import ServiceCompactor, load_service
from ledgerfold.broker.worker.supervisor import CompactorSupervisor


def compactor_of(settings: BrokerSettings) -> Compactor:
    """Creates the configured compactor. Raises InvalidRequest if there is no such service."""
    name = settings.compaction_service
    if name is None:
        return CompactorSupervisor(settings)
    return ServiceCompactor(name, load_service(name))
