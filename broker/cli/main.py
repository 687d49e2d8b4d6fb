"""`ledgerfold`: the entry point of the command line, with the exit codes of
broker/cli/exit_codes.py.

Verbs import their modules when they run: `ledgerfold --help` loads neither gRPC nor Spark.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from ledgerfold.broker.cli.clock import add_clock
from ledgerfold.broker.cli.data.consuming import add_consume, add_read
from ledgerfold.broker.cli.data.damage import add_repair, add_verify
from ledgerfold.broker.cli.data.export_kafka import add_export
from ledgerfold.broker.cli.data.importing import add_import
from ledgerfold.broker.cli.data.inspecting import add_info, add_segment
from ledgerfold.broker.cli.data.producing import add_produce
from ledgerfold.broker.cli.demo.demos import add_demo
from ledgerfold.broker.cli.exit_codes import DONE, USAGE, exit_code
from ledgerfold.broker.cli.kafka.cleaner import add_cleaner
from ledgerfold.broker.cli.parsing import Parser
from ledgerfold.broker.cli.serving import DEFAULT_LISTEN, add_serve
from ledgerfold.broker.cli.topics.compacting import add_compact
from ledgerfold.broker.cli.topics.compaction import add_runs
from ledgerfold.broker.cli.topics.explaining import add_explain
from ledgerfold.broker.cli.topics.topics import add_namespaces, add_topic_policies, add_topics
from ledgerfold.broker.cli.what_if.command import add_what_if
from ledgerfold.storage.errors import LedgerfoldError, ServiceError, Unavailable
from ledgerfold.storage.message_ids import FORM
from ledgerfold.version import __version__


def make_parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser(
        prog="ledgerfold",
        description="A broker that compacts topics as Apache Pulsar does.",
        epilog="A topic is written as NAME (in public/default), TENANT/NAMESPACE/NAME, or "
        f"persistent://TENANT/NAMESPACE/NAME; a message id as {FORM}, where partition -1 "
        "means none, index -1 means not in a batch, and trailing -1s may be omitted.",
    )
    parser.add_argument("--version", action="version", version=f"ledgerfold {__version__}")
    parser.set_defaults(url=os.environ.get("LEDGERFOLD_URL") or DEFAULT_LISTEN)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add in (
        add_serve,
        add_produce,
        add_consume,
        add_read,
        add_topics,
        add_namespaces,
        add_topic_policies,
        add_compact,
        add_runs,
        add_cleaner,
        add_explain,
        add_what_if,
        add_info,
        add_clock,
        add_import,
        add_export,
        add_segment,
        add_verify,
        add_repair,
        add_demo,
    ):
        add(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. Returns its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A key or value that the terminal's encoding does not support must not end the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    options = argparse.Namespace()
    try:
        try:
            make_parser().parse_args(arguments, options)
            return int(options.run(options) or DONE)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe.
        _drop_output()
        return DONE
    except UnicodeEncodeError as error:
        # Non-UTF-8 arguments keep their bytes, for example in file names, but cannot be put into
        # requests.
        print(f"ledgerfold: {error.object!r} is not valid UTF-8.", file=sys.stderr)
        _drop_output()
        return USAGE
    except (KeyboardInterrupt, LedgerfoldError, OSError) as error:
        if not isinstance(error, KeyboardInterrupt):
            print(f"ledgerfold: {_sentence(error, options)}", file=sys.stderr)
        _drop_output()
        return exit_code(error)


def _drop_output() -> None:
    """Discards unwritten output, so that no second error is reported at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: LedgerfoldError | OSError, options: argparse.Namespace) -> str:
    """Describes an error: what happened, where, and what to do."""
    if isinstance(error, Unavailable):
        return (
            f"The broker at {options.url} does not answer: {error}\n"
            "Is it running? `ledgerfold serve --data DIR` starts one; --url names another."
        )
    if isinstance(error, ServiceError):
        return f"The broker at {options.url}: {error}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
