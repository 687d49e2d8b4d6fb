"""The target that is this project's broker, in a separate process, with the real compactor.

One compactor, with one warm Spark, serves all brokers; one broker serves all cases that need the
same options of `serve`. A case that restarts or kills its broker has a separate one; a case that
advances time has one with a manual clock.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

from ledgerfold.broker.client import Client
from ledgerfold.broker.client.administration.admin import Admin
from ledgerfold.storage.errors import KafkaError, LedgerfoldError
from ledgerfold.storage.names import ledgers_dir
from tests.cases.ledgerfold_admin import AdminAnswers
from tests.cases.ledgerfold_cleaner import CleanerAnswers, KafkaCalls
from tests.cases.ledgerfold_data import DataAnswers
from tests.cases.ledgerfold_kafka import KafkaAnswers
from tests.cases.ledgerfold_time import time_of
from tests.cases.model import PROFILES, Case
from tests.cases.protocol import ClosingTarget, Refused, Unsupported
from tests.support.broker_process import BrokerProcess
from tests.support.compactor_process import CompactorProcess

# Pulsar's errors, by the reasons of this broker.
HTTP: dict[str, int] = {
    "INVALID_REQUEST": 412,
    "TOPIC_NOT_FOUND": 404,
    "TOPIC_IS_PARTITIONED": 404,
    "TOPIC_EXISTS": 409,
    "TOPIC_BUSY": 412,
    "SUBSCRIPTION_NOT_FOUND": 404,
    "SUBSCRIPTION_EXISTS": 409,
    "SUBSCRIPTION_BUSY": 412,
    "NOTHING_EXPIRED": 409,
    "NOT_ALLOWED": 405,
    "COMPACTION_RUNNING": 409,
    "COMPACTION_FAILED": 500,
    "STRATEGY_FAILED": 500,
}
# Classes that cases name: brokers and their compactor may load them.
ALLOWED = tuple(
    f"--allow-strategy=tests.support.{name}"
    for name in (
        "nowhere:Numeric",
        "strategic_classes:Nobody",
        "strategic_classes:CannotBeMade",
        "strategic_classes:Stubborn",
    )
)
# The monitor checks often: cases of the threshold wait for it.
_COMMON = ("--compaction-monitor-interval", "100ms", *ALLOWED)
# Only the passes that a case requests.
_TOLD_TO_CLEAN = ("--kafka-config", "log.cleaner.enable=false")
# So do clients for new partitions.
_PARTITIONS_INTERVAL_S = 0.25
_GARBAGE_BYTES = 80
Answer = dict[str, Any]


class LedgerfoldTarget:
    """One broker process, which continues when the target is closed."""

    profile = "documented"
    quiet_ms = 100

    def __init__(self, broker: BrokerProcess, compactor: CompactorProcess) -> None:
        self._broker, self._compactor = broker, compactor
        self._own: dict[str, Callable[..., Answer | None]] = {
            "mark": lambda: {"ms": self._time.mark_ms()},
            "advance": self._advance,
            "restart": lambda: self._again(broker.stop),
            "kill": lambda: self._again(broker.kill),
            "compact-outside": self._compact_outside,
            "hold": self._hold,
            "release": self._release,
            "now": lambda: {"ms": self._time.now_ms()},
            "kafka-damage": self._damage,
        }
        self._releasing: threading.Timer | None = None
        self._connect()

    @property
    def ready(self) -> dict[str, Any]:
        """The ready line of the current process: its addresses."""
        return self._broker.ready

    def ask(self, operation: str, /, **fields: Any) -> Answer:
        """Raises Refused, Unsupported."""
        try:
            return self._method(operation)(**fields) or {}
        except LedgerfoldError as error:
            codes = {error.reason, type(error).__name__, str(HTTP.get(error.reason, ""))} - {""}
            if isinstance(error, KafkaError):
                codes |= {str(error.kafka_code), error.kafka_class}
            raise Refused(error.message, frozenset(codes)) from error

    def close(self) -> None:
        self._calls.close()
        self._client.shutdown()
        self._admin.close()

    def _method(self, operation: str) -> Callable[..., Answer | None]:
        name = operation.replace("-", "_")
        for answers in (self._data, self._administration, self._kafka, self._cleaner):
            if hasattr(answers, name):
                method: Callable[..., Answer] = getattr(answers, name)
                return method
        if operation not in self._own:
            raise Unsupported(f"There is no {operation}.")
        return self._own[operation]

    def _connect(self) -> None:
        self._admin = Admin(self._broker.url)
        self._time = time_of(self._admin)
        self._client = Client(
            self._broker.url,
            clock_ms=self._time.now_ms,
            partitions_update_interval_seconds=_PARTITIONS_INTERVAL_S,
        )
        self._data = DataAnswers(self._client, self._admin)
        self._administration = AdminAnswers(self._admin)
        self._calls = KafkaCalls(self._broker.url)
        self._kafka = KafkaAnswers(self._calls, self._time)
        self._cleaner = CleanerAnswers(self._calls)

    def _again(self, end: Callable[[], object]) -> None:
        self.close()
        end()
        self._broker.start()
        self._connect()

    def _compact_outside(self, topic: str, order: str | None = None) -> None:
        """Runs `ledgerfold compact` in the directory of the stopped broker."""
        chosen = () if order is None else ("--compactor-type", order)
        data = ("--data", str(self._broker.data_dir), "--compactor", self._compactor.address)
        command = (sys.executable, "-m", "ledgerfold", "compact", topic, *data, *chosen)

        done: list[subprocess.CompletedProcess[str]] = []

        def run() -> None:
            self._broker.stop()
            done.append(subprocess.run(command, capture_output=True, text=True, check=False))

        self._again(run)
        if done[0].returncode:
            raise Refused(done[0].stderr, frozenset({str(done[0].returncode)}))

    def _advance(self, ms: int) -> None:
        self._time.advance(ms)

    def _hold(self, ms: int | None = None) -> None:
        self._compactor.stop()
        if ms is not None:
            self._releasing = threading.Timer(ms / 1000, self._compactor.go_on)
            self._releasing.start()

    def _damage(self, topic: str, segment: int) -> None:
        ledger = self._kafka.kafka_log(topic)["stats"]["segments"][segment]["ledgers"][0]
        for path in (ledgers_dir(self._broker.data_dir) / str(ledger)).iterdir():
            content = path.read_bytes()
            path.write_bytes(content[:-_GARBAGE_BYTES] + b"?" * _GARBAGE_BYTES)

    def _release(self) -> None:
        if self._releasing is not None:
            self._releasing.cancel()
            self._releasing.join()
        self._compactor.go_on()


class Brokers:
    """The processes that cases run on. `compactor` is another owner's; None: starts one."""

    def __init__(self, folder: Path, compactor: CompactorProcess | None = None) -> None:
        self._folder = folder
        self._stack = ExitStack()
        self.compactor = compactor or self._stack.enter_context(
            closing(CompactorProcess(folder, arguments=ALLOWED))
        )
        self._shared: dict[tuple[str, ...], ClosingTarget] = {}
        self._numbers = itertools.count()

    @contextmanager
    def target(self, case: Case, profile: str = PROFILES[0]) -> Iterator[ClosingTarget]:
        """Returns a broker with the case's options: a shared one, or a separate one."""
        options = self.options_of(case, profile)
        if case.own_broker:
            with self._started(*options) as target:
                yield target
            return
        if options not in self._shared:
            self._shared[options] = self._stack.enter_context(self._started(*options))
        yield self._shared[options]

    def options_of(self, case: Case, profile: str = PROFILES[0]) -> tuple[str, ...]:
        """Returns the options of `serve` that the case needs. Raises Unsupported.

        The profile is none of them: a request selects it.
        """
        options = case.options + (("--test-clock",) if case.moves_time or case.is_kafka else ())
        return options + _TOLD_TO_CLEAN if case.is_kafka else options

    def target_of(self, broker: BrokerProcess) -> ClosingTarget:
        """Returns the driver of the broker until it is closed."""
        return LedgerfoldTarget(broker, self.compactor)

    @contextmanager
    def _started(self, *options: str) -> Iterator[ClosingTarget]:
        folder = self._folder / f"broker-{next(self._numbers)}"
        arguments = ("--compactor", self.compactor.address, *_COMMON, *options)
        with BrokerProcess(folder, arguments=arguments) as broker:
            broker.wait_for_compactor()
            with closing(self.target_of(broker)) as target:
                yield target

    def close(self) -> None:
        self._stack.close()

    def __enter__(self) -> Brokers:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
