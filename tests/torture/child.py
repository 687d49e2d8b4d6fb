"""The ends of the two pipes between a client process and the torture that started it.

Standard output carries reports, standard input commands, both JSON lines. The process ends when its
standard input does: it never outlives the torture.
"""

from __future__ import annotations

import json
import os
import queue
import random
import sys
import threading
from typing import Any

from ledgerfold.broker.client import Client
from ledgerfold.storage.errors import DiskFailure, LedgerfoldError

PROGRESS_S = 0.25
_OPERATION_TIMEOUT_S = 20.0
_BACKOFF_MAX_MS = 500
_Report = dict[str, Any]


class Child:
    """One client process. `task` is its task from the start."""

    def __init__(self) -> None:
        self.task: _Report = json.loads(sys.argv[1])
        self.random = random.Random(f"{self.task['seed']}/{self.task['name']}")
        self.is_ending = threading.Event()
        self.commands: queue.Queue[_Report] = queue.Queue()
        self._lock = threading.Lock()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "end":
                self.is_ending.set()
            self.commands.put(command)
        os._exit(0)

    def client(self) -> Client:
        return Client(
            self.task["url"],
            operation_timeout_seconds=_OPERATION_TIMEOUT_S,
            max_backoff_interval_ms=_BACKOFF_MAX_MS,
        )

    def report(self, event: str, **fields: object) -> None:
        line = json.dumps({"event": event, **fields})
        with self._lock:
            print(line, flush=True)

    def pause(self, longest_s: float) -> None:
        """Pauses for a random part of that, or less if the process must end."""
        self.is_ending.wait(self.random.uniform(0, longest_s))

    def fault(self, what: str, error: LedgerfoldError) -> None:
        """Tells of an error that kills and full disks do not explain; then a short pause."""
        if not error.retryable and not isinstance(error, DiskFailure):
            self.report("error", what=what, message=f"{error.reason}: {error.message}")
        self.pause(0.5)

    def end(self) -> None:
        """Ends the process, even if its client still waits."""
        sys.stdout.flush()
        os._exit(0)
