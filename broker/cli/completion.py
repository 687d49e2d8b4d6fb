"""`completion`: the shell code that completes commands, options and their values.

    source <(ledgerfold completion bash)
    ledgerfold completion fish > ~/.config/fish/completions/ledgerfold.fish

The shell asks `ledgerfold` at each tab, with the line so far in variables (argcomplete's protocol);
the answers come from the parser, so that they are those of the installed version. No broker is
asked.
"""

from __future__ import annotations

import argparse
import os

from ledgerfold.broker.cli.verbs import Verbs, argument

COMMANDS = Verbs()


def complete(parser: argparse.ArgumentParser) -> None:
    """Answers the shell and ends the process, if the shell asks for completions."""
    if "_ARGCOMPLETE" in os.environ:
        import argcomplete

        argcomplete.autocomplete(parser)


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
