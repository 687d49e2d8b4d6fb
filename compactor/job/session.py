"""Spark's one door: the only module that starts it.

What is set, and why:
* The master; 127.0.0.1 for what listens, unless executors elsewhere must find the driver (Spark's
  SPARK_LOCAL_IP then says where); no web pages, no progress bar on the terminal.
* `spark.local.dir`, and the JVM's temporary files, inside a folder that is the worker's alone and
  goes with it, so that neither shuffle files nor the libraries that a JVM unpacks pile up. No Unix
  sockets there: its path may be longer than theirs may be.
* Python: this interpreter (Spark would take `python3` from PATH), and our daemon (daemon.py).
* Shuffled rows are large blobs: no compression on the same machine's disk, and a cleaner that runs
  often enough for a worker that lives for weeks.
* The JVM only moves bytes: the fast compiler alone and the serial collector start in less than half
  the time of the defaults and cost nothing here. A class-data archive takes off half again
  (class_archive.py).

The job is made of RDDs (pipeline.py says why), so this starts a SparkContext and no SQL session.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pyspark import SparkConf, SparkContext
from pyspark.accumulators import Accumulator

from ledgerfold.compactor.job.progress import Parts, PartsSum
from ledgerfold.compactor.strategies import watch
from ledgerfold.compactor.user_strategies.own import Own

_JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-XX:-UsePerfData",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
    # What Spark's log4j says at start comes before any setting of ours reaches it.
    "-Dlog4j2.StatusLogger.level=OFF",
)
_ENVIRONMENT = {
    # numpy would start a thread per core that no task uses, in the process that forks workers.
    "OPENBLAS_NUM_THREADS": "1",
    # glibc would hand a column's memory back when it is done with, and take zeroed pages for the
    # next one: a tenth of a task's time.
    "MALLOC_MMAP_THRESHOLD_": str(128 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(256 * 1024 * 1024),
}

# Parts Python processes with foreign code from those without.
_CODE_VARIABLE = "LEDGERFOLD_OWN_STRATEGIES"


@dataclass(frozen=True)
class SessionSettings:
    """`java_options` are added to the driver's JVM."""

    master: str
    local_dir: Path
    java_options: tuple[str, ...] = ()
    driver_memory: str = "1g"


class Session:
    """A started Spark. `progress` is shared by all runs: take differences."""

    def __init__(self, context: SparkContext) -> None:
        self.context = context
        self.progress: Accumulator[Parts] = context.accumulator(Parts(), PartsSum())
        # The code of each strategy of one's own that was run, and how often any was replaced.
        self._code: dict[str, str] = {}
        self._replaced = 0

    @property
    def cores(self) -> int:
        return max(1, self.context.defaultParallelism)

    @property
    def is_local(self) -> bool:
        """Whether tasks run on this machine, next to us."""
        return bool(self.context._jsc.sc().isLocal())

    @contextlib.contextmanager
    def job_group(self, name: str, topic: str) -> Iterator[None]:
        """What this thread starts inside belongs to the group, and ends with it."""
        self.context.setJobGroup(name, f"compaction of {topic}", interruptOnCancel=True)
        try:
            yield
        finally:
            self.context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def code_of(self, own: Own | None) -> Iterator[None]:
        """Tasks that are made inside run in Python processes that have loaded no older code of it.

        Spark's Python processes are for those who ask for the same environment. Other strategies'
        never load foreign code; a daemon of processes that are not asked for any more stays idle.
        """
        if own is None:
            yield
            return
        code = f"{own.version} {own.source}"
        if self._code.setdefault(own.name, code) != code:
            self._code[own.name] = code
            self._replaced += 1
        added = {_CODE_VARIABLE: str(self._replaced), **watch.ENVIRONMENT}
        self.context.environment.update(added)
        try:
            yield
        finally:
            for name in added:
                del self.context.environment[name]

    def jvm_end(self, timeout_seconds: float | None = None) -> str | None:
        """How the JVM ended ("signal SIGKILL", "exit code 1"); None: it still runs after the time.

        No time: waits for its end.
        """
        try:
            code = self.context._gateway.proc.wait(timeout_seconds)  # type: ignore[union-attr]
        except subprocess.TimeoutExpired:
            return None
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def stop(self) -> None:
        self.context.stop()


def start_session(settings: SessionSettings) -> Session:
    """Starts the JVM and Spark: seconds. One per process. Raises what pyspark raises."""
    os.environ.update(_ENVIRONMENT)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        # pyspark imports pandas where there is one, and finds fault with its version. We use none.
        warnings.filterwarnings("ignore", message=".*pandas", category=FutureWarning)
        context = SparkContext(conf=_configuration(settings))
    context.setLogLevel("ERROR")
    return Session(context)


def _configuration(settings: SessionSettings) -> SparkConf:
    temporary = f"-Djava.io.tmpdir={settings.local_dir}"
    java_options = (*_JVM_OPTIONS, temporary, *settings.java_options)
    conf = SparkConf().setMaster(settings.master).setAppName("ledgerfold-compactor")
    for name, value in {
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(map(_quoted, java_options)),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": str(settings.local_dir),
        "spark.python.worker.reuse": "true",
        "spark.python.unix.domain.socket.enabled": "false",
        "spark.python.daemon.module": "ledgerfold.compactor.daemon",
        "spark.shuffle.compress": "false",
        "spark.cleaner.periodicGC.interval": "2min",
    }.items():
        conf.set(name, value)
    if settings.master.startswith("local"):
        conf.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
    for name, value in _ENVIRONMENT.items():
        conf.setExecutorEnv(name, value)
    return conf


def _quoted(option: str) -> str:
    """For Spark, which takes a line of options apart as a shell would."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
