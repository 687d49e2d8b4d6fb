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

from ledgerfold.broker.cli import completion
from ledgerfold.broker.cli.commands import tables_of
from ledgerfold.broker.cli.contexts import apply_context
from ledgerfold.broker.cli.exit_codes import DONE, USAGE, exit_code
from ledgerfold.broker.cli.parsing import Parser
from ledgerfold.broker.cli.serving import DEFAULT_LISTEN
from ledgerfold.storage.errors import LedgerfoldError, ServiceError, Unavailable
from ledgerfold.storage.message_ids import FORM
from ledgerfold.version import __version__

_OUTPUT_BUFFER_BYTES = 256 * 1024


def make_parser(arguments: Sequence[str] = ()) -> Parser:
    """Returns the parser for these arguments; without any, that of all commands."""
    parser = Parser(
        prog="ledgerfold",
        description="A broker that compacts topics as Apache Pulsar does.",
        epilog="A topic is written as NAME (in public/default), TENANT/NAMESPACE/NAME, or "
        f"persistent://TENANT/NAMESPACE/NAME; a message id as {FORM}, where partition -1 "
        "means none, index -1 means not in a batch, and trailing -1s may be omitted.",
    )
    parser.add_argument("--version", action="version", version=f"ledgerfold {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for table in tables_of(arguments):
        table.add_to(commands)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command. Returns its exit code."""
    _open_closed_streams()
    _enlarge_output_buffer()
    if isinstance(sys.stdout, io.TextIOWrapper):
        # A key or value that the terminal's encoding does not support must not end the command.
        sys.stdout.reconfigure(errors="backslashreplace")
    options = argparse.Namespace()
    try:
        try:
            if arguments is None:
                arguments = sys.argv[1:]
            parser = make_parser(arguments)
            completion.complete(parser)
            parser.parse_args(arguments, options)
            if getattr(options, "calls_broker", False):
                apply_context(options)
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


def _open_closed_streams() -> None:
    """Opens the null device for each standard stream that is closed, as by a shell's `>&-`.

    Otherwise the next file or connection would get the descriptor, and any output.
    """
    for descriptor, name, mode in ((0, "stdin", "r"), (1, "stdout", "w"), (2, "stderr", "w")):
        try:
            os.fstat(descriptor)
        except OSError:
            # os.open returns the lowest free descriptor, which is this one.
            os.open(os.devnull, os.O_RDWR)
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(descriptor, mode, closefd=False))


def _enlarge_output_buffer() -> None:
    """Gives standard output a larger buffer, unless it is a terminal or replaced by a test.

    With the usual 8 KiB, a reader of messages spends a third of its time in system calls.
    """
    out = sys.__stdout__
    if out is not None and sys.stdout is out and not out.isatty():
        out.flush()
        size, encoding = _OUTPUT_BUFFER_BYTES, out.encoding
        sys.stdout = os.fdopen(out.fileno(), "w", size, encoding=encoding, closefd=False)


def _drop_output() -> None:
    """Discards unwritten output, so that no second error is reported at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _advice(why: str) -> str:
    """Returns what to do if no connection was made. `why`: gRPC's words."""
    if "CERTIFICATE_VERIFY_FAILED" in why:
        return "--tls-trust-certs FILE names the authorities that signed the broker's certificate."
    if "Tls handshake failed" in why:
        return "Does it use TLS? Without TLS, give HOST:PORT, without ledgerfold+ssl://."
    if "Failed parsing HTTP/2" in why:
        # The error itself says what to do.
        return ""
    if "Socket closed" in why or "Connection reset" in why:
        return "Does it use TLS? Then give ledgerfold+ssl://HOST:PORT."
    return "Is it running? `ledgerfold serve --data DIR` starts one; --url names another."


def _sentence(error: LedgerfoldError | OSError, options: argparse.Namespace) -> str:
    """Describes an error: what happened, where, and what to do."""
    url = getattr(options, "url", DEFAULT_LISTEN)
    if isinstance(error, Unavailable):
        return f"The broker at {url} does not answer: {error}\n{_advice(str(error))}".rstrip()
    if isinstance(error, ServiceError):
        return f"The broker at {url}: {error}"
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)
