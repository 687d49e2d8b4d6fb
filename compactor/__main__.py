"""The worker process (worker.py), started with `python -m ledgerfold.compactor`.

Every call must present the secret in the environment variable LEDGERFOLD_COMPACTOR_SECRET. A broker
that starts a worker generates one; for a worker that serves other brokers, set the same value on
all of them. Standard output carries JSON lines for the parent only; the output of Spark and its
children goes to standard error. Exit codes: 0 stopped, 1 the engine failed, 2 a wrong or missing
option, 3 no Java or pyspark. An "unavailable" event has the reason of 3, and of a failed start.

`--engine auto` compacts inline, without Spark, where Spark cannot start: no usable Java, no
pyspark, or a Java on which Spark fails before it has run a job.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerfold.compactor.java import find_java
from ledgerfold.garbage import garbage_kept
from ledgerfold.storage.errors import CompactorUnavailable, InvalidRequest
from ledgerfold.storage.paths import absolute_path
from ledgerfold.strategies.allowed import AllowedStrategies, parse_allowed

if TYPE_CHECKING:
    from ledgerfold.compactor.starting import EngineStart

EXIT_UNAVAILABLE = 3
SECRET_VARIABLE = "LEDGERFOLD_COMPACTOR_SECRET"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    # Spark and its child processes must not inherit it.
    secret = os.environ.pop(SECRET_VARIABLE, "")
    if not secret:
        parser.error(
            f"set {SECRET_VARIABLE} in the environment of this worker and of its brokers: it "
            "accepts only calls with that secret"
        )
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    _be_nice(options.nice)
    if options.cores is not None:
        _limit_cores(options.cores)
    # The worker writes into data directories, which only their owner may access.
    os.umask(0o077)
    # Spark forks: gRPC must not try to keep its threads across the fork. grpc reads this when it is
    # imported.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    # numpy's linear algebra is not used: its threads would only take time to start.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # The JVM and its children inherit descriptor 1: their output must not mix with the events.
    events = os.dup(1)
    os.dup2(2, 1)
    try:
        return _serve(options, events, secret.encode())
    except CompactorUnavailable as error:
        event = {"event": "unavailable", "message": error.message}
        os.write(events, json.dumps(event).encode() + b"\n")
        return EXIT_UNAVAILABLE


def _be_nice(value: int) -> None:
    """Lowers the priority of this process, and of all processes that it starts."""
    if not value:
        return
    os.nice(value)
    # The worker leads a session. If Linux schedules sessions as groups, a nice value only counts
    # within its group: the group needs it, too. Other systems have no such file.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(value))


def _limit_cores(count: int) -> None:
    """Restricts this process, and all that it starts, to the last `count` of its processors.

    The kernel moves other processes to the rest. Linux only.
    """
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[-count:])


def _serve(options: argparse.Namespace, events: int, secret: bytes) -> int:
    try:
        with garbage_kept():
            from ledgerfold.compactor.strategies.watch import Limits
            from ledgerfold.compactor.worker import Worker, WorkerSettings, print_event
    except ImportError as error:
        raise CompactorUnavailable(
            f"Compaction needs {error.name}, which is missing. Install Ledgerfold again, from the "
            "same source: pip install WHEEL-OR-CHECKOUT."
        ) from error

    async def serve(local_dir: Path) -> int:
        engine, fallback, why = _engine(options, local_dir)
        settings = WorkerSettings(
            listen=options.listen,
            engine=engine,
            fallback=fallback,
            why=why,
            announce=print_event(events),
            secret=secret,
            limits=Limits(options.strategy_timeout, options.strategy_memory),
            allowed=AllowedStrategies(tuple(options.allow_strategy), "this worker"),
            allows_faults=options.allow_faults,
        )
        return await Worker(settings).run()

    if options.local_dir is not None:
        # In a subfolder, because it is emptied.
        return asyncio.run(serve(options.local_dir / "spark"))
    with tempfile.TemporaryDirectory(prefix="ledgerfold-") as folder:
        return asyncio.run(serve(Path(folder) / "spark"))


def _engine(
    options: argparse.Namespace, local_dir: Path
) -> tuple[EngineStart, EngineStart | None, str]:
    """Returns the requested engine; for `auto` also the one to use if it does not start, and why it
    is not Spark.

    Raises CompactorUnavailable if Spark was requested and cannot start.
    """
    from ledgerfold.compactor.starting import InlineStart, local_cores

    inline = InlineStart(local_cores(options.spark_master))
    if options.engine == "inline":
        return inline, None, ""
    try:
        return _spark(options, local_dir), inline if options.engine == "auto" else None, ""
    except CompactorUnavailable as error:
        if options.engine == "spark":
            raise
        return inline, None, error.message


def _spark(options: argparse.Namespace, local_dir: Path) -> EngineStart:
    java = find_java(os.environ)
    try:
        from ledgerfold.compactor.class_archive import class_archive, default_cache_dir
        from ledgerfold.compactor.spark_starting import SparkStart
    except ImportError as error:
        raise CompactorUnavailable(
            f"Compaction on Spark needs PySpark, and {error.name} is missing. Install Ledgerfold "
            "with its extra `spark`, from the same source: pip install 'WHEEL-OR-CHECKOUT[spark]'."
        ) from error
    archive = class_archive(options.cache_dir or default_cache_dir(os.environ), java)
    return SparkStart(options.spark_master, local_dir, java, archive)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ledgerfold.compactor",
        description="Runs compactions for a Ledgerfold broker.",
        epilog=f"The environment variable {SECRET_VARIABLE} is a secret shared with its brokers.",
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="default: %(default)s"
    )
    parser.add_argument(
        "--engine",
        choices=("spark", "inline", "auto"),
        default="spark",
        help="what runs the tasks: Spark, this process (inline, without Java), or the first of "
        "both that works here (auto); default: %(default)s",
    )
    parser.add_argument(
        "--spark-master",
        default="local[2]",
        metavar="MASTER",
        help="default: %(default)s; the inline engine divides its work for as many cores",
    )
    parser.add_argument(
        "--local-dir",
        type=absolute_path,
        metavar="DIR",
        help="folder for Spark's temporary files (DIR/spark is emptied)",
    )
    parser.add_argument(
        "--cache-dir",
        type=absolute_path,
        metavar="DIR",
        help="folder for the JVM's class-data archive",
    )
    timeout = "time limit for each answer of a user-defined strategy; default: %(default)s"
    parser.add_argument(
        "--strategy-timeout", type=float, default=60.0, metavar="SECONDS", help=timeout
    )
    memory = "memory limit of a task with a user-defined strategy; default: 1 GiB"
    parser.add_argument(
        "--strategy-memory", type=int, default=1 << 30, metavar="BYTES", help=memory
    )
    _add_priority(parser)
    parser.add_argument(
        "--allow-faults",
        action="store_true",
        help="let brokers that were started with --allow-faults kill this worker during their runs",
    )
    parser.add_argument(
        "--allow-strategy",
        action="append",
        default=[],
        type=_allowed,
        metavar="MODULE:CLASS",
        help="allow plans to use this user-defined strategy, in addition to the entry points of "
        "installed packages; may be repeated",
    )
    return parser


def _add_priority(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--nice",
        type=int,
        choices=range(20),
        default=0,
        metavar="N",
        help="run at this nice value, 0 to 19; default: %(default)s",
    )
    parser.add_argument(
        "--cores",
        type=_cores,
        metavar="N",
        help="use only N of the machine's processors; Linux only; default: all",
    )


def _cores(text: str) -> int:
    if not hasattr(os, "sched_setaffinity"):
        raise argparse.ArgumentTypeError("this system cannot limit a process to some processors")
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer of 1 or more")
    return int(text)


def _allowed(name: str) -> str:
    try:
        return parse_allowed(name)
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(error.message) from error


if __name__ == "__main__":
    # Spark's threads may hang on a dead JVM: they must not keep the process running.
    code = main()
    sys.stderr.flush()
    os._exit(code)
