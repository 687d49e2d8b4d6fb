"""A strategy that decides message by message: a Python class that is asked about each (PIP-215).

Beside the strategies over columns (strategy.py), for rules that need what a message says. The class
is any that ledgerfold/strategies/strategic.py describes. Each merge task makes one of its own, and
asks it about the messages of each key in order (merge_messages.py).

    >>> from ledgerfold.strategies.ready_made import HeaderVersion
    >>> strategy = MessageStrategy("header-version", 1, HeaderVersion, {"property": "v"})
    >>> sorted(strategy.reads), type(strategy.made()).__name__
    (['properties'], 'HeaderVersion')
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

from ledgerfold.compactor.strategies.watch import Unwatched
from ledgerfold.storage.errors import InvalidRequest, StrategyFailed
from ledgerfold.storage.message_ids import id_text
from ledgerfold.strategies.loading import RAISED, said
from ledgerfold.strategies.strategic import READS


@dataclass(frozen=True)
class MessageStrategy:
    """A value: it travels to the tasks pickled, the class by the name of its module.

    `settings`: the keyword arguments that the class is made with. Raises InvalidRequest: the class
    says that it reads what there is not.
    """

    name: str
    version: int | str
    made_of: Callable[..., Any]
    settings: Mapping[str, str] = field(default_factory=dict)
    # Entered around each task that asks it.
    held: Callable[[], AbstractContextManager[None]] = nullcontext
    # Told of each message that it is asked about.
    watch: Callable[[], Unwatched] = Unwatched

    def __post_init__(self) -> None:
        if isinstance(getattr(self.made_of, "reads", ()), str):
            raise InvalidRequest(
                f"Strategy {self.name!r} says what it reads in a text; it must be a tuple of names."
            )
        unknown = self.reads.difference(READS)
        if unknown:
            raise InvalidRequest(
                f"Strategy {self.name!r} says that it reads {', '.join(sorted(unknown))}; a "
                f"message has {', '.join(READS)}."
            )

    @property
    def reads(self) -> frozenset[str]:
        """What the class looks at, beside key and id."""
        return frozenset(getattr(self.made_of, "reads", READS))

    @property
    def reads_value_sections(self) -> bool:
        return not self.reads.isdisjoint(("value", "properties"))

    def made(self) -> Any:
        """One for a task. Raises StrategyFailed when it cannot be made."""
        try:
            return self.made_of(**self.settings)
        except StrategyFailed:
            # Of one's own (own.py).
            raise
        except RAISED as error:  # a person's code: it may raise anything
            raise StrategyFailed(self.name, "when it was made", said(error)) from error

    def failed(self, message_id: tuple[int, int, int], why: BaseException | str) -> StrategyFailed:
        """What it means that the class raised `why`, or did what `why` says, at that message."""
        ledger_id, entry_id, batch_index = message_id
        at = f"at message {id_text(ledger_id, entry_id, batch_index=batch_index)}"
        return StrategyFailed(self.name, at, why if isinstance(why, str) else said(why))
