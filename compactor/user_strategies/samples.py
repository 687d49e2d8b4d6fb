"""The questions of a trial to a user-defined strategy, in its process (sandbox_process.py).

The sample messages have every form that a message may have. A strategy must handle each form,
because a single message that it cannot handle would fail every run of the topic.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from ledgerfold.compactor.strategies.strategy import Facts, Folded, Strategy
from ledgerfold.compactor.strategies.watch import Watch
from ledgerfold.compactor.user_strategies.own import at, checked_fold, checked_positions
from ledgerfold.storage.errors import StrategyFailed
from ledgerfold.strategies.loading import RAISED, describe_error
from ledgerfold.strategies.strategic import READS
from ledgerfold.strategies.words import has_words, words_of


class TrialMessage:
    """A ledgerfold.strategies.StrategicMessage, with the parts that the strategy reads."""

    def __init__(
        self, key: str, message_id: tuple[int, int, int], parts: Mapping[str, Any]
    ) -> None:
        self.key, self.message_id = key, message_id
        self.__dict__.update(parts)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the class does not list {name!r} in `reads`")


class Question(NamedTuple):
    what: str
    previous: TrialMessage | None
    current: TrialMessage


def questions(reads: Sequence[str]) -> Iterator[Question]:
    def sample(entry_id: int, value: bytes, batch_index: int = -1, **rest: Any) -> TrialMessage:
        parts = {
            "value": value,
            "properties": {},
            "event_time_ms": 0,
            "publish_time_ms": 1_700_000_000_000 + entry_id,
        }
        parts.update(rest)
        read = {name: parts[name] for name in reads}
        return TrialMessage("sample", (1, entry_id, batch_index), read)

    first, second = sample(1, b"1"), sample(2, b"2", 0, event_time_ms=1_700_000_000_000)
    text = sample(3, "žluťoučký kůň".encode(), properties={"name": "value", "n": "7"})
    tombstone, binary = sample(4, b""), sample(5, b"\x00\xff\xfe", 3)
    yield Question("a value after nothing", None, first)
    yield Question("a value after a value", first, second)
    yield Question("a value with properties after one without", second, text)
    yield Question("a value without properties after one with some", text, second)
    yield Question("a tombstone after a value", first, tombstone)
    yield Question("a tombstone after nothing", None, tombstone)
    yield Question("a binary value after nothing", None, binary)
    yield Question("a binary value after a value", first, binary)
    yield Question("a value after a binary value", binary, second)


def ask_strategic(name: str, strategy: Any, watch: Watch) -> tuple[str, ...]:
    """Asks about the samples. Returns the parts that it reads. Raises StrategyFailed."""
    declared = getattr(strategy, "reads", READS)
    if not isinstance(declared, tuple | list | set | frozenset):
        why = f"it is {declared!r:.100}, and must be a tuple of names: ('value',)"
        raise StrategyFailed(name, "in `reads`", why)
    reads = tuple(map(str, declared))
    unknown = sorted(set(reads).difference(READS))
    if unknown:
        why = f"a message has {', '.join(READS)}, and no {', '.join(unknown)}"
        raise StrategyFailed(name, "in `reads`", why)
    handle_skipped = getattr(strategy, "handle_skipped", None)
    for what, previous, current in questions(reads):
        at = f"asked about {what}"
        with watch.asking(at):
            try:
                answer = strategy.should_keep_left(previous, current)
                if handle_skipped is not None:
                    handle_skipped(current.key, current)
            except RAISED as error:  # user code may raise anything
                if isinstance(error, MemoryError):
                    raise
                raise StrategyFailed(name, at, describe_error(error)) from error
        if answer is not True and answer is not False:
            why = f"it returned {answer!r:.100}, which is neither True nor False"
            raise StrategyFailed(name, at, why)
    return reads


_CODES = np.array([0, 1, 0, 2, 1, 0, 2, 2])
_IS_VALUE = np.array([1, 1, 0, 1, 1, 1, 0, 1], np.bool_)


def ask_columns(name: str, strategy: Strategy, watch: Watch) -> None:
    """Asks about the samples. Raises StrategyFailed, also for a violation of the first law
    (compactor/strategies/registry.py).
    """
    facts = Facts(np.arange(len(_CODES), dtype=np.int64), _IS_VALUE)
    if strategy.reads_event_times:
        times = np.array([5, 0, 7, 3, 3, 6, 9, 0], np.int64)
        facts = facts._replace(event_times=times, is_alone=_IS_VALUE.copy())
    with watch.asking("about samples"):
        try:
            outcome = _outcome(name, strategy, facts, [])
            for cut in range(1, len(_CODES)):
                if _outcome(name, strategy, facts, [cut]) != outcome:
                    why = "begin and join yield another result if the log is split"
                    raise StrategyFailed(name, "asked about samples", why)
        except StrategyFailed:
            raise
        except RAISED as error:  # user code may raise anything
            if isinstance(error, MemoryError):
                raise
            raise StrategyFailed(name, "asked about samples", describe_error(error)) from error


def _outcome(
    name: str, strategy: Strategy, facts: Facts, cuts: Sequence[int]
) -> tuple[list[int], int]:
    """Returns the survivors and the removed events of the samples, split at `cuts`."""
    removed_events, keys, columns = 0, [], []
    for start, end in pairwise([0, *cuts, len(_CODES)]):
        distinct, codes = np.unique(_CODES[start:end], return_inverse=True)
        begun = strategy.begin(codes, facts.where(np.arange(start, end)), len(distinct))
        folded = checked_fold(name, "begin", begun, len(distinct))
        removed_events += folded.removed_events
        keys.append(distinct if folded.codes is None else distinct[folded.codes])
        columns.append(folded.fragments)
    distinct, codes = np.unique(np.concatenate(keys), return_inverse=True)
    fragments = tuple(map(np.concatenate, zip(*columns, strict=True)))
    joined: Folded = checked_fold(
        name, "join", strategy.join(codes, fragments, len(distinct)), len(distinct)
    )
    positions = checked_positions(name, strategy.survivors(joined.fragments)).tolist()
    if not set(positions) <= set(facts.positions.tolist()):
        why = "it returns positions that no message has"
        raise StrategyFailed(name, "in its answer to survivors", why)
    return sorted(positions), removed_events + joined.removed_events


def messages_of(strategy: Any, samples: Sequence[dict[str, Any]]) -> list[TrialMessage]:
    """Decodes messages from JSON."""
    reads = set(getattr(strategy, "reads", READS))
    messages = []
    for each in samples:
        parts = {**each, "value": base64.b64decode(each["value"])}
        parts_read = {name: parts[name] for name in READS if name in reads}
        messages.append(TrialMessage(each["key"], tuple(each["message_id"]), parts_read))
    return messages


def explain_choices(
    strategy: Any, messages: Sequence[TrialMessage], is_value: Sequence[bool], watch: Watch
) -> dict[str, Any]:
    """Returns the explanations of a strategy for the messages of a key: its `explain`.

    As in a run, the class is called for the messages in sequence; its `explain` is called if there
    is a current message. `handle_skipped` is not called. `choices`: the current message, the new
    one, and the text; `why`: the error that ended the list. Raises Exceeded.

        >>> from ledgerfold.compactor.strategies.watch import DEFAULT_LIMITS
        >>> class Longest:
        ...     def should_keep_left(self, previous, current):
        ...         return previous is not None and len(previous.value) > len(current.value)
        ...
        ...     def explain(self, left, right):
        ...         return f"{len(right.value)} letters, the current one has {len(left.value)}"
        >>> values = enumerate([b"abc", b"d"])
        >>> messages = [TrialMessage("k", (1, at, -1), {"value": value}) for at, value in values]
        >>> explain_choices(Longest(), messages, [True, True], Watch(DEFAULT_LIMITS))
        {'choices': [[0, 1, '1 letters, the current one has 3']]}
    """
    choices: list[list[Any]] = []
    if not has_words(strategy):
        return {"choices": choices}
    standing: int | None = None
    for number, current in enumerate(messages):
        previous = None if standing is None else messages[standing]
        with watch.asking(current):
            try:
                keeps_left = strategy.should_keep_left(previous, current)
            except RAISED as error:  # user code may raise anything
                if isinstance(error, MemoryError):
                    raise
                return {"choices": choices, "why": f"{describe_error(error)}, {at(current)}"}
            words = None if previous is None else words_of(strategy, previous, current)
        if words:
            choices.append([standing, number, words])
        if not keeps_left:
            standing = number if is_value[number] else None
    return {"choices": choices}
