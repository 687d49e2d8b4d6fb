"""Message strategies, in which a Python class decides on each message (PIP-215).

An alternative to strategies over columns (strategy.py), for rules that need the content of
messages. The class implements the protocol in ledgerfold/strategies/strategic.py. Each merge task
creates an instance and asks it about the messages of each key in order
(compactor/job/merge_messages.py).

    >>> from ledgerfold.strategies.ready_made import HeaderVersion
    >>> strategy = MessageStrategy("header-version", 1, HeaderVersion, {"property": "v"})
    >>> sorted(strategy.reads), type(strategy.create()).__name__
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
from ledgerfold.strategies.loading import RAISED, describe_error
from ledgerfold.strategies.strategic import READS


@dataclass(frozen=True)
class MessageStrategy:
    """A message strategy. It is sent to the tasks pickled, the class by the name of its module.

    `settings`: the keyword arguments for the class. Raises InvalidRequest if the class reads
    unknown parts of messages.
    """

    name: str
    version: int | str
    made_of: Callable[..., Any]
    settings: Mapping[str, str] = field(default_factory=dict)
    # Entered around each task that uses it.
    held: Callable[[], AbstractContextManager[None]] = nullcontext
    # Records each message for which the class is called.
    watch: Callable[[], Unwatched] = Unwatched

    def __post_init__(self) -> None:
        if isinstance(getattr(self.made_of, "reads", ()), str):
            raise InvalidRequest(
                f"The `reads` of strategy {self.name!r} is a string; it must be a tuple of names."
            )
        unknown = self.reads.difference(READS)
        if unknown:
            raise InvalidRequest(
                f"The `reads` of strategy {self.name!r} lists {', '.join(sorted(unknown))}; a "
                f"message has {', '.join(READS)}."
            )

    @property
    def reads(self) -> frozenset[str]:
        """The parts that the class reads, in addition to key and id."""
        return frozenset(getattr(self.made_of, "reads", READS))

    @property
    def reads_value_sections(self) -> bool:
        return not self.reads.isdisjoint(("value", "properties"))

    def create(self) -> Any:
        """Creates an instance for a task. Raises StrategyFailed if that fails."""
        try:
            return self.made_of(**self.settings)
        except StrategyFailed:
            # A user-defined strategy (compactor/user_strategies/own.py).
            raise
        except RAISED as error:  # user code may raise anything
            raise StrategyFailed(self.name, "when it was created", describe_error(error)) from error

    def failed(self, message_id: tuple[int, int, int], why: BaseException | str) -> StrategyFailed:
        """Returns the error for an exception or a wrong answer at that message."""
        ledger_id, entry_id, batch_index = message_id
        at = f"at message {id_text(ledger_id, entry_id, batch_index=batch_index)}"
        return StrategyFailed(self.name, at, why if isinstance(why, str) else describe_error(why))
