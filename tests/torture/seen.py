"""The messages that one reader, or one pass over a view, has met, by producer.

It checks each message in its place: ids rise strictly, a producer's sequence ids rise strictly, a
value matches its sequence id. `latest` has of each key the last sequence id that was met, -1 for
none: an array a producer, by key index.

>>> seen = Seen({"p": Messages("p", 1)})
>>> seen.latest["p"][0]
-1
"""

from __future__ import annotations

from array import array
from base64 import b64decode, b64encode
from collections.abc import Mapping

from ledgerfold.broker.client import Message, MessageId
from tests.torture.messages import KEYS, Messages

Latest = dict[str, "array[int]"]
# The most that are reported one by one; all are counted.
_TOLD_MAX = 1_000


class Seen:
    """`messages`: by producer's name."""

    def __init__(self, messages: Mapping[str, Messages]) -> None:
        self._messages = messages
        self.latest: Latest = {name: empty() for name in messages}
        self.last_sequence_ids = dict.fromkeys(messages, -1)
        self.last_id = MessageId.earliest
        self.count = 0
        self.problems: list[tuple[str, str, int]] = []

    def take(self, message: Message) -> None:
        """The next message. Adds defects to `problems`: (kind, producer, id)."""
        self.count += 1
        name, sequence_id = self.origin(message)
        at = message.message_id()
        if at <= self.last_id:
            self._tell("disorder", name, sequence_id)
        self.last_id = at
        known = self._messages.get(name)
        if known is None or not is_as_sent(message, known, sequence_id):
            self._tell("foreign", name, sequence_id)
            return
        latest, index = self.latest[name], known.key_index(sequence_id)
        if sequence_id <= self.last_sequence_ids[name]:
            kind = "duplicate" if latest[index] == sequence_id else "disorder"
            self._tell(kind, name, sequence_id)
        else:
            self.last_sequence_ids[name] = latest[index] = sequence_id

    def origin(self, message: Message) -> tuple[str, int]:
        """Returns its producer's name, and its sequence id."""
        return message.producer_name(), message.sequence_id()

    def _tell(self, kind: str, producer: str, sequence_id: int) -> None:
        if len(self.problems) < _TOLD_MAX:
            self.problems.append((kind, producer, sequence_id))

    def take_problems(self) -> list[tuple[str, str, int]]:
        """Returns the problems that were not taken before."""
        taken, self.problems = self.problems, []
        return taken


def is_as_sent(message: Message, messages: Messages, sequence_id: int) -> bool:
    """Returns whether key and value are those of the sequence id."""
    return (
        sequence_id >= 0
        and message.data() == messages.content(sequence_id)
        and message.partition_key() == messages.key(sequence_id)
    )


def empty() -> array[int]:
    return array("q", [-1]) * KEYS


def packed(latest: Latest) -> dict[str, str]:
    """For a report."""
    return {name: b64encode(each.tobytes()).decode() for name, each in latest.items()}


def unpacked(found: Mapping[str, str]) -> Latest:
    return {name: array("q", b64decode(each)) for name, each in found.items()}
