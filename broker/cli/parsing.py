"""The argument parser of every verb: argparse, extended.

It suggests corrections for typos, and accepts `--url` at each level.

    >>> parser = Parser(prog="ledgerfold")
    >>> commands = parser.add_subparsers(metavar="COMMAND")
    >>> _ = commands.add_parser("topics").add_argument("--force", action="store_true")
    >>> parser.parse_args(["topics", "--url", "h:1"]).url
    'h:1'

`ledgerfold topcis` ends with "unknown command 'topcis'. Did you mean topics?", and `ledgerfold
topics --focre` with "... (unknown option --focre. Did you mean --force?)".

* An argument that begins with a minus and a digit is a value, perhaps an invalid one (`clock
  advance -5s`): no option looks like that. argparse would report an unknown option.
* Values of a list argument may be placed between and after options: `set-emulation orders --profile
  pulsar-4 exact_backlog=true`. argparse would end the list at the first option.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NoReturn

from ledgerfold.broker.cli.option_sources import OptionSources
from ledgerfold.broker.cli.suggestions import did_you_mean

if TYPE_CHECKING:
    _SubParsers = argparse._SubParsersAction["Parser"]
else:
    _SubParsers = argparse._SubParsersAction


class Parser(argparse.ArgumentParser):
    """A parser; those of its commands and verbs are of this class, too.

    `calls_broker`: accepts `--url`. `has_sources`: its options may come from variables and a file,
    too.
    """

    def __init__(
        self,
        *arguments: Any,
        calls_broker: bool = True,
        has_sources: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(*arguments, **options)
        self._has_sources = has_sources
        self._arguments: list[str] = []
        self._negative_number_matcher = re.compile(r"-[0-9]")
        self._is_intermixing = False
        if calls_broker:
            # It is accepted at every level. The last one given is used.
            self.add_argument(
                "--url",
                default=argparse.SUPPRESS,
                metavar="HOST:PORT",
                help="the broker; default LEDGERFOLD_URL, the context's, or 127.0.0.1:7650",
            )
            self.add_argument(
                "--context",
                default=argparse.SUPPRESS,
                metavar="NAME",
                help="the broker, by its name (`ledgerfold context`); default LEDGERFOLD_CONTEXT",
            )
            _add_credentials(self.add_argument_group("TLS and authentication"))
        self.set_defaults(calls_broker=calls_broker)

    def add_subparsers(self, **options: Any) -> Commands:  # type: ignore[override]
        """Adds commands. Returns them."""
        commands = super().add_subparsers(action=Commands, **options)
        assert isinstance(commands, Commands)
        return commands

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[Any, list[str]]:
        """Parses all arguments: an unknown one is an error, at every level."""
        if self._is_intermixing:
            return super().parse_known_args(args, namespace)
        self._arguments = list(sys.argv[1:] if args is None else args)
        if self._has_sources:
            # `namespace` is a new one: commands fill theirs, which argparse copies.
            parse = super().parse_known_args
            sources = OptionSources(self, os.environ)
            parsed, unknown = sources.parse(lambda options: parse(args, options))
        elif any(action.nargs == "*" for action in self._get_positional_actions()):
            # It calls parse_known_args.
            self._is_intermixing = True
            try:
                parsed, unknown = self.parse_known_intermixed_args(args, namespace)
            finally:
                self._is_intermixing = False
        else:
            parsed, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return parsed, unknown

    def error(self, message: str) -> NoReturn:
        """Adds unknown options to the message: a typo may be why another option is missing."""
        known = tuple(self._option_string_actions)
        arguments = self._arguments
        if self._verbs() is not None:
            # The verb's own parser checks the arguments after it.
            arguments = list(takewhile(lambda each: each.startswith("-"), arguments))
        for name in _options(arguments):
            if not any(each.startswith(name) for each in known):
                message += f" (unknown option {name}.{did_you_mean(name, known)})"
        super().error(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        verbs = self._verbs()
        if action is verbs and value not in verbs.choices:
            kind = str(action.metavar).lower()
            hint = did_you_mean(value, [*_elsewhere(verbs, value), *verbs.choices])
            hint = hint or f" Choose from: {', '.join(verbs.choices)}."
            raise argparse.ArgumentError(None, f"unknown {kind} {value!r}.{hint}")
        super()._check_value(action, value)

    def _verbs(self) -> Commands | None:
        return next((each for each in self._actions if isinstance(each, Commands)), None)


class Commands(_SubParsers):
    """The commands or verbs of a parser. Their parsers are made when they are first used: there are
    more than 200, of which a run needs two or three.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._parsers = _LazyParsers()
        self.choices = self._name_parser_map = self._parsers

    def add_later(
        self, name: str, help_: str, fill: Callable[[Parser], object], **settings: Any
    ) -> None:
        """Declares a command. `fill`: adds arguments to its parser. `settings`: of the parser."""
        self._choices_actions.append(self._ChoicesPseudoAction(name, [], help_))

        def make() -> Parser:
            parser = self._parser_class(prog=f"{self._prog_prefix} {name}", **settings)
            fill(parser)
            return parser

        self._parsers.add(name, make)


class _LazyParsers(dict[str, Any]):
    """Parsers by name, in order. Each is created on first use."""

    def __init__(self) -> None:
        super().__init__()
        self._makers: dict[str, Callable[[], Parser]] = {}

    def add(self, name: str, make: Callable[[], Parser]) -> None:
        self[name], self._makers[name] = None, make

    def __getitem__(self, name: str) -> Any:
        if name in self._makers:
            self[name] = self._makers.pop(name)()
        return super().__getitem__(name)

    def values(self) -> Any:
        return [self[name] for name in self]

    def items(self) -> Any:
        return [(name, self[name]) for name in self]


def _add_credentials(group: Any) -> None:
    """Adds what the connection to the broker needs; broker/cli/connecting.py reads it."""
    options = {
        "--token": ("TOKEN", "a token, or file:PATH"),
        "--tls-trust-certs": ("FILE", "the authorities to trust"),
        "--tls-client-cert": ("FILE", "this client's certificate"),
        "--tls-client-key": ("FILE", "its private key"),
    }
    for name, (metavar, help_) in options.items():
        variable = f"LEDGERFOLD_{name.removeprefix('--').replace('-', '_').upper()}"
        help_ = f"{help_}; default {variable}"
        group.add_argument(name, default=argparse.SUPPRESS, metavar=metavar, help=help_)
    trust = "accept any certificate of the broker"
    insecure = "--tls-allow-insecure"
    group.add_argument(insecure, action="store_true", default=argparse.SUPPRESS, help=trust)


def _options(arguments: Iterable[str]) -> Iterable[str]:
    """Yields the long options, without their values."""
    for each in arguments:
        if each == "--":
            return
        if each.startswith("--"):
            yield each.partition("=")[0]


def _elsewhere(commands: Commands, verb: str) -> Iterable[str]:
    """Yields verbs of that name in other commands: `topics compact` for `compact`."""
    for name, parser in commands.choices.items():
        verbs = parser._verbs()
        if verbs is not None and verb in verbs.choices:
            yield f"{name} {verb}"
