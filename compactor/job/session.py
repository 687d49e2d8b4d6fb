"""The Spark session. This is the only module that starts Spark.

Settings, and their reasons:

* The master; 127.0.0.1 for listening ports, unless executors elsewhere must reach the driver (then
  Spark's SPARK_LOCAL_IP has the address); no web UI, no progress bar on the terminal.
* `spark.local.dir`, and the JVM's temporary files, inside a folder that only this worker uses and
  that is removed with it, so that neither shuffle files nor the libraries that a JVM unpacks
  accumulate.
* Unix sockets between the JVM and Python, in that folder: over TCP, the JVM's small writes wait
  40 ms for a delayed acknowledgement (Nagle's algorithm), in each task.
* Python: this interpreter (Spark would take `python3` from PATH), and the daemon of
  compactor/daemon.py.
* Shuffled rows are large blobs: they are not compressed on the same machine's disk, and Spark's
  cleaner runs often enough for a worker that runs for weeks.
* The JVM only moves bytes: using only the fast compiler and the serial collector starts in less
  than half the time of the defaults, and costs nothing here. Its young generation is small: what
  passes through is large, and belongs to the old one. A class-data archive saves a third of the
  remaining time (compactor/class_archive.py).
* The heap starts small and grows with what is live: by default it would start at a 64th of the
  machine's memory and fill that with rows that nobody needs any more. Buffers of sent rows are not
  cached for each thread. Classes may fill 96 MB before a collection: Spark's are fewer, and the
  default collects three times during the start.

The job consists of RDDs (pipeline.py has the reasons), so this starts a SparkContext and no SQL
session.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkConf, SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from ledgerfold.compactor.job.engine import SPARK, Engine, Rows
from ledgerfold.compactor.job.executors import check_executors
from ledgerfold.compactor.job.progress import Parts
from ledgerfold.compactor.strategies import watch
from ledgerfold.compactor.user_strategies.own import Own

_JVM_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xmn32m",
    "-Xms96m",
    "-XX:MetaspaceSize=96m",
    "-Djdk.nio.maxCachedBufferSize=262144",
    "-XX:-UsePerfData",
    "-Xlog:disable",
    "-Xlog:all=error:stderr",
    # Spark's log4j writes messages at start, before any of our settings applies.
    "-Dlog4j2.StatusLogger.level=OFF",
)
_ENVIRONMENT = {
    # numpy would start an unused thread per core, in the process that forks workers.
    "OPENBLAS_NUM_THREADS": "1",
    # glibc would return the memory of a released column, and get zeroed pages for the next one,
    # which takes a tenth of a task's time.
    "MALLOC_MMAP_THRESHOLD_": str(128 * 1024 * 1024),
    "MALLOC_TRIM_THRESHOLD_": str(256 * 1024 * 1024),
}

_DESCRIPTORS = Path("/proc/self/fd")
# The longest time from a broken connection to the JVM until the system reports the JVM's end.
_JVM_END_SECONDS = 2.0
# The last line of a Python traceback: "OSError: ...", "pyarrow.lib.ArrowInvalid: ..."
_PYTHON_ERROR = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Invalid)\b")
# Separates Python processes with user code from those without.
_CODE_VARIABLE = "LEDGERFOLD_OWN_STRATEGIES"


@dataclass(frozen=True)
class SessionSettings:
    """The settings of a session. `java_options` are added to the driver's JVM."""

    master: str
    local_dir: Path
    java_options: tuple[str, ...] = ()
    driver_memory: str = "1g"


class PartsSum(AccumulatorParam[Parts]):
    """Spark's accumulator of Parts."""

    def zero(self, value: Parts) -> Parts:
        return Parts()

    def addInPlace(self, value1: Parts, value2: Parts) -> Parts:  # noqa: N802 - Spark's name
        return value1.plus(value2)


class Session(Engine):
    """A started Spark."""

    name = SPARK
    failures = (Py4JError, OSError)

    def __init__(self, context: SparkContext) -> None:
        self.context: SparkContext = context
        self.progress: Accumulator[Parts] = context.accumulator(Parts(), PartsSum())
        # The code of each user-defined strategy that was run, and how often it was replaced.
        self._code: dict[str, str] = {}
        self._replaced = 0

    @property
    def is_local(self) -> bool:
        """True if tasks run on this machine."""
        return bool(self.context._jsc.sc().isLocal())

    @contextlib.contextmanager
    def job_group(self, name: str, topic: str) -> Iterator[None]:
        self.context.setJobGroup(name, f"compaction of {topic}", interruptOnCancel=True)
        try:
            yield
        finally:
            self.context.setLocalProperty("spark.jobGroup.id", None)  # type: ignore[arg-type]

    @contextlib.contextmanager
    def code_of(self, own: Own | None) -> Iterator[None]:
        """Runs the tasks created in the block in Python processes that have not loaded older code
        of `own`.

        Spark reuses a Python process only for the same environment. Other strategies' processes
        never load user code; a daemon whose processes are no longer used stays idle.
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

    def cancel(self, group: str) -> None:
        # A JVM that has ended runs nothing; the work itself detects that.
        with contextlib.suppress(Py4JError, OSError):
            self.context.cancelJobGroup(group)

    def keep(self, rows: Rows) -> Rows:
        # Spark keeps the output of a shuffle as long as there are rows of it.
        return rows

    def check_folder(self, folder: Path) -> None:
        if not self.is_local:
            check_executors(self.context, folder)

    def end_causing(self, error: Exception) -> str | None:
        # A running JVM reports Spark's own errors. All other errors may be due to its end, which
        # the system reports a moment later.
        end = self.jvm_end(0 if isinstance(error, Py4JJavaError) else _JVM_END_SECONDS)
        return end and f"Spark's JVM ended ({end})"

    def is_end_of_process(self, error: Exception) -> bool:
        text = _text_of(error) if isinstance(error, Py4JJavaError) else ""
        return "Python worker exited unexpectedly" in text or "PYTHON_WORKER_EXITED" in text

    def sentence_of(self, error: Exception) -> str:
        if not isinstance(error, Py4JJavaError):
            return str(error).splitlines()[0] if str(error) else type(error).__name__
        if self.is_end_of_process(error):
            return "a Python worker of Spark was killed (out of memory?)"
        lines = [line.strip() for line in _text_of(error).splitlines() if line.strip()]
        python = [line for line in lines if _PYTHON_ERROR.match(line)]
        return (python or lines or ["Spark gave no reason"])[-1 if python else 0][:300]

    def jvm_end(self, timeout_seconds: float | None = None) -> str | None:
        """Returns how the JVM ended ("signal SIGKILL", "exit code 1"); None if it still runs after
        the timeout.

        Without a timeout, waits for its end.
        """
        try:
            code = self.context._gateway.proc.wait(timeout_seconds)  # type: ignore[union-attr]
        except subprocess.TimeoutExpired:
            return None
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def stop(self) -> None:
        self.context.stop()


def _text_of(error: Py4JJavaError) -> str:
    return str(error.java_exception.getMessage() or "")


def end_jvm() -> None:
    """Ends the JVM of a Spark that has failed, if there is one."""
    process = getattr(SparkContext._gateway, "proc", None)
    if process is not None:
        process.kill()
        process.wait()


def start_session(settings: SessionSettings) -> Session:
    """Starts the JVM and Spark, in seconds. One per process. Raises what pyspark raises."""
    settings.local_dir.mkdir(parents=True, exist_ok=True)
    os.environ.update(_ENVIRONMENT)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    logging.getLogger("py4j").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        # pyspark imports pandas if installed, and warns about its version. We do not use it.
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
        "spark.python.daemon.module": "ledgerfold.compactor.daemon",
        "spark.shuffle.compress": "false",
        "spark.cleaner.periodicGC.interval": "2min",
        **socket_settings(settings),
    }.items():
        conf.set(name, value)
    if settings.master.startswith("local"):
        conf.set("spark.driver.bindAddress", "127.0.0.1").set("spark.driver.host", "127.0.0.1")
    for name, value in _ENVIRONMENT.items():
        conf.setExecutorEnv(name, value)
    return conf


def socket_settings(settings: SessionSettings) -> dict[str, str]:
    """Returns Spark's settings of the sockets between the JVM and Python.

    The path of a socket is limited to about 100 bytes, which `local_dir` may exceed: the folder is
    reached through a descriptor of this process, which stays open until the process ends. Without
    /proc (macOS), and for executors elsewhere, TCP is used.
    """
    name = "spark.python.unix.domain.socket"
    if not settings.master.startswith("local") or not _DESCRIPTORS.is_dir():
        return {f"{name}.enabled": "false"}
    folder = os.open(settings.local_dir, os.O_RDONLY | os.O_DIRECTORY)
    path = f"/proc/{os.getpid()}/fd/{folder}"
    return {f"{name}.enabled": "true", f"{name}.dir": path}


def _quoted(option: str) -> str:
    """Quotes an option for Spark, which splits a line of options as a shell would."""
    escaped = option.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
