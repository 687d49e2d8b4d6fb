"""The catalogue of built-in compaction strategies: names, versions, settings.

The compactor implements them (compactor/strategies/). The broker never imports that, and a
compactor started by hand may be of another build: so a plan includes the version. A version rises
when the strategy keeps or counts other messages.

A name that is not in the catalogue denotes a user-defined strategy: an entry point of the group
`ledgerfold.strategies`, or "module:Class". Only a worker can check that it exists.

    >>> from ledgerfold.v1.records_pb2 import CompactionStrategy
    >>> checked(CompactionStrategy(name="EVENT_TIME")).name
    'event-time'
    >>> settings_of(CompactionStrategy(name="keep-n", settings={"n": "3"}))
    {'n': '3'}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.records_pb2 import CompactionStrategy

if TYPE_CHECKING:
    from importlib.metadata import EntryPoints

DEFAULT: Final = "publishing-order"
ENTRY_POINTS: Final = "ledgerfold.strategies"
_DIGITS_MAX: Final = 18
_NAME_CHARACTERS_MAX: Final = 200
SETTINGS_MAX: Final = 100
VALUE_CHARACTERS_MAX: Final = 4096
_OWN_NAME = re.compile(r"[A-Za-z_][\w.-]*(:[A-Za-z_][\w.]*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting. `lowest`: it is an integer, at least that; None: any text."""

    name: str
    meaning: str
    default: str | None = None
    lowest: int | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A built-in strategy.

    `is_strategic`: it decides message by message. `depends_on_time`: time alone changes its result.
    """

    name: str
    version: int
    meaning: str
    settings: tuple[Setting, ...] = ()
    is_strategic: bool = False
    depends_on_time: bool = False


LISTED: Final[dict[str, Listed]] = {
    each.name: each
    for each in (
        Listed("publishing-order", 1, "the message published last wins"),
        Listed("event-time", 2, "the message with the highest event time wins"),
        Listed("newest", 1, "publishing-order, decided message by message", is_strategic=True),
        Listed("numeric", 1, "the value that is the largest number wins", is_strategic=True),
        Listed("keep-first", 1, "the message published first wins", is_strategic=True),
        Listed(
            "header-version",
            1,
            "the largest number in a property wins",
            (Setting("property", "the property that holds the number"),),
            is_strategic=True,
        ),
        Listed(
            "keep-n",
            1,
            "the last n messages are kept",
            (Setting("n", "the number of messages to keep per key", lowest=1),),
        ),
        Listed(
            "event-time-window",
            2,
            "event-time, except for messages younger than a lag",
            (Setting("lag_ms", "the lag, by event time", lowest=0),),
            depends_on_time=True,
        ),
    )
}
_PULSAR = "org.apache.pulsar.compaction."
# Pulsar's names of compactor types, factories and compactors.
ALIASES: Final = {
    "PUBLISHING": "publishing-order",
    _PULSAR + "PulsarCompactionServiceFactory": "publishing-order",
    _PULSAR + "PublishingOrderCompactor": "publishing-order",
    "EVENT_TIME": "event-time",
    _PULSAR + "EventTimeCompactionServiceFactory": "event-time",
    _PULSAR + "EventTimeOrderCompactor": "event-time",
}


def listed(name: str) -> Listed | None:
    """Returns the built-in strategy; None for a user-defined one."""
    return LISTED.get(ALIASES.get(name, name))


def installed() -> EntryPoints:
    """Returns the user-defined strategies that installed packages offer."""
    # Few processes need this module, which takes a hundredth of a second.
    from importlib.metadata import entry_points

    return entry_points(group=ENTRY_POINTS)


def drops_null_keys(name: str) -> bool:
    """Returns whether the strategy ignores retain_null_key: message strategies and user-defined
    ones do.
    """
    known = listed(name)
    return known is None or known.is_strategic


def checked(requested: CompactionStrategy) -> CompactionStrategy:
    """Returns the strategy under our name. Raises InvalidRequest if name or settings are invalid.

    For a user-defined strategy, checks only the form of the name.
    """
    builtin = listed(requested.name)
    if builtin is None:
        check_own_name(requested.name)
        _check_settings(requested)
        return requested
    _check_settings(requested)
    strategy = CompactionStrategy(name=builtin.name, settings=requested.settings)
    settings_of(strategy)
    return strategy


def check_own_name(name: str) -> None:
    """Raises InvalidRequest if it is neither an entry point's name nor "module:Class"."""
    if len(name) > _NAME_CHARACTERS_MAX or not _OWN_NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} is not a strategy. Use {', '.join(LISTED)}, an entry point of the group "
            f"{ENTRY_POINTS!r}, or 'module:Class'."
        )


def _check_settings(requested: CompactionStrategy) -> None:
    """Checks the settings of any strategy, which are stored, logged, and part of every status."""
    if len(requested.settings) > SETTINGS_MAX:
        raise InvalidRequest(
            f"Strategy {requested.name!r} has {len(requested.settings)} settings; the limit is "
            f"{SETTINGS_MAX}."
        )
    for name, value in requested.settings.items():
        if not name.isidentifier() or len(name) > _NAME_CHARACTERS_MAX:
            raise InvalidRequest(
                f"Setting {name!r} of strategy {requested.name!r} is not a valid name: settings "
                "are keyword arguments of its class."
            )
        if len(value) > VALUE_CHARACTERS_MAX or "\0" in value:
            raise InvalidRequest(
                f"Setting {name!r} of strategy {requested.name!r} has {len(value)} characters. It "
                f"may have at most {VALUE_CHARACTERS_MAX}, and no NUL."
            )


def settings_of(strategy: CompactionStrategy) -> dict[str, str]:
    """Returns all settings with defaults. Raises InvalidRequest: unknown, missing, invalid."""
    builtin = listed(strategy.name)
    if builtin is None:
        return dict(strategy.settings)
    known = {setting.name: setting for setting in builtin.settings}
    for name in strategy.settings:
        if name not in known:
            has = f"it has {', '.join(known)}" if known else "it has none"
            raise InvalidRequest(f"Strategy {builtin.name!r} has no setting {name!r}; {has}.")
    return {name: _value(builtin.name, known[name], strategy) for name in known}


def strategy_text(strategy: CompactionStrategy) -> str:
    """Describes a strategy, for people.

    >>> strategy_text(CompactionStrategy(name="keep-n", settings={"n": "3"}))
    'keep-n (n=3)'
    """
    settings = ", ".join(f"{name}={value}" for name, value in sorted(strategy.settings.items()))
    return f"{strategy.name} ({settings})" if settings else strategy.name


def _value(strategy_name: str, setting: Setting, strategy: CompactionStrategy) -> str:
    value = strategy.settings.get(setting.name, setting.default)
    if value is None:
        raise InvalidRequest(
            f"Strategy {strategy_name!r} needs the setting {setting.name!r}: {setting.meaning}."
        )
    named = f"Setting {setting.name!r} of strategy {strategy_name!r}"
    if setting.lowest is None:
        if not value:
            raise InvalidRequest(f"{named} is empty: {setting.meaning}.")
    elif not _is_number(value) or int(value) < setting.lowest:
        raise InvalidRequest(
            f"{named} must be an integer of at least {setting.lowest} and at most {_DIGITS_MAX} "
            f"digits, not {value!r}."
        )
    return value


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX
