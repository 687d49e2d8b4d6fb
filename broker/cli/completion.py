"""`completion`: the shell code that completes commands, options and their values.

    source <(ledgerfold completion bash)
    ledgerfold completion fish > ~/.config/fish/completions/ledgerfold.fish

At each completion the shell runs `ledgerfold`, with the line so far in variables (argcomplete's
protocol). The answers come from the parser of the installed version, and from the file of contexts.
No request is sent to a broker.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from typing import Any

from ledgerfold.broker.cli import contexts
from ledgerfold.broker.cli.verbs import Verbs, argument
from ledgerfold.storage.errors import InvalidRequest

COMMANDS = Verbs()
# They are no choices: an address is valid, too.
_COMPACTORS = ("auto", "spark", "inline", "off")


def complete(parser: argparse.ArgumentParser) -> None:
    """Answers the shell's request for completions and ends the process, if there is such a
    request."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        # It accepts any function, although its types do not.
        autocomplete: Any = argcomplete.autocomplete
        autocomplete(parser, default_completer=_values)


def _values(
    prefix: str, action: argparse.Action, parser: argparse.ArgumentParser, **others: Any
) -> Iterable[str]:
    """Returns the possible values of an option or argument: files, unless more is known."""
    from argcomplete.completers import FilesCompleter

    if "--compactor" in action.option_strings:
        return _COMPACTORS
    names_context = action.dest == "name" and parser.prog.startswith("ledgerfold context ")
    if names_context or "--context" in action.option_strings:
        return _context_names()
    files: Iterable[str] = FilesCompleter()(prefix)
    return files


def _context_names() -> Iterable[str]:
    try:
        return contexts.load().tables
    except (InvalidRequest, OSError):
        # The command itself reports it.
        return ()


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
