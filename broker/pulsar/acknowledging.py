"""The message ids of ACK and REDELIVER: of one command, up to 200,000.

They are taken in slices of about a millisecond's work, between which other tasks run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence

from ledgerfold.broker.log.log import TopicLog
from ledgerfold.broker.pulsar.batch_acks import BatchAcks
from ledgerfold.broker.pulsar.delivery import AnySubscription, AttachedConsumer
from ledgerfold.broker.pulsar.from_native import bits_of
from ledgerfold.broker.subscriptions.subscription import Subscription
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.entry import Position
from ledgerfold.v1.pulsar_pb2 import CommandAck, MessageIdData

_CUMULATIVE = 1
# About a millisecond's work.
_SLICE_IDS = 200
# The limit of words in an ack set, of 64 messages each. Longer sets are ignored.
_WORDS_MAX = 8192


async def named_positions(
    ids: Sequence[MessageIdData], subscription: AnySubscription
) -> set[Position]:
    """Returns the positions of a request for redelivery, which ordered subscriptions do not
    need."""
    type_, positions = subscription.type, set[Position]()
    if type_ is not None and type_.is_ordered:
        return positions
    for start in range(0, len(ids), _SLICE_IDS):
        if start:
            await asyncio.sleep(0)
        ids_now = ids[start : start + _SLICE_IDS]
        positions.update(Position(each.ledger_id, each.entry_id) for each in ids_now)
    return positions


async def acknowledge_entries(
    ack: CommandAck, attached: AttachedConsumer, topic: Topic, subscription: Subscription
) -> None:
    consumer, is_cumulative = attached.consumer, ack.ack_type == _CUMULATIVE
    for number, ids in enumerate(_slices(ack.message_id)):
        if number:
            await asyncio.sleep(0)
        entries = _acknowledged_entries(
            ids, attached.acks, topic.log, subscription.mark_delete, is_cumulative
        )
        if is_cumulative:
            for each in entries:
                subscription.acknowledge(consumer, (each,), cumulative=True)
        else:
            subscription.acknowledge(consumer, entries)


def _slices(ids: Sequence[MessageIdData]) -> Iterator[list[MessageIdData]]:
    """Yields ids and ack sets of about a millisecond's work."""
    part, words = list[MessageIdData](), 0
    for each in ids:
        part.append(each)
        words += len(each.ack_set)
        if len(part) == _SLICE_IDS or words >= _WORDS_MAX:
            yield part
            part, words = [], 0
    if part:
        yield part


def _acknowledged_entries(
    ids: Sequence[MessageIdData],
    acks: BatchAcks,
    log: TopicLog,
    mark_delete: Position,
    is_cumulative: bool,
) -> list[Position]:
    """Returns the entries that are completely acknowledged now; records the others."""
    entries = list[Position]()
    for each in ids:
        position = Position(each.ledger_id, each.entry_id)
        if not each.ack_set:
            acks.forget(position)
            entries.append(position)
        elif len(each.ack_set) <= _WORDS_MAX and position <= log.positions.last():
            if acks.acknowledge(position, bits_of(each.ack_set), mark_delete):
                entries.append(position)
            elif is_cumulative:
                entries.append(log.positions.previous(position))
    return entries
