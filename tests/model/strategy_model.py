"""The strategies over a plain list of messages: the oracles for the compactor.

Written as Pulsar's compactors work, message by message with a map of keys, and not as ours do.

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
from itertools import chain
from typing import NamedTuple


class Message(NamedTuple):
    """`key` None: no key. An empty value is a tombstone. `is_alone`: published alone, no batch."""

    key: bytes | None
    value: bytes
    event_time_ms: int = 0
    is_alone: bool = False
    publish_time_ms: int = 0


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
    """What a strategy of the catalogue leaves. `time_ms`: of the run."""
    if name == "publishing-order":
        return publishing_order(messages, retain_null_key)
    if name == "event-time":
        return event_time(messages, retain_null_key)
    if name == "keep-n":
        return keep_n(messages, int(settings["n"]), retain_null_key)
    assert name == "event-time-window", name
    return event_time_window(messages, time_ms - int(settings["lag_ms"]), retain_null_key)


def publishing_order(messages: Sequence[Message], retain_null_key: bool = False) -> Outcome:
    """The last one of each key."""
    newest: dict[bytes, int] = {}
    removed = 0
    for index, key in _keyed(messages):
        if messages[index].value:
            removed += key in newest
            newest[key] = index
        else:
            removed += 1
            newest.pop(key, None)
    return _outcome(messages, list(newest.values()), removed, retain_null_key)


def event_time(messages: Sequence[Message], retain_null_key: bool = False) -> Outcome:
    """The one with the highest event time."""
    standing, removed = _by_event_time(messages, list(_keyed(messages)))
    return _outcome(messages, standing, removed, retain_null_key)


def event_time_window(
    messages: Sequence[Message], old_until_ms: int, retain_null_key: bool = False
) -> Outcome:
    """The same of those whose time is not later than that; all others stay."""
    old, young = [], []
    for index, key in _keyed(messages):
        message = messages[index]
        if (message.event_time_ms or message.publish_time_ms) > old_until_ms:
            young.append(index)
        else:
            old.append((index, key))
    standing, removed = _by_event_time(messages, old)
    return _outcome(messages, [*standing, *young], removed, retain_null_key)


def _by_event_time(
    messages: Sequence[Message], rows: Sequence[tuple[int, bytes]]
) -> tuple[list[int], int]:
    standing: dict[bytes, tuple[int, int]] = {}
    removed = 0
    for index, key in rows:
        message = messages[index]
        if key in standing:
            _, time_ms = standing[key]
            if message.is_alone:
                is_newer = message.event_time_ms >= time_ms
            else:
                is_newer = message.event_time_ms > time_ms
        else:
            is_newer = True
        if is_newer and message.value:
            removed += key in standing
            standing[key] = index, message.event_time_ms
        elif is_newer:
            removed += 1
            standing.pop(key, None)
    return [index for index, _ in standing.values()], removed


def keep_n(messages: Sequence[Message], n: int, retain_null_key: bool = False) -> Outcome:
    """The last n of each key."""
    kept: dict[bytes, list[int]] = {}
    removed = 0
    for index, key in _keyed(messages):
        values = kept.setdefault(key, [])
        if messages[index].value:
            values.append(index)
        else:
            removed += 1 + len(values)
            values.clear()
        if len(values) > n:
            removed += 1
            values.pop(0)
    return _outcome(messages, [*chain.from_iterable(kept.values())], removed, retain_null_key)


def _keyed(messages: Sequence[Message]) -> Iterator[tuple[int, bytes]]:
    for index, message in enumerate(messages):
        if message.key is not None:
            yield index, message.key


def _outcome(
    messages: Sequence[Message], survivors: list[int], removed: int, retain_null_key: bool
) -> Outcome:
    """With the messages without a key, of which all stay or none."""
    keyless = [index for index, message in enumerate(messages) if message.key is None]
    keyed = list(_keyed(messages))
    return Outcome(
        sorted([*survivors, *keyless] if retain_null_key else survivors),
        removed if retain_null_key else removed + len(keyless),
        tombstones=sum(not messages[index].value for index, _ in keyed),
        null_keys=len(keyless),
        keys=len({key for _, key in keyed}),
    )
