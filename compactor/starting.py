"""The start and end of a worker's engine (compactor/job/engine.py), and those of the inline engine.

The worker calls all but `ended` on the thread that runs jobs, or when no job runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from importlib.metadata import version
from os import getpid

from ledgerfold.compactor.job.engine import INLINE, Engine
from ledgerfold.compactor.job.inline import InlineEngine
from ledgerfold.v1.compactor_pb2 import GetCompactorInfoResponse


class EngineStart(ABC):
    """The start of one engine. `name`: that of the engine, for people."""

    name: str

    @abstractmethod
    def info(self) -> GetCompactorInfoResponse:
        """Describes the worker, even before the start."""

    @abstractmethod
    def start(self) -> Engine:
        """Starts the engine, once. Raises CompactorUnavailable, and what the engine raises."""

    @abstractmethod
    def warm_up(self, engine: Engine) -> None:
        """Runs a first small job, if later ones are faster after it. Raises what a job raises."""

    @abstractmethod
    def after_start(self, engine: Engine) -> None:
        """Prepares faster later starts. Takes seconds, in which no job runs."""

    @abstractmethod
    def ended(self, engine: Engine) -> str:
        """Waits, on a separate thread, for the engine's end; returns how it ended.

        "" if it ends only with the worker.
        """

    @abstractmethod
    def clean_up(self) -> None:
        """Removes temporary files, after the engine's end."""


class InlineStart(EngineStart):
    """The inline engine starts at once, and leaves nothing behind."""

    name = INLINE

    def info(self) -> GetCompactorInfoResponse:
        return GetCompactorInfoResponse(version=version("ledgerfold"), pid=getpid(), engine=INLINE)

    def start(self) -> Engine:
        return InlineEngine()

    def warm_up(self, engine: Engine) -> None:
        """Does nothing: the first job is as fast as later ones."""

    def after_start(self, engine: Engine) -> None:
        """Does nothing: a start takes no time."""

    def ended(self, engine: Engine) -> str:
        return ""

    def clean_up(self) -> None:
        """Does nothing: there are no temporary files."""
