"""What a strategy that decides message by message is asked, and what it is given (PIP-215).

Source: Pulsar's TopicCompactionStrategy and StrategicTwoPhaseCompactor. Of each key one message
stands at a time; each later one is compared with it:

* `should_keep_left(previous, current)`: true keeps the one that stands, and the current one is
  skipped. `previous` is None when none stands. The answer is True or False and nothing else.
* A current one that is not skipped takes the place; an empty one removes the key instead.
* `handle_skipped(key, current)`, where a class has it, is told of each one that was skipped.

* `explain(left, right)`, where a class has it, says in a line why: `left` is the message that
  stands, `right` the one that came. `ledgerfold explain` asks it, a run does not.

Messages without a key are dropped.

A run starts from what the one before left. It comes to the same as one over everything when the
answer depends on the two messages alone, and a message that once took a place is taken again where
none stands.

    >>> class Longest:
    ...     version = "1"
    ...     reads = ("value",)
    ...     def should_keep_left(self, previous, current):
    ...         return previous is not None and len(previous.value) >= len(current.value)
"""

from __future__ import annotations

from typing import Final, Protocol

# The parts of a message that a class may name in `reads`; key and id it is always given.
READS: Final = ("value", "properties", "event_time_ms", "publish_time_ms")


class StrategicMessage(Protocol):
    """A message as a strategy sees it: decoded, and never to be changed."""

    @property
    def key(self) -> str:
        """As the client's `partition_key`: one given as bytes is in base64."""

    @property
    def value(self) -> bytes:
        """As it was published. Empty: a tombstone."""

    @property
    def properties(self) -> dict[str, str]: ...

    @property
    def event_time_ms(self) -> int:
        """0 when the producer set none."""

    @property
    def publish_time_ms(self) -> int: ...

    @property
    def message_id(self) -> tuple[int, int, int]:
        """Ledger, entry, batch index; -1 for a message that was published alone."""


class TopicCompactionStrategy(Protocol):
    """The methods of a strategy; `handle_skipped`, `explain`, `version`, `reads` may be left out.

    It is made once for each task of a run, with its settings as keyword arguments (text), and asked
    about the messages of a key in order. An error of any kind fails the run.

    `reads` names what it looks at, of READS: the rest is not moved about, and it does not get it
    (AttributeError). Without `reads` it gets everything.
    """

    def should_keep_left(
        self, previous: StrategicMessage | None, current: StrategicMessage
    ) -> bool: ...
