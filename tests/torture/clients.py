"""Controls the client processes: starts them, reads their reports, sends them commands.

Each reports JSON lines, which a thread records in the books. A client that makes no progress for
long hangs.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from array import array
from base64 import b64decode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.support import processes
from tests.torture.bookkeeping import Books
from tests.torture.seen import Latest, unpacked
from tests.torture.settings import AUDIT, AUDITED, BATCHED, KAFKA_TOPIC, TOPICS, TortureSettings

ROOT = Path(__file__).resolve().parents[2]
PRODUCING = "tests.torture.producing"
READING = "tests.torture.reading"
CONSUMING = "tests.torture.consuming"
KAFKA_PRODUCING = "tests.torture.kafka_producing"
KAFKA_READING = "tests.torture.kafka_reading"
_Report = Mapping[str, Any]


def child_environment(mark: str) -> dict[str, str]:
    """Returns this process's environment, with the checkout on the import path."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "proto"), os.environ.get("PYTHONPATH", "")])
    return os.environ | {"PYTHONPATH": path, processes.MARK: mark}


class ClientProcess:
    """One of them. `on_report` is called in a separate thread for each report."""

    def __init__(
        self,
        module: str,
        task: Mapping[str, object],
        folder: Path,
        mark: str,
        on_report: Callable[[ClientProcess, _Report], None],
    ) -> None:
        self.name = f"{module.rpartition('.')[2]} {task['name']}"
        self.is_finished = threading.Event()
        self.steps: dict[str, tuple[int, float]] = {}
        with (folder / f"{task['name']}.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, json.dumps(task)],
                env=child_environment(mark),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )
        self._on_report = on_report
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as stdout:
            for line in stdout:
                self._on_report(self, json.loads(line))

    def step(self, what: str, count: int) -> None:
        """So many steps were made in all, of the thing that it calls so."""
        known, _ = self.steps.get(what, (-1, 0.0))
        if count != known:
            self.steps[what] = count, time.monotonic()

    def stalled(self, longest_s: float) -> list[str]:
        """Returns the clients that have made no step for so long."""
        now_s = time.monotonic()
        return [
            f"{self.name}, {what}"
            for what, (_, at_s) in tuple(self.steps.items())
            if now_s - at_s > longest_s
        ]

    def tell(self, do: str, **fields: object) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.write(json.dumps({"do": do, **fields}) + "\n")
            self._process.stdin.flush()

    @property
    def has_ended(self) -> bool:
        return self._process.poll() is not None

    def close(self) -> None:
        if self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(30.0)


class Clients:
    """All of a torture's. `passes`: what passes and followers have read, and texts, by number."""

    def __init__(self, settings: TortureSettings, url: str, folder: Path, books: Books) -> None:
        self.mark = processes.new_mark()
        self.producers: dict[str, ClientProcess] = {}
        self.readers: dict[str, ClientProcess] = {}
        self.consumed: dict[str, int] = {}
        self.passes: dict[int, tuple[Latest, str]] = {}
        self._settings, self._url, self._folder, self._books = settings, url, folder, books
        self._all: list[ClientProcess] = []
        self._hanging: set[str] = set()

    def start(self) -> None:
        self._start(CONSUMING, AUDITED, AUDIT, subscription=AUDIT)
        for topic in TOPICS:
            self.readers[topic] = self._start(READING, topic, f"{topic}-readers")
            for number, name in enumerate(self._settings.producer_names(topic)):
                self.producers[name] = self._start(
                    PRODUCING,
                    topic,
                    name,
                    rate=self._settings.rate,
                    batching=number == BATCHED,
                )

        self.readers[KAFKA_TOPIC] = self._start(KAFKA_READING, KAFKA_TOPIC, "torture-kafka-readers")
        for name in self._settings.producer_names(KAFKA_TOPIC):
            self.producers[name] = self._start(
                KAFKA_PRODUCING, KAFKA_TOPIC, name, rate=self._settings.rate
            )

    def _start(self, module: str, topic: str, name: str, **more: object) -> ClientProcess:
        task = {
            "url": self._url,
            "topic": topic,
            "name": name,
            "seed": self._settings.seed,
            "producers": self._settings.producer_names(topic),
            **more,
        }
        started = ClientProcess(module, task, self._folder, self.mark, self._on_report)
        self._all.append(started)
        return started

    def _on_report(self, client: ClientProcess, report: _Report) -> None:
        name = client.name.rpartition(" ")[2]
        match report["event"]:
            case "progress" | "finished":
                self._books.sent(name, report["sent"])
                self._books.acknowledged(name, report["acknowledged"])
                if report["event"] == "finished":
                    # A producer that has nothing to do does not hang.
                    client.steps.clear()
                    client.is_finished.set()
                elif not client.is_finished.is_set():
                    client.step("receipts", report["acknowledged"])
            case "stored":
                self._books.stored(name, report["first"], report["count"], report["offset"])
            case "offsets":
                pairs = array("q", b64decode(report["pairs"]))
                self._books.met(report["producer"], pairs)
            case "read":
                client.step(report["what"], report["steps"])
            case "consumed":
                self.consumed = report["last"]
            case "pass":
                self.passes[report["number"]] = unpacked(report["latest"]), report["read"]
            case "gap":
                self._books.gap(report["producer"], report["first"], report["last"])
            case "error":
                self._books.error(report["what"], report["message"])
            case kind:
                self._books.problem(kind, report.get("producer", name), report["sequence_id"])

    def hanging(self) -> set[str]:
        """Returns the clients that hung at any time, or ended by themselves."""
        for client in self._all:
            self._hanging.update(client.stalled(self._settings.client_stall_s))
            if client.has_ended:
                self._hanging.add(f"{client.name} ended")
        return self._hanging

    def close(self) -> None:
        try:
            for client in self._all:
                client.close()
        finally:
            processes.end(self.mark)
