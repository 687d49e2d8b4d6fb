"""A user-defined strategy in a run: loaded in the task's process, limited, and checked.

The driver never loads it. A trial (compactor/user_strategies/sandbox.py) returns an Own, which the
driver sends to the tasks. They load the code, once in each process. If the code has another version
than in the trial, the run fails: a record never names a version that was not used.

Two kinds, distinguished by the object that the name denotes (ledgerfold/strategies/loading.py):

* strategic: it has `should_keep_left`, and optionally `handle_skipped`
  (ledgerfold/strategies/strategic.py). Each task calls the Own, which creates an instance; the
  process's watch limits its calls.
* columns: a Strategy (compactor/strategies/strategy.py), whose functions are called for chunks. The
  tasks get a wrapper, which loads the real one, calls it, and checks its results.

Any error in its code, or in its answers, is a StrategyFailed that names it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final, TypeGuard, TypeVar

import numpy as np
from numpy.typing import NDArray

from ledgerfold.compactor.positions import Integers
from ledgerfold.compactor.strategies.strategic import MessageStrategy
from ledgerfold.compactor.strategies.strategy import Codes, Facts, Folded, FragmentColumns, Strategy
from ledgerfold.compactor.strategies.watch import DEFAULT_LIMITS, Exceeded, Limits, Watch
from ledgerfold.storage.errors import InvalidStrategy, StrategyFailed
from ledgerfold.storage.message_ids import id_text
from ledgerfold.strategies.loading import RAISED, Loaded, describe_error, load

STRATEGIC: Final = "strategic"
COLUMNS: Final = "columns"
_LOADED = "when it was loaded"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Own:
    """A user-defined strategy, as a trial found it.

    `settings`: pairs, by name. `reads`: parts of a message, of READS.
    """

    name: str
    settings: tuple[tuple[str, str], ...]
    version: str
    # A hash of the code, which may change without the version.
    source: str
    kind: str
    reads: tuple[str, ...] = ()
    reads_event_times: bool = False
    limits: Limits = DEFAULT_LIMITS

    @contextmanager
    def held(self) -> Iterator[None]:
        """Applies the limits around a task. Raises StrategyFailed."""
        watch = _watch(self)
        try:
            with watch.held():
                yield
        except Exceeded as error:
            raise StrategyFailed(self.name, at(watch.last), str(error)) from error
        except RAISED:
            raise
        except BaseException as error:  # a type that only user code raises
            raise StrategyFailed(self.name, at(watch.last), describe_error(error)) from error

    def __call__(self) -> Any:
        """Creates an instance of a strategic one, for a task. Raises StrategyFailed."""
        return _load(self).strategy

    def watch(self) -> Watch:
        """Returns the watch of this process."""
        return _watch(self)

    @property
    def strategy(self) -> Strategy | MessageStrategy:
        """The strategy for the tasks."""
        if self.kind == STRATEGIC:
            return MessageStrategy(self.name, self.version, self, held=self.held, watch=self.watch)
        return Strategy(
            self.name,
            self.version,
            partial(_begin, self),
            partial(_join, self),
            partial(_survivors, self),
            self.reads_event_times,
            self.held,
        )


def kind_of(strategy: object) -> str:
    """Returns the kind of a strategy. Raises TypeError if it is of neither kind."""
    if callable(getattr(strategy, "should_keep_left", None)):
        return STRATEGIC
    if isinstance(strategy, Strategy):
        return COLUMNS
    raise TypeError(
        f"{type(strategy).__name__} has no method should_keep_left, and is not a column Strategy"
    )


def at(question: object) -> str:
    """Describes the question for an error message."""
    message_id = getattr(question, "message_id", None)
    if message_id is not None:
        ledger_id, entry_id, batch_index = message_id
        return f"at message {id_text(ledger_id, entry_id, batch_index=batch_index)}"
    return str(question or _LOADED)


# Columns, in a task


def _begin(own: Own, codes: Codes, facts: Facts, key_count: int) -> Folded:
    begun = _call(own, "begin", lambda strategy: strategy.begin(codes, facts, key_count))
    return checked_fold(own.name, "begin", begun, key_count)


def _join(own: Own, codes: Codes, columns: FragmentColumns, key_count: int) -> Folded:
    joined = _call(own, "join", lambda strategy: strategy.join(codes, columns, key_count))
    return checked_fold(own.name, "join", joined, key_count)


def _survivors(own: Own, columns: FragmentColumns) -> Integers:
    survivors = _call(own, "survivors", lambda strategy: strategy.survivors(columns))
    return checked_positions(own.name, survivors)


def checked_fold(name: str, function: str, folded: object, key_count: int) -> Folded:
    """Checks an answer. Raises StrategyFailed if it is not a Folded, or its parts do not match."""

    def wrong(why: str) -> StrategyFailed:
        return StrategyFailed(name, f"in its answer to {function}", why)

    if not isinstance(folded, Folded):
        raise wrong(f"it is a {type(folded).__name__}, not a Folded")
    if not folded.fragments or not all(map(_is_integers, folded.fragments)):
        raise wrong("its fragments are not arrays of integers")
    if not isinstance(folded.removed_events, int) or folded.removed_events < 0:
        raise wrong(f"{folded.removed_events!r:.100} is not a number of removed events")
    codes = folded.codes
    if codes is not None and not (
        _is_integers(codes) and bool(((codes >= 0) & (codes < key_count)).all())
    ):
        raise wrong(f"its codes are not those of {key_count} keys")
    rows = key_count if codes is None else len(codes)
    if any(len(each) != rows for each in folded.fragments):
        raise wrong(f"its columns do not have {rows} rows each")
    return folded


def checked_positions(name: str, positions: object) -> Integers:
    """Returns a sortable copy of the positions. Raises StrategyFailed if they are invalid."""
    if not _is_integers(positions) or len(np.unique(positions)) != len(positions):
        why = "it is not an array of distinct positions"
        raise StrategyFailed(name, "in its answer to survivors", why)
    return positions.astype(np.int64)


def _is_integers(positions: object) -> TypeGuard[NDArray[np.integer]]:
    return (
        isinstance(positions, np.ndarray) and positions.ndim == 1 and positions.dtype.kind in "iu"
    )


def _call(own: Own, function: str, ask: Callable[[Strategy], _T]) -> _T:
    strategy = _columns(own)
    with _watch(own).asking(f"in {function}"):
        try:
            return ask(strategy)
        except RAISED as error:  # user code may raise anything
            if isinstance(error, MemoryError):
                raise
            raise StrategyFailed(own.name, f"in {function}", describe_error(error)) from error


@lru_cache(maxsize=1)
def _columns(own: Own) -> Strategy:
    strategy = _load(own).strategy
    if not isinstance(strategy, Strategy):
        raise StrategyFailed(own.name, _LOADED, f"it is no longer of kind {own.kind}")
    return strategy


def _load(own: Own) -> Loaded:
    with _watch(own).asking(_LOADED):
        try:
            loaded = load(own.name, dict(own.settings))
        except InvalidStrategy as error:
            raise StrategyFailed(own.name, _LOADED, error.why) from error
    if loaded.version != own.version:
        why = (
            f"the run needs its version {own.version}, but a process has loaded version "
            f"{loaded.version}; restart the compactor"
        )
        raise StrategyFailed(own.name, _LOADED, why)
    return loaded


@lru_cache(maxsize=1)
def _watch(own: Own) -> Watch:
    """Returns the process's watch: a process has one task at a time."""
    return Watch(own.limits)
