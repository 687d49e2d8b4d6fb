"""`python -m ledgerfold.compactor`: the worker process (worker.py).

LEDGERFOLD_COMPACTOR_SECRET in its environment is what every call must bring. A broker that starts a
worker makes one up; for a worker that serves brokers which did not start it, set the same for all.

Standard output carries JSON lines for the starter, nothing else; what Spark and its children print
goes to standard error. Exit codes: 0 stopped, 1 Spark failed, 2 a wrong or missing option, 3
cannot work here (no Java, no pyspark), with the reason in an "unavailable" event.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ledgerfold.compactor.java import Java, find_java
from ledgerfold.storage.errors import CompactorUnavailable, InvalidRequest
from ledgerfold.storage.paths import absolute_path
from ledgerfold.strategies.allowed import AllowedStrategies, parse_allowed

EXIT_UNAVAILABLE = 3
SECRET_VARIABLE = "LEDGERFOLD_COMPACTOR_SECRET"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    # Spark and what it starts need not know it.
    secret = os.environ.pop(SECRET_VARIABLE, "")
    if not secret:
        parser.error(
            f"set {SECRET_VARIABLE} in the environment, here and for the brokers to be served: "
            "a worker carries out no plan of anybody else"
        )
    logging.basicConfig(
        level=logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
    )
    # What it writes is of data directories, which are their owner's alone.
    os.umask(0o077)
    # Spark forks: gRPC must not try to make its threads survive that. Read when grpc is imported.
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    # The JVM and its children inherit descriptor 1: a line of theirs must not pass for one of ours.
    events = os.dup(1)
    os.dup2(2, 1)
    try:
        java = find_java(os.environ)
        return _serve(options, java, events, secret.encode())
    except CompactorUnavailable as error:
        event = {"event": "unavailable", "message": error.message}
        os.write(events, json.dumps(event).encode() + b"\n")
        return EXIT_UNAVAILABLE


def _serve(options: argparse.Namespace, java: Java, events: int, secret: bytes) -> int:
    try:
        from ledgerfold.compactor.class_archive import class_archive, default_cache_dir
        from ledgerfold.compactor.strategies.watch import Limits
        from ledgerfold.compactor.worker import Worker, WorkerSettings, print_event
    except ImportError as error:
        raise CompactorUnavailable(
            f"Compaction needs PySpark, and {error.name} is missing. Install Ledgerfold with its "
            "extra `spark`, from where it came: pip install 'WHEEL-OR-CHECKOUT[spark]'."
        ) from error

    async def serve(local_dir: Path) -> int:
        settings = WorkerSettings(
            listen=options.listen,
            spark_master=options.spark_master,
            local_dir=local_dir,
            java=java,
            archive=class_archive(options.cache_dir or default_cache_dir(os.environ), java),
            announce=print_event(events),
            secret=secret,
            limits=Limits(options.strategy_timeout, options.strategy_memory),
            allowed=AllowedStrategies(tuple(options.allow_strategy), "this worker"),
        )
        return await Worker(settings).run()

    if options.local_dir is not None:
        # A folder of ours inside the given one: it is emptied.
        return asyncio.run(serve(options.local_dir / "spark"))
    with tempfile.TemporaryDirectory(prefix="ledgerfold-") as folder:
        return asyncio.run(serve(Path(folder) / "spark"))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ledgerfold.compactor",
        description="Runs compactions on Spark for a Ledgerfold broker.",
        epilog=f"{SECRET_VARIABLE} in the environment: a secret that its brokers know, too.",
    )
    parser.add_argument(
        "--listen", default="127.0.0.1:0", metavar="HOST:PORT", help="default: %(default)s"
    )
    parser.add_argument(
        "--spark-master", default="local[2]", metavar="MASTER", help="default: %(default)s"
    )
    parser.add_argument(
        "--local-dir",
        type=absolute_path,
        metavar="DIR",
        help="for Spark's temporary files (emptied: DIR/spark)",
    )
    parser.add_argument(
        "--cache-dir", type=absolute_path, metavar="DIR", help="for the JVM's class-data archive"
    )
    timeout = "how long a strategy of one's own may take for an answer; default: %(default)s"
    parser.add_argument(
        "--strategy-timeout", type=float, default=60.0, metavar="SECONDS", help=timeout
    )
    memory = "how much memory a task may take with it; default: 1 GiB"
    parser.add_argument(
        "--strategy-memory", type=int, default=1 << 30, metavar="BYTES", help=memory
    )
    parser.add_argument(
        "--allow-strategy",
        action="append",
        default=[],
        type=_allowed,
        metavar="MODULE:CLASS",
        help="a strategy of one's own that plans may name, beside the entry points of installed "
        "packages; may be repeated",
    )
    return parser


def _allowed(name: str) -> str:
    try:
        return parse_allowed(name)
    except InvalidRequest as error:
        raise argparse.ArgumentTypeError(error.message) from error


if __name__ == "__main__":
    # Spark's threads may hang on a dead JVM: they do not keep the process.
    code = main()
    sys.stderr.flush()
    os._exit(code)
