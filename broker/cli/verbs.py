"""Tables of commands and verbs, which are declared at the functions that run them.

>>> VERBS = Verbs()
>>> @VERBS.verb("delete", "delete a topic", argument("topic", "its name"))
... @flag("-f --force", "disconnect its clients")
... def _delete(options: argparse.Namespace) -> None:
...     print(options.topic, options.force)
>>> parser = Parser()
>>> VERBS.add_to(parser.add_subparsers())
>>> options = parser.parse_args(["delete", "orders", "-f"])
>>> options.run(options)
orders True
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from ledgerfold.broker.cli.parsing import Commands, Parser

Run = Callable[[argparse.Namespace], int | None]
_Run = TypeVar("_Run", bound=Run)


class Argument:
    """One or more arguments or options. Decorates the function of the verb that has them."""

    def __init__(self, add_to: Callable[[Any], object]) -> None:
        # Adds it to a parser, or to a group of a parser.
        self.add_to = add_to

    def __call__(self, run: _Run) -> _Run:
        # Decorators are applied from the last to the first.
        vars(run).setdefault("arguments", []).insert(0, self)
        return run


class _Verb(NamedTuple):
    """A row of a table. `settings`: further settings of its parser."""

    name: str
    help: str
    arguments: tuple[Argument, ...]
    settings: dict[str, Any]


class Verbs:
    """A table of commands or verbs, in the order of the help. `common`: arguments of all."""

    def __init__(self, *common: Argument) -> None:
        self._common = common
        self._verbs: list[_Verb] = []

    @property
    def names(self) -> list[str]:
        return [verb.name for verb in self._verbs]

    def verb(
        self, name: str, help_: str, *arguments: Argument, **settings: Any
    ) -> Callable[[_Run], _Run]:
        """Declares the verb that the decorated function runs. `arguments` come before its own."""

        def declare(run: _Run) -> _Run:
            own = vars(run).get("arguments", ())
            self.add(name, help_, *arguments, *own, defaults(run=run), **settings)
            return run

        return declare

    def add(self, name: str, help_: str, *arguments: Argument, **settings: Any) -> None:
        self._verbs.append(_Verb(name, help_, arguments, settings))

    def command(
        self,
        name: str,
        help_: str,
        *tables: Verbs,
        title: str = "verbs",
        metavar: str = "VERB",
        **settings: Any,
    ) -> Verbs:
        """Declares a command with verbs. Returns the table of the command's verbs, which precede
        those of `tables`.
        """
        own = Verbs()

        def add_to(parser: Parser) -> None:
            verbs = parser.add_subparsers(title=title, metavar=metavar, required=True)
            for table in (own, *tables):
                table.add_to(verbs)

        self.add(name, help_, Argument(add_to), **settings)
        return own

    def having(self, *common: Argument) -> Verbs:
        """Returns the same verbs with other arguments in common."""
        verbs = Verbs(*common)
        verbs._verbs = self._verbs
        return verbs

    def add_to(self, commands: Commands) -> None:
        for verb in self._verbs:
            every = together(*self._common, *verb.arguments)
            commands.add_later(verb.name, verb.help, every.add_to, **verb.settings)


def argument(usage: str, help_: str, **settings: Any) -> Argument:
    """Describes an argument, "topic", or an option as in the help, "-s --size SIZE". `settings`:
    those of `add_argument`.
    """
    *names, last = usage.split()
    if names and not last.startswith("-"):
        settings["metavar"] = last
    else:
        names.append(last)
    return Argument(lambda parser: parser.add_argument(*names, help=help_, **settings))


def flag(usage: str, help_: str, **settings: Any) -> Argument:
    """Describes an option without a value."""
    return argument(usage, help_, action="store_true", **settings)


def repeated(usage: str, help_: str, **settings: Any) -> Argument:
    """Describes an option that may be given several times."""
    return argument(usage, help_, action="append", default=[], **settings)


def defaults(**values: Any) -> Argument:
    """Describes values that no argument sets."""
    return Argument(lambda parser: parser.set_defaults(**values))


def together(*arguments: Argument) -> Argument:
    def add_to(parser: Any) -> None:
        for each in arguments:
            each.add_to(parser)

    return Argument(add_to)


def group(title: str, *arguments: Argument, description: str | None = None) -> Argument:
    """Describes arguments that the help lists under a title."""
    listed = together(*arguments)
    return Argument(lambda parser: listed.add_to(parser.add_argument_group(title, description)))


def one_of(*arguments: Argument, required: bool = False) -> Argument:
    """Describes arguments that exclude each other."""
    either = together(*arguments)
    return Argument(
        lambda parser: either.add_to(parser.add_mutually_exclusive_group(required=required))
    )
