"""The options of a SUBSCRIBE: the type, the names, and the keys that the consumer shares; and the
start positions of a new subscription and of a seek.

Clients name the entry at which they start, and skip messages that they do not want. So the broker
starts at that entry, whether or not the client wants the message itself.
"""

from __future__ import annotations

import secrets

from ledgerfold.broker.common.given_names import check_name, check_properties
from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.pulsar.errors import NoSubscriptionName
from ledgerfold.broker.pulsar.link import properties_of
from ledgerfold.broker.subscriptions.consumer import ConsumerOptions
from ledgerfold.broker.subscriptions.dispatcher import HashRange, SubscriptionType
from ledgerfold.broker.subscriptions.key_owners import HASH_RANGES_MAX, KeySharedPolicy
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.pulsar_pb2 import CommandSeek, CommandSubscribe, MessageIdData
from ledgerfold.v1.records_pb2 import MessageId

# The index is the type's number in the protocol.
_TYPES = (
    SubscriptionType.EXCLUSIVE,
    SubscriptionType.SHARED,
    SubscriptionType.FAILOVER,
    SubscriptionType.KEY_SHARED,
)
# The Key_Shared modes.
_STICKY = 1


def options_of(opening: CommandSubscribe, *, on_ring: bool) -> ConsumerOptions:
    """Returns the options of a consumer. Raises InvalidRequest, NotAllowed.

    `on_ring`: whether the broker hashes keys consistently.
    """
    if not 0 <= opening.sub_type < len(_TYPES):
        raise InvalidRequest(f"Unknown subscription type {opening.sub_type}.")
    if not opening.subscription.strip():
        raise NoSubscriptionName("Empty subscription name")
    if opening.subscription == COMPACTION_CURSOR:
        raise NotAllowed(f"{COMPACTION_CURSOR} is reserved for compaction: it has no consumers.")
    name = opening.consumer_name or secrets.token_hex(5)
    check_name("A consumer", name)
    check_properties("a consumer", properties_of(opening.metadata))
    options = ConsumerOptions(
        type=_TYPES[opening.sub_type],
        durable=opening.durable,
        read_compacted=opening.read_compacted,
        name=name,
        priority=opening.priority_level,
        key_shared=_key_shared(opening, on_ring=on_ring),
    )
    options.check()
    return options


def _key_shared(opening: CommandSubscribe, *, on_ring: bool) -> KeySharedPolicy:
    if _TYPES[opening.sub_type] is not SubscriptionType.KEY_SHARED:
        return KeySharedPolicy()
    meta = opening.key_shared_meta
    is_sticky = meta.key_shared_mode == _STICKY
    ranges = tuple(
        HashRange(each.start, each.end)
        for each in (meta.hash_ranges[: HASH_RANGES_MAX + 1] if is_sticky else ())
    )
    return KeySharedPolicy(is_sticky, ranges, meta.allow_out_of_order_delivery, on_ring)


_LATEST = 2**63 - 1
_EARLIEST_POSITION = 1


def start_of(opening: CommandSubscribe, now_ms: int) -> StartPosition:
    """Returns the start of a subscription if it is new."""
    if opening.start_message_rollback_duration_sec:
        back_ms = opening.start_message_rollback_duration_sec * 1000
        return StartPosition(publish_time_ms=max(0, now_ms - back_ms))
    if not opening.durable and opening.HasField("start_message_id"):
        return _start(opening.start_message_id)
    if opening.initial_position == _EARLIEST_POSITION:
        return StartPosition(earliest=True)
    return StartPosition(latest=True)


def start_at(seek: CommandSeek) -> StartPosition:
    """Returns the target of a seek. Raises InvalidRequest."""
    if seek.HasField("message_publish_time"):
        if seek.message_publish_time < 0:
            raise InvalidRequest("The time of a seek must be below 2^63.")
        return StartPosition(publish_time_ms=seek.message_publish_time)
    if seek.HasField("message_id"):
        return _start(seek.message_id)
    raise InvalidRequest("A seek needs a message id or a time.")


def _start(at: MessageIdData) -> StartPosition:
    if at.ledger_id < 0:
        return StartPosition(earliest=True)
    if at.ledger_id == _LATEST:
        return StartPosition(latest=True)
    entry = MessageId(
        ledger_id=at.ledger_id, entry_id=max(0, at.entry_id), batch_index=-1, partition=-1
    )
    return StartPosition(message_id=entry, inclusive=True)
