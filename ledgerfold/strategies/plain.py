"""The rules of the built-in strategies over columns, in plain form: one key, message by message.

A run applies them to columns of all keys at once (compactor/strategies/). `explain` words the
decisions of these classes (broker/explain/strategies/), and tests compare runs with them.

    >>> from collections import namedtuple
    >>> Message = namedtuple("Message", "is_tombstone is_alone event_time_ms publish_time_ms")
    >>> key = EventTime()
    >>> messages = [Message(False, True, time_ms, 0) for time_ms in (5, 7, 6)]
    >>> [key.process(message).removed_events for message in messages]
    [0, 1, 0]
    >>> [message.event_time_ms for message in key.kept]
    [7]
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

# Event times above this, or below its complement, are compared as if they were that limit.
EVENT_TIME_MAX_MS = (1 << 62) - 1


class KeyMessage(Protocol):
    """A message of a key, as these rules see it.

    `is_tombstone`: its value has no bytes. `is_alone`: it was published alone, or in a batch that
    a run cannot read, which counts as one message.
    `event_time_ms`: 0 if it has none.
    """

    @property
    def is_tombstone(self) -> bool: ...

    @property
    def is_alone(self) -> bool: ...

    @property
    def event_time_ms(self) -> int: ...

    @property
    def publish_time_ms(self) -> int: ...


M = TypeVar("M", bound=KeyMessage)


class Effect(NamedTuple, Generic[M]):
    """The effect of a message. `removed`: earlier messages that are no longer kept."""

    removed: Sequence[M] = ()
    removed_events: int = 0


class PublishingOrder(Generic[M]):
    """Keeps the message with the highest id of each key.

    Rules (Pulsar's PublishingOrderCompactor; docs/NOT_EMULATED.md lists omissions):

    * A value of size zero is a tombstone. It removes its key and is never stored itself.
    * Removed events, as Pulsar counts them: one for each tombstone, and one for each value that
      directly follows a value. So a=1, a=2, a=tombstone is 2 events, and k=1, k=tombstone, k=2 is
      1.
    """

    def __init__(self) -> None:
        # The messages that a run would keep if it ended here, in order.
        self.kept: deque[M] = deque()

    def process(self, message: M) -> Effect[M]:
        """Processes the key's next message."""
        removed = tuple(self.kept)
        self.kept.clear()
        if not message.is_tombstone:
            self.kept.append(message)
        return Effect(removed, int(bool(removed) or message.is_tombstone))


class EventTime(PublishingOrder[M]):
    """Keeps the message with the highest event time of each key.

    Rules (Pulsar's EventTimeOrderCompactor, 4.0.7). Each key has at most one current message at a
    time.

    * A message is accepted if its key has no current message. Otherwise, one that was published
      alone is accepted if its time is not below the current one's; one in a batch only if its time
      is above. So among equal times the last one published alone wins, and within batches the
      first.
    * An accepted value replaces the current message: one removed event, if there was one.
    * An accepted tombstone leaves no current message: one removed event. Its time is forgotten,
      too, so the next message is accepted, even if it is older.
    * A message that is not accepted counts nothing, tombstones included.
    """

    def process(self, message: M) -> Effect[M]:
        if self.kept and not takes_over(message, self.kept[0]):
            return Effect()
        return super().process(message)


def takes_over(message: KeyMessage, current: KeyMessage) -> bool:
    """Returns whether a message is accepted in place of the current one."""
    time_ms, current_ms = (
        max(~EVENT_TIME_MAX_MS, min(each.event_time_ms, EVENT_TIME_MAX_MS))
        for each in (message, current)
    )
    return time_ms >= current_ms if message.is_alone else time_ms > current_ms


class EventTimeWindow(EventTime[M]):
    """Works as `event-time`, except for messages younger than a lag.

    Rules (they are Ledgerfold's own; the lag is like Kafka's min.compaction.lag.ms, by event time):

    * A message is young while its event time is later than the run's time minus the lag. If it has
      no event time, its publish time counts.
    * Young messages are kept unchanged, tombstones too. They remove nothing and count nothing.
    * The other messages are compared with each other, by their event times alone.
    """

    def __init__(self, old_until_ms: int) -> None:
        super().__init__()
        self._old_until_ms = old_until_ms
        self.young: list[M] = []

    def is_young(self, message: M) -> bool:
        return (message.event_time_ms or message.publish_time_ms) > self._old_until_ms

    def process(self, message: M) -> Effect[M]:
        if self.is_young(message):
            self.young.append(message)
            return Effect()
        return super().process(message)


class KeepN(PublishingOrder[M]):
    """Keeps the last n values of each key since its last tombstone.

    Rules (of no other product; Kafka and Pulsar keep one value):

    * A value is kept while fewer than n values of its key follow it. A dropped value is one removed
      event.
    * A tombstone removes all kept values of its key, and is never kept itself: one removed event,
      and one for each of the values.
    * With n = 1 the survivors are those of `publishing-order`. The count differs: there, a value
      that a tombstone removes is not an event.
    """

    def __init__(self, n: int) -> None:
        super().__init__()
        self._n = n

    def process(self, message: M) -> Effect[M]:
        if message.is_tombstone:
            effect = super().process(message)
            return effect._replace(removed_events=1 + len(effect.removed))
        self.kept.append(message)
        if len(self.kept) <= self._n:
            return Effect()
        return Effect((self.kept.popleft(),), 1)
