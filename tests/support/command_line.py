"""Runs the command line, in this process or in a separate one.

>>> from tests.support.command_line import ledgerfold
>>> ledgerfold("--version").code
0
"""

from __future__ import annotations

import argparse
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest import mock

from ledgerfold.broker.cli.main import main
from tests.support.waiting import WAIT_S


class Ran(NamedTuple):
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def rows(self) -> list[dict[str, Any]]:
        """Returns standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


# Runs the command line with the arguments, and `stdin`.
Cli = Callable[..., Ran]


def checked(ran: Ran) -> str:
    """Returns the verdict of a successful demonstration."""
    assert ran.code == 0, ran.out + ran.err
    (line,) = (line for line in ran.out.splitlines() if line.startswith("checked"))
    return line.removeprefix("checked").strip()


def ledgerfold(*arguments: str, stdin: bytes = b"") -> Ran:
    """Runs the command in this process, as in a pipe."""
    out, err = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin))
    with mock.patch.object(sys, "stdin", given), redirect_stdout(out), redirect_stderr(err):
        try:
            code = main(arguments)
        except SystemExit as end:  # argparse's exit
            code = end.code if isinstance(end.code, int) else 0
    return Ran(code, out.getvalue(), err.getvalue())


def command(*arguments: str) -> list[str]:
    """Returns the arguments for a separate process."""
    return [sys.executable, "-m", "ledgerfold", *arguments]


def run(arguments: Sequence[str], stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Runs the command in a separate process."""
    return subprocess.run(
        command(*arguments), input=stdin, capture_output=True, timeout=WAIT_S, check=False
    )


def subcommands(
    parser: argparse.ArgumentParser, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], argparse.ArgumentParser]]:
    """Yields a parser and those of its commands and verbs, each with the words that lead to it."""
    yield path, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, each in action.choices.items():
                yield from subcommands(each, (*path, name))
