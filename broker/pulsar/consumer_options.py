"""The options of a SUBSCRIBE: the type, the names, and the keys that the consumer shares."""

from __future__ import annotations

import secrets

from ledgerfold.broker.common.given_names import check_name, check_properties
from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.pulsar.link import properties_of
from ledgerfold.broker.subscriptions.consumer import ConsumerOptions
from ledgerfold.broker.subscriptions.dispatcher import HashRange, SubscriptionType
from ledgerfold.broker.subscriptions.key_owners import KeySharedPolicy
from ledgerfold.storage.errors import InvalidRequest, NotAllowed
from ledgerfold.v1.pulsar_pb2 import CommandSubscribe

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
    ranges = tuple(HashRange(each.start, each.end) for each in meta.hash_ranges)
    out_of_order = meta.allow_out_of_order_delivery
    return KeySharedPolicy(is_sticky, ranges if is_sticky else (), out_of_order, on_ring)
