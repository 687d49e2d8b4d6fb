"""The protocol of message strategies: a class that decides on each message (PIP-215).

Source: Pulsar's TopicCompactionStrategy and StrategicTwoPhaseCompactor. Each key has at most one
current message at a time, with which each later one is compared:

* `should_keep_left(previous, current)`: True keeps the previous message, and skips the current one.
  `previous` is None if there is none. The answer must be True or False.
* A current message that is not skipped replaces the previous one; an empty one removes the key
  instead.
* `handle_skipped(key, current)`, if defined, is called for each skipped message.
* `explain(left, right)`, if defined, returns the reason in one line: `left` is the previous
  message, `right` the current one. `ledgerfold explain` calls it, a run does not.

Messages without a key are dropped.

A run starts from the previous run's output. The result equals that of one run over everything if
the answer depends only on the two messages, and if a message that replaced another would also be
accepted without a previous one.

    >>> class Longest:
    ...     version = "1"
    ...     reads = ("value",)
    ...
    ...     def should_keep_left(self, previous, current):
    ...         return previous is not None and len(previous.value) >= len(current.value)
"""

from __future__ import annotations

from typing import Final, Protocol

# The parts of a message that a class may list in `reads`; it always gets key and id.
READS: Final = ("value", "properties", "event_time_ms", "publish_time_ms")


class StrategicMessage(Protocol):
    """A message as a strategy gets it: decoded, and read-only."""

    @property
    def key(self) -> str:
        """The client's `partition_key`: base64 if it was given as bytes."""

    @property
    def value(self) -> bytes:
        """The value as published. Empty: a tombstone."""

    @property
    def properties(self) -> dict[str, str]: ...

    @property
    def event_time_ms(self) -> int:
        """The event time; 0 if the producer set none."""

    @property
    def publish_time_ms(self) -> int: ...

    @property
    def message_id(self) -> tuple[int, int, int]:
        """The ledger, entry and batch index; -1 for a message that was published alone."""


class TopicCompactionStrategy(Protocol):
    """The methods of a strategy. `handle_skipped`, `explain`, `version`, `reads` are optional.

    Each task of a run creates an instance, with its settings as keyword arguments (text), and asks
    it about the messages of a key in order. An error of any kind fails the run.

    `reads` lists the parts of READS that it uses: it does not get the others (AttributeError),
    which saves their transfer. Without `reads` it gets everything.
    """

    def should_keep_left(
        self, previous: StrategicMessage | None, current: StrategicMessage
    ) -> bool: ...
