"""A temporary broker for tests.

It is a `ledgerfold serve` in a separate process, on a free port: it starts within a second, and is
deleted with its data when the block ends. docs/TESTING.md describes the pytest plugin, which is
based on it, docs/API.md its use without the plugin.
"""

from __future__ import annotations

from ledgerfold.testing_broker import Broker, ExistingBroker
from ledgerfold.testing_faults import AsyncFaults, Faults, InjectedFault
from ledgerfold.testing_namespace import Clock, Namespace

__all__ = [
    "AsyncFaults",
    "Broker",
    "Clock",
    "ExistingBroker",
    "Faults",
    "InjectedFault",
    "Namespace",
]
