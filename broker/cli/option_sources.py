"""Options of a command from environment variables and a file, derived from its parser.

Each option `--NAME VALUE` of `serve` is also the variable LEDGERFOLD_NAME, and the key NAME of the
TOML file that `--config` or LEDGERFOLD_CONFIG names:

    >>> parser = argparse.ArgumentParser()
    >>> for name in ("--data", "--listen", "--config"):
    ...     _ = parser.add_argument(name, default=f"default of {name}")
    >>> sources = OptionSources(parser, {"LEDGERFOLD_LISTEN": "h:1"})
    >>> options = sources.parse(lambda options: parser.parse_args(["--data", "d"], options))
    >>> options.data, options.listen
    ('d', 'h:1')

The command line has priority over the variable, the variable over the file, the file over the
default. Options that exclude each other count as one option. Types and choices are the parser's.

* With an optional value, or none: true or false.
* Repeated: in a variable words as in a shell; in the file an array. If the values are NAME=VALUE,
  the file may have a table, whose tables inside make names with dots.

Bound: a file of CONFIG_BYTES_MAX.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ledgerfold.broker.cli.suggestions import did_you_mean
from ledgerfold.storage.errors import InvalidRequest

PREFIX = "LEDGERFOLD_"
# `off`: variables are ignored, as by the brokers that tests start.
SWITCH = f"{PREFIX}SERVE_VARIABLES"
CONFIG = "config"
CONFIG_BYTES_MAX = 1024 * 1024
_UNSET = object()


class _Source(NamedTuple):
    """The value of an option. `origin`: the variable, or the file and the key."""

    origin: str
    value: Any


def name_of(action: argparse.Action) -> str:
    """Returns the key of an option in a file: its first long name."""
    return next(each for each in action.option_strings if each.startswith("--")).lstrip("-")


def variable_of(action: argparse.Action) -> str:
    return PREFIX + name_of(action).upper().replace("-", "_")


class OptionSources:
    """The variables and the file of a parser's options."""

    def __init__(self, parser: argparse.ArgumentParser, environment: Mapping[str, str]) -> None:
        self._parser = parser
        is_off = environment.get(SWITCH) == "off"
        self._environment: Mapping[str, str] = {} if is_off else environment
        self._options = {
            name_of(each): each
            for each in parser._actions
            if each.option_strings and each.dest != argparse.SUPPRESS and each.dest != "help"
        }

    def parse(self, parse: Callable[[argparse.Namespace], Any]) -> Any:
        """Calls `parse` for the command line, and adds the other sources' values to its result.

        Raises InvalidRequest, OSError.
        """
        options, actions = argparse.Namespace(), self._options.values()
        for action in actions:
            setattr(options, action.dest, [] if _is_repeated(action) else _UNSET)
        required = [each for each in actions if each.required]
        for each in required:
            each.required = False
        try:
            result = parse(options)
        finally:
            for each in required:
                each.required = True
        self._fill(options)
        missing = [f"--{name_of(each)}" for each in required if not _is_given(options, each)]
        if missing:
            self._parser.error(f"the following arguments are required: {', '.join(missing)}")
        for action in actions:
            if not _is_given(options, action):
                default = action.default
                is_text = isinstance(default, str)
                value = self._parser._get_value(action, default) if is_text else default
                setattr(options, action.dest, value)
        return result

    def _fill(self, options: argparse.Namespace) -> None:
        variables, file = self._variables(), None
        for group in self._groups():
            if any(_is_given(options, each) for each in group):
                continue
            if file is None:
                file = self._file(options, variables)
            for source in (variables, file):
                named = [each for each in group if name_of(each) in source]
                if len(named) > 1:
                    first, second = (source[name_of(each)].origin for each in named[:2])
                    raise InvalidRequest(f"{first} and {second} exclude each other.")
                if named:
                    value = _converted(self._parser, named[0], source[name_of(named[0])])
                    setattr(options, named[0].dest, value)
                    break

    def _groups(self) -> Iterator[Sequence[argparse.Action]]:
        """Yields the options, those that exclude each other together."""
        groups = [each._group_actions for each in self._parser._mutually_exclusive_groups]
        yield from groups
        for action in self._options.values():
            if not any(action in group for group in groups):
                yield [action]

    def _variables(self) -> dict[str, _Source]:
        sources = {}
        for name, action in self._options.items():
            variable = variable_of(action)
            # Empty is unset, as for shells' ${NAME:-default}.
            if text := self._environment.get(variable):
                sources[name] = _Source(variable, _of_variable(action, text, variable))
        return sources

    def _file(
        self, options: argparse.Namespace, variables: Mapping[str, _Source]
    ) -> dict[str, _Source]:
        path = options.config
        if path is _UNSET and CONFIG in variables:
            path = _converted(self._parser, self._options[CONFIG], variables[CONFIG])
        if path is _UNSET or not isinstance(path, Path):
            return {}
        known = [name for name in self._options if name != CONFIG]
        sources = {}
        for name, value in _read(path).items():
            if name not in known:
                hint = did_you_mean(name.replace("_", "-"), known)
                raise InvalidRequest(f"{path}: {name!r} is not an option of serve.{hint}")
            sources[name] = _Source(f"{path}: {name}", value)
        return sources


def _is_given(options: argparse.Namespace, action: argparse.Action) -> bool:
    value = getattr(options, action.dest)
    return bool(value) if _is_repeated(action) else value is not _UNSET


def _is_repeated(action: argparse.Action) -> bool:
    return isinstance(action, argparse._AppendAction)


def _is_flag(action: argparse.Action) -> bool:
    return action.nargs == 0


def _of_variable(action: argparse.Action, text: str, variable: str) -> Any:
    """Returns the value as it would be in a file."""
    if _is_repeated(action):
        try:
            return shlex.split(text)
        except ValueError as error:
            raise InvalidRequest(f"{variable}: {error}: {text[:100]!r}.") from None
    if (_is_flag(action) or action.nargs == "?") and text.lower() in ("true", "false"):
        return text.lower() == "true"
    return text


def _converted(parser: argparse.ArgumentParser, action: argparse.Action, source: _Source) -> Any:
    """Returns the value that the parser would set. Raises InvalidRequest."""
    value = source.value
    if _is_repeated(action):
        return [_checked(parser, action, source, each) for each in _listed(action, source)]
    if isinstance(value, bool) and _is_flag(action):
        return value
    if isinstance(value, bool) and action.nargs == "?":
        return parser._get_values(action, []) if value else action.default
    if _is_flag(action):
        raise InvalidRequest(f"{source.origin}: {value!r:.100} is not true or false.")
    return _checked(parser, action, source, value)


def _checked(
    parser: argparse.ArgumentParser, action: argparse.Action, source: _Source, value: Any
) -> Any:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise InvalidRequest(f"{source.origin}: {value!r:.100} is not text or a whole number.")
    try:
        # One value, as after the option.
        text = [str(value)]
        checked = parser._get_values(action, text)
        return checked[0] if isinstance(checked, list) else checked
    except argparse.ArgumentError as error:
        raise InvalidRequest(f"{source.origin}: {error.message}.") from None


def _listed(action: argparse.Action, source: _Source) -> Sequence[Any]:
    value = source.value
    if isinstance(value, dict) and "=" in str(action.metavar):
        return [f"{name}={each}" for name, each in _flat(value, source.origin)]
    return value if isinstance(value, list) else [value]


def _flat(table: Mapping[str, Any], origin: str, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yields names with dots, and values as text."""
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, origin, f"{prefix}{name}.")
        elif isinstance(value, bool):
            yield f"{prefix}{name}", str(value).lower()
        elif isinstance(value, str | int | float):
            yield f"{prefix}{name}", str(value)
        else:
            raise InvalidRequest(f"{origin}.{prefix}{name}: {value!r:.100} is not a single value.")


def _read(path: Path) -> dict[str, Any]:
    import tomllib

    with path.open("rb") as file:
        data = file.read(CONFIG_BYTES_MAX + 1)
    if len(data) > CONFIG_BYTES_MAX:
        raise InvalidRequest(f"{path} has more than {CONFIG_BYTES_MAX:,} bytes.")
    try:
        return tomllib.loads(data.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{path} is not valid TOML: {error}.") from None
