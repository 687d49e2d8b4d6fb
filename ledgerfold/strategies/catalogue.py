"""The strategies of compaction that come with Ledgerfold: names, versions, settings.

How each chooses is the compactor's (compactor/strategies/), which the broker never imports and
which may be of another build when it was started by hand: so a plan says the version, too. A
version rises when what the strategy keeps or counts changes.

A name that is not listed here is a strategy of one's own: an entry point of the group
`ledgerfold.strategies`, or "module:Class". Whether there is one, only a worker can say.

    >>> from ledgerfold.v1.records_pb2 import CompactionStrategy
    >>> checked(CompactionStrategy(name="EVENT_TIME")).name
    'event-time'
    >>> settings_of(CompactionStrategy(name="keep-n", settings={"n": "3"}))
    {'n': '3'}
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1.records_pb2 import CompactionStrategy

DEFAULT: Final = "publishing-order"
ENTRY_POINTS: Final = "ledgerfold.strategies"
_DIGITS_MAX: Final = 18
_NAME_CHARACTERS_MAX: Final = 200
SETTINGS_MAX: Final = 100
VALUE_CHARACTERS_MAX: Final = 4096
_OWN_NAME = re.compile(r"[A-Za-z_][\w.-]*(:[A-Za-z_][\w.]*)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Setting:
    """`lowest`: a whole number, not below that; without it any text."""

    name: str
    meaning: str
    default: str | None = None
    lowest: int | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """A strategy that comes with Ledgerfold.

    `is_strategic`: it decides message by message. `heeds_time`: time alone changes what it keeps.
    """

    name: str
    version: int
    meaning: str
    settings: tuple[Setting, ...] = ()
    is_strategic: bool = False
    heeds_time: bool = False


LISTED: Final[dict[str, Listed]] = {
    each.name: each
    for each in (
        Listed("publishing-order", 1, "the message published last wins"),
        Listed("event-time", 1, "the message with the highest event time wins"),
        Listed("newest", 1, "as publishing-order, asked message by message", is_strategic=True),
        Listed("numeric", 1, "the largest number as value wins", is_strategic=True),
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
            (Setting("n", "how many messages of a key are kept", lowest=1),),
        ),
        Listed(
            "event-time-window",
            1,
            "as event-time, and nothing younger than a lag is touched",
            (Setting("lag_ms", "how old a message must be, by event time", lowest=0),),
            heeds_time=True,
        ),
    )
}
_PULSAR = "org.apache.pulsar.compaction."
# Pulsar's names: of its tool's --compactor-type, its factories and its compactors.
ALIASES: Final = {
    "PUBLISHING": "publishing-order",
    _PULSAR + "PulsarCompactionServiceFactory": "publishing-order",
    _PULSAR + "PublishingOrderCompactor": "publishing-order",
    "EVENT_TIME": "event-time",
    _PULSAR + "EventTimeCompactionServiceFactory": "event-time",
    _PULSAR + "EventTimeOrderCompactor": "event-time",
}


def listed(name: str) -> Listed | None:
    """None for one of one's own."""
    return LISTED.get(ALIASES.get(name, name))


def checked(asked: CompactionStrategy) -> CompactionStrategy:
    """The same under our name. Raises InvalidRequest: a name or settings that cannot be.

    Of a strategy of one's own only the form of the name is looked at.
    """
    found = listed(asked.name)
    if found is None:
        check_own_name(asked.name)
        _check_settings(asked)
        return asked
    _check_settings(asked)
    strategy = CompactionStrategy(name=found.name, settings=asked.settings)
    settings_of(strategy)
    return strategy


def check_own_name(name: str) -> None:
    """Raises InvalidRequest for what is neither an entry point's name nor "module:Class"."""
    if len(name) > _NAME_CHARACTERS_MAX or not _OWN_NAME.fullmatch(name):
        raise InvalidRequest(
            f"{name!r} names no strategy. There are {', '.join(LISTED)}; of your own, "
            f"those of entry points {ENTRY_POINTS!r}, and 'module:Class'."
        )


def _check_settings(asked: CompactionStrategy) -> None:
    """What those of any strategy must be: they are stored, logged, and told by every status."""
    if len(asked.settings) > SETTINGS_MAX:
        raise InvalidRequest(
            f"Strategy {asked.name!r} is given {len(asked.settings)} settings; {SETTINGS_MAX} is "
            "the most."
        )
    for name, value in asked.settings.items():
        if not name.isidentifier() or len(name) > _NAME_CHARACTERS_MAX:
            raise InvalidRequest(
                f"Strategy {asked.name!r}: a setting is a keyword argument of its class, and "
                f"{name!r} is no name of one."
            )
        if len(value) > VALUE_CHARACTERS_MAX or "\0" in value:
            raise InvalidRequest(
                f"Setting {name!r} of strategy {asked.name!r} has {len(value)} characters. "
                f"{VALUE_CHARACTERS_MAX} is the most, and none of them is NUL."
            )


def settings_of(strategy: CompactionStrategy) -> dict[str, str]:
    """All settings, defaults filled in. Raises InvalidRequest: unknown, missing or not a number."""
    found = listed(strategy.name)
    if found is None:
        return dict(strategy.settings)
    known = {setting.name: setting for setting in found.settings}
    for name in strategy.settings:
        if name not in known:
            there_are = f"there are {', '.join(known)}" if known else "it has none"
            raise InvalidRequest(f"Strategy {found.name!r} has no setting {name!r}; {there_are}.")
    return {name: _value(found.name, known[name], strategy) for name in known}


def told(strategy: CompactionStrategy) -> str:
    """For people.

    >>> told(CompactionStrategy(name="keep-n", settings={"n": "3"}))
    'keep-n (n=3)'
    """
    settings = ", ".join(f"{name}={value}" for name, value in sorted(strategy.settings.items()))
    return f"{strategy.name} ({settings})" if settings else strategy.name


def _value(strategy_name: str, setting: Setting, strategy: CompactionStrategy) -> str:
    value = strategy.settings.get(setting.name, setting.default)
    if value is None:
        raise InvalidRequest(
            f"Strategy {strategy_name!r} needs its setting {setting.name!r}: {setting.meaning}."
        )
    named = f"Setting {setting.name!r} of strategy {strategy_name!r}"
    if setting.lowest is None:
        if not value:
            raise InvalidRequest(f"{named} is empty: {setting.meaning}.")
    elif not _is_number(value) or int(value) < setting.lowest:
        raise InvalidRequest(
            f"{named} is a whole number, at least {setting.lowest} and of {_DIGITS_MAX} digits "
            f"at most, and not {value!r}."
        )
    return value


def _is_number(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX
