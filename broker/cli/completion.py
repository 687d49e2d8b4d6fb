"""`completion`: the shell code that completes commands, options and their values.

    source <(ledgerfold completion bash)
    ledgerfold completion fish > ~/.config/fish/completions/ledgerfold.fish

At each completion the shell runs `ledgerfold`, with the line so far in variables (argcomplete's
protocol). The answers come from the parser of the installed version, from the file of contexts and,
for the names of topics, from the broker that the line's --url or --context selects.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import Any

from ledgerfold.broker.cli import contexts
from ledgerfold.broker.cli.connecting import admin_of
from ledgerfold.broker.cli.verbs import Verbs, argument
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError

COMMANDS = Verbs()
# They are no choices: an address is valid, too.
_COMPACTORS = ("auto", "spark", "inline", "off")
# A shell that waits for longer seems to hang.
_BROKER_S = 1.0
_DEFAULT_NAMESPACE = "persistent://public/default/"


def complete(parser: argparse.ArgumentParser) -> None:
    """Answers the shell's request for completions and ends the process, if there is such a
    request."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        # It accepts any function, although its types do not.
        autocomplete: Any = argcomplete.autocomplete
        autocomplete(parser, default_completer=_values)


def _values(
    prefix: str,
    action: argparse.Action,
    parser: argparse.ArgumentParser,
    **others: Any,
) -> Iterable[str]:
    """Returns the possible values of an option or argument: files, unless more is known."""
    from argcomplete.completers import FilesCompleter

    if "--compactor" in action.option_strings:
        return _COMPACTORS
    names_context = action.dest == "name" and parser.prog.startswith("ledgerfold context ")
    if names_context or "--context" in action.option_strings:
        return _context_names()
    if action.dest in ("topic", "topics") and parser.get_default("calls_broker"):
        return _topic_names(prefix)
    files: Iterable[str] = FilesCompleter()(prefix)
    return files


def _context_names() -> Iterable[str]:
    try:
        return contexts.load().tables
    except (InvalidRequest, OSError):
        # The command itself reports it.
        return ()


def _topic_names(prefix: str) -> Iterable[str]:
    """Returns the broker's topics: by their full names if the prefix is not that of a short one."""
    try:
        options = _connection_of(os.environ.get("COMP_LINE", ""))
        contexts.apply_context(options)
        with admin_of(options, timeout_seconds=_BROKER_S) as admin:
            names = admin.list_topics()
    except (LedgerfoldError, OSError, ValueError, SystemExit):
        # The command itself reports it.
        return ()
    short = (name.removeprefix(_DEFAULT_NAMESPACE) for name in names)
    return [name for name in short if name.startswith(prefix)] or names


def _connection_of(line: str) -> argparse.Namespace:
    """Returns the options of the connection in a line: argcomplete does not run their actions.

    The last word may have a quote that is still open. Raises SystemExit: the line is not valid.
    """
    from argcomplete.lexers import split_line

    words = split_line(line)[3]
    parser = argparse.ArgumentParser(argument_default=argparse.SUPPRESS, allow_abbrev=False)
    for name in ("context", *contexts.CONNECTION):
        parser.add_argument(f"--{name.replace('_', '-')}")
    parser.add_argument("--tls-allow-insecure", action="store_true")
    return parser.parse_known_args(words)[0]


@COMMANDS.verb(
    "completion",
    "print shell code that completes commands",
    description="Prints code for a shell. bash: source <(ledgerfold completion bash), in "
    "~/.bashrc; zsh: the same in ~/.zshrc, after compinit; fish: ledgerfold completion fish > "
    "~/.config/fish/completions/ledgerfold.fish.",
    calls_broker=False,
)
@argument("shell", "the shell", choices=("bash", "zsh", "fish"))
def _completion(options: argparse.Namespace) -> None:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["ledgerfold"], shell=options.shell))
