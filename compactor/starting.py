"""The start and end of a worker's engine (compactor/job/engine.py), and those of the inline engine.

The worker calls `start`, `after_start`, `ended` and `abandon` on threads of their own, all others
on the thread that runs jobs, or when no job runs.
"""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import import_module
from os import getpid

from ledgerfold.compactor.job.engine import INLINE, Engine
from ledgerfold.compactor.job.inline import CORES, InlineEngine
from ledgerfold.v1.compactor_pb2 import GetCompactorInfoResponse
from ledgerfold.version import __version__

_LATE_MODULES = (
    "ledgerfold.compactor.kafka.run",
    "ledgerfold.compactor.what_if.run",
    "ledgerfold.compactor.what_if.kafka.replays",
)


class EngineStart(ABC):
    """The start of one engine. `name`: that of the engine, for people.

    The last four methods have no effect for an engine that ends with its worker.
    """

    name: str

    @abstractmethod
    def info(self) -> GetCompactorInfoResponse:
        """Describes the worker, even before the start."""

    @abstractmethod
    def start(self) -> Engine:
        """Starts the engine, once. Raises CompactorUnavailable; then no process of it is left."""

    @abstractmethod
    def warm_up(self, engine: Engine) -> None:
        """Runs a first small job, if later ones are faster after it. Raises what a job raises."""

    def after_start(self, engine: Engine) -> None:
        """Prepares faster later starts. Takes seconds, in which jobs run; `clean_up` ends it."""
        return

    def ended(self, engine: Engine) -> str:
        """Waits, on a separate thread, for the engine's end; returns how it ended.

        "" if it ends only with the worker.
        """
        return ""

    def abandon(self) -> None:
        """Ends what is left of an engine that has failed. A job of it may still wait."""
        return

    def clean_up(self) -> None:
        """Removes temporary files, after the engine's end."""
        return


@dataclass(frozen=True)
class InlineStart(EngineStart):
    """The inline engine starts at once, and leaves nothing behind."""

    cores: int = CORES
    name = INLINE

    def info(self) -> GetCompactorInfoResponse:
        return GetCompactorInfoResponse(version=__version__, pid=getpid(), engine=INLINE)

    def start(self) -> Engine:
        return InlineEngine(self.cores)

    def warm_up(self, engine: Engine) -> None:
        """Imports what only cleanings and analyses need, which a first compaction does not wait
        for.
        """
        for name in _LATE_MODULES:
            import_module(name)


def local_cores(master: str) -> int:
    """Returns for how many cores Spark with this master would divide a job on this machine.

    A job divided for the same number of cores writes the same files. CORES if the master is
    elsewhere: the number of its cores is known only to it.

        >>> local_cores("local[4]"), local_cores("local"), local_cores("spark://host:7077")
        (4, 1, 2)
    """
    if master == "local":
        return 1
    match = re.fullmatch(r"local\[\s*(\d+|\*)\s*(,\s*\d+\s*)?\]", master)
    if match is None:
        return CORES
    return max(1, (os.cpu_count() or 1) if match[1] == "*" else int(match[1]))
