"""`ledgerfold`: one command, a verb, and the exit codes of broker/cli/exit_codes.py.

What a verb needs is imported when it runs: `ledgerfold --help` loads neither gRPC nor anything of
Spark's.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from broker import __version__
from broker.cli.compaction import add_runs
from broker.cli.demos import add_demo
from broker.cli.exit_codes import INTERRUPTED, exit_code
from broker.cli.importing import add_import
from broker.cli.inspecting import add_info, add_segment
from broker.cli.messages import add_consume, add_produce, add_read
from broker.cli.serving import DEFAULT_LISTEN, add_serve
from broker.cli.topics import add_namespaces, add_topics
from storage.errors import LedgerfoldError


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="ledgerfold", description="A broker that compacts topics as Apache Pulsar does."
    )
    parser.add_argument("--version", action="version", version=f"ledgerfold {__version__}")
    parser.add_argument(
        "--url",
        default=os.environ.get("LEDGERFOLD_URL", DEFAULT_LISTEN),
        metavar="HOST:PORT",
        help=f"the broker; default LEDGERFOLD_URL or {DEFAULT_LISTEN}",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        add_serve,
        add_produce,
        add_consume,
        add_read,
        add_topics,
        add_namespaces,
        add_runs,
        add_info,
        add_import,
        add_segment,
        add_demo,
    ):
        add(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; its exit code."""
    options = make_parser().parse_args(arguments)
    try:
        return int(options.run(options) or 0)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has enough; python must not complain at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (LedgerfoldError, OSError) as error:
        print(f"ledgerfold: {error}", file=sys.stderr)
        return exit_code(error)
