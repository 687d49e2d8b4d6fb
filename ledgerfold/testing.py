"""A temporary broker for tests.

It is a `ledgerfold serve` in a separate process, on a free port: it starts within a second, and is
deleted with its data when the block ends. docs/TESTING.md describes the pytest plugin, which is
based on it, docs/API.md its use without the plugin.
"""

from __future__ import annotations

from ledgerfold.exports import export
from ledgerfold.testing_broker import Broker as Broker
from ledgerfold.testing_broker import ExistingBroker as ExistingBroker
from ledgerfold.testing_faults import AsyncFaults as AsyncFaults
from ledgerfold.testing_faults import Faults as Faults
from ledgerfold.testing_faults import InjectedFault as InjectedFault
from ledgerfold.testing_namespace import Clock as Clock
from ledgerfold.testing_namespace import Namespace as Namespace

export(globals())
