"""The strategies over a plain list of messages: the oracles for the compactor.

Written like Pulsar's compactors, message by message with a map of keys, unlike ours, by the rules
in their plain form (ledgerfold/strategies/plain.py).

    >>> a1, a2, a_gone = Message(b"a", b"1"), Message(b"a", b"2"), Message(b"a", b"")
    >>> outcome = publishing_order([a1, a2, a_gone])
    >>> outcome.survivors, outcome.removed_events
    ([], 2)
    >>> outcome_of("keep-n", {"n": "2"}, [a1, a2, a1]).survivors
    [1, 2]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ledgerfold.strategies.plain import EventTime, EventTimeWindow, KeepN, PublishingOrder


class Message(NamedTuple):
    """`key` None: no key. An empty value is a tombstone. `is_alone`: published alone, no batch."""

    key: bytes | None
    value: bytes
    event_time_ms: int = 0
    is_alone: bool = False
    publish_time_ms: int = 0


class _Row(NamedTuple):
    """A message of a key in the form of the rules, with its index."""

    number: int
    is_tombstone: bool
    event_time_ms: int
    is_alone: bool
    publish_time_ms: int


@dataclass(frozen=True)
class Outcome:
    """Survivors are indexes into the messages, ascending."""

    survivors: list[int]
    removed_events: int
    tombstones: int
    null_keys: int
    keys: int


def outcome_of(
    name: str,
    settings: Mapping[str, str],
    messages: Sequence[Message],
    retain_null_key: bool = False,
    time_ms: int = 0,
) -> Outcome:
    """Returns the messages that a strategy of the catalogue keeps. `time_ms`: the run's time."""
    survivors: list[int] = []
    removed = 0
    keys: dict[bytes, PublishingOrder[_Row]] = {}
    for index, (key, value, event_time_ms, is_alone, publish_time_ms) in enumerate(messages):
        if key is None:
            continue
        rules = keys.get(key)
        if rules is None:
            rules = keys[key] = _rules_of(name, settings, time_ms)
        row = _Row(index, not value, event_time_ms, is_alone, publish_time_ms)
        removed += rules.process(row).removed_events
    for rules in keys.values():
        young = rules.young if isinstance(rules, EventTimeWindow) else ()
        survivors += [row.number for row in (*rules.kept, *young)]
    return _outcome(messages, survivors, removed, retain_null_key)


def _rules_of(name: str, settings: Mapping[str, str], time_ms: int) -> PublishingOrder[_Row]:
    match name:
        case "publishing-order":
            return PublishingOrder()
        case "event-time":
            return EventTime()
        case "keep-n":
            return KeepN(int(settings["n"]))
    assert name == "event-time-window", name
    return EventTimeWindow(time_ms - int(settings["lag_ms"]))


def publishing_order(messages: Sequence[Message], retain_null_key: bool = False) -> Outcome:
    return outcome_of("publishing-order", {}, messages, retain_null_key)


def _keyed(messages: Sequence[Message]) -> Iterator[tuple[int, bytes]]:
    for index, message in enumerate(messages):
        if message.key is not None:
            yield index, message.key


def _outcome(
    messages: Sequence[Message], survivors: list[int], removed: int, retain_null_key: bool
) -> Outcome:
    """Adds the messages without a key, all of which stay, or none."""
    keyless = [index for index, message in enumerate(messages) if message.key is None]
    keyed = list(_keyed(messages))
    return Outcome(
        sorted([*survivors, *keyless] if retain_null_key else survivors),
        removed if retain_null_key else removed + len(keyless),
        tombstones=sum(not messages[index].value for index, _ in keyed),
        null_keys=len(keyless),
        keys=len({key for _, key in keyed}),
    )
