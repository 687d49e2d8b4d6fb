"""The explanations of a user-defined strategy, as `explain` shows them.

The broker never runs such code. It passes the newest messages of the key to the compactor, which
has a process for that; the answers are added to the versions. An error becomes a note, and leaves
the explanation unchanged.

    >>> is_asked(CompactionStrategy(name="shop:Best")), is_asked(CompactionStrategy(name="keep-n"))
    (True, False)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from ledgerfold.storage.decoded import StoredMessage
from ledgerfold.storage.key_scan import KeyVersion
from ledgerfold.strategies.catalogue import listed
from ledgerfold.v1.compactor_pb2 import (
    DecisionMessage,
    DescribeDecisionsRequest,
    DescribeDecisionsResponse,
)
from ledgerfold.v1.explain_pb2 import ExplainResponse
from ledgerfold.v1.records_pb2 import CompactionStrategy, MessageId

# The newest messages of the key; earlier ones get no explanation from the class.
MESSAGES_MAX: Final = 200
_BYTES_MAX: Final = 8 * 1024 * 1024


def is_asked(strategy: CompactionStrategy) -> bool:
    return listed(strategy.name) is None


def to_ask(
    strategy: CompactionStrategy,
    newest: Iterable[KeyVersion],
    read: Callable[[KeyVersion], StoredMessage],
) -> DescribeDecisionsRequest:
    """Builds the request. `newest` are in reverse order. Raises read errors."""
    messages, size_bytes = list[DecisionMessage](), 0
    for version in newest:
        message = _message(version, read(version))
        size_bytes += message.ByteSize()
        if size_bytes > _BYTES_MAX:
            break
        messages.append(message)
    return DescribeDecisionsRequest(strategy=strategy, messages=reversed(messages))


def _message(version: KeyVersion, stored: StoredMessage) -> DecisionMessage:
    return DecisionMessage(
        key=stored.key or b"",
        value=stored.value,
        properties=stored.properties,
        event_time_ms=version.event_time_ms,
        publish_time_ms=version.publish_time_ms,
        id=version.message_id,
    )


def add_words(
    explained: ExplainResponse,
    requested: DescribeDecisionsRequest,
    answer: DescribeDecisionsResponse,
) -> None:
    """Adds the answers to the listed versions. Ignores invalid answers."""
    versions = {_identity(each.id): each for each in explained.versions}
    count = len(requested.messages)
    for choice in answer.choices:
        if not 0 <= choice.left < choice.right < count:
            continue
        version = versions.get(_identity(requested.messages[choice.right].id))
        if version is not None:
            version.words = choice.words
            version.words_left.CopyFrom(requested.messages[choice.left].id)
    if answer.why and explained.versions:
        explained.notes.append(f"{requested.strategy.name} was asked to explain: {answer.why}.")


def _identity(message_id: MessageId) -> tuple[int, int, int]:
    return message_id.ledger_id, message_id.entry_id, message_id.batch_index
