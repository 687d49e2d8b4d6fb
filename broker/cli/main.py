"""`ledgerfold`: one command, a verb, and the exit codes of broker/cli/exit_codes.py.

What a verb needs is imported when it runs: `ledgerfold --help` loads neither gRPC nor anything of
Spark's.
"""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence

from ledgerfold.broker.cli.cleaner import add_cleaner
from ledgerfold.broker.cli.clock import add_clock
from ledgerfold.broker.cli.compacting import add_compact
from ledgerfold.broker.cli.compaction import add_runs
from ledgerfold.broker.cli.consuming import add_consume, add_read
from ledgerfold.broker.cli.damage import add_repair, add_verify
from ledgerfold.broker.cli.demos import add_demo
from ledgerfold.broker.cli.exit_codes import DONE, USAGE, exit_code
from ledgerfold.broker.cli.explaining import add_explain
from ledgerfold.broker.cli.exporting import add_export
from ledgerfold.broker.cli.importing import add_import
from ledgerfold.broker.cli.inspecting import add_info, add_segment
from ledgerfold.broker.cli.parsing import Parser
from ledgerfold.broker.cli.producing import add_produce
from ledgerfold.broker.cli.serving import DEFAULT_LISTEN, add_serve
from ledgerfold.broker.cli.topics import add_namespaces, add_topic_policies, add_topics
from ledgerfold.broker.cli.what_if import add_what_if
from ledgerfold.storage.errors import LedgerfoldError, ServiceError, Unavailable
from ledgerfold.storage.message_ids import FORM
from ledgerfold.version import __version__


def make_parser() -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = Parser(
        prog="ledgerfold",
        description="A broker that compacts topics as Apache Pulsar does.",
        epilog="A topic is written as NAME (in public/default), TENANT/NAMESPACE/NAME, or "
        f"persistent://TENANT/NAMESPACE/NAME; a message id as {FORM}, where a partition of -1 is "
        "none, an index of -1 is no batch's, and what is -1 at the end may be left out.",
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
    """Runs a command; its exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A key or value that the terminal's encoding cannot say must not end the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    options = argparse.Namespace()
    try:
        try:
            make_parser().parse_args(arguments, options)
            return int(options.run(options) or DONE)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read the output has enough.
        _drop_output()
        return DONE
    except UnicodeEncodeError as error:
        # A file name, say, that is no text keeps its bytes; names in a request cannot.
        print(f"ledgerfold: {error.object!r} is no text in UTF-8.", file=sys.stderr)
        _drop_output()
        return USAGE
    except (KeyboardInterrupt, LedgerfoldError, OSError) as error:
        if not isinstance(error, KeyboardInterrupt):
            print(f"ledgerfold: {_sentence(error, options)}", file=sys.stderr)
        _drop_output()
        return exit_code(error)


def _drop_output() -> None:
    """What could not be written out must not be tried again, and complained of, at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: LedgerfoldError | OSError, options: argparse.Namespace) -> str:
    """What happened, where, and what to do about it."""
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
