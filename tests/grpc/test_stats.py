"""Stats of a real broker: they show the operations of clients, under Pulsar's names."""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.client import Client, ConsumerType, InitialPosition, MessageId
from ledgerfold.broker.client.administration.admin import Admin
from tests.support.waiting import WAIT_MS, wait_until

# The fields of Pulsar 4.0.7's `topics stats` and `topics stats-internal`, level by level.
TOPIC = """msgRateIn msgThroughputIn msgRateOut msgThroughputOut bytesInCounter msgInCounter
    systemTopicBytesInCounter bytesOutCounter msgOutCounter bytesOutInternalCounter averageMsgSize
    msgChunkPublished storageSize backlogSize backlogQuotaLimitSize backlogQuotaLimitTime
    oldestBacklogMessageAgeSeconds publishRateLimitedTimes earliestMsgPublishTimeInBacklogs
    offloadedStorageSize lastOffloadLedgerId lastOffloadSuccessTimeStamp
    lastOffloadFailureTimeStamp ongoingTxnCount abortedTxnCount committedTxnCount publishers
    waitingPublishers subscriptions replication deduplicationStatus
    nonContiguousDeletedMessagesRanges nonContiguousDeletedMessagesRangesSerializedSize
    delayedMessageIndexSizeInBytes compaction ownerBroker"""
PUBLISHER = """msgRateIn msgThroughputIn averageMsgSize chunkedMessageRate producerId producerName
    accessMode address connectedSince clientVersion metadata supportsPartialProducer"""
SUBSCRIPTION = """msgRateOut msgThroughputOut bytesOutCounter msgOutCounter msgRateRedeliver
    messageAckRate chunkedMessageRate msgBacklog backlogSize earliestMsgPublishTimeInBacklog
    msgBacklogNoDelayed blockedSubscriptionOnUnackedMsgs msgDelayed msgInReplay unackedMessages
    type activeConsumerName msgRateExpired totalMsgExpired lastExpireTimestamp
    lastConsumedFlowTimestamp lastConsumedTimestamp lastAckedTimestamp
    lastMarkDeleteAdvancedTimestamp consumers isDurable isReplicated allowOutOfOrderDelivery
    consumersAfterMarkDeletePosition nonContiguousDeletedMessagesRanges
    nonContiguousDeletedMessagesRangesSerializedSize delayedMessageIndexSizeInBytes
    subscriptionProperties keySharedMode"""
# `readCompacted` and `unsentBytes` are ours.
CONSUMER = """msgRateOut msgThroughputOut bytesOutCounter msgOutCounter msgRateRedeliver
    messageAckRate chunkedMessageRate consumerName availablePermits unackedMessages
    avgMessagesPerEntry blockedConsumerOnUnackedMsgs address connectedSince clientVersion
    lastAckedTimestamp lastConsumedTimestamp lastConsumedFlowTimestamp metadata lastAckedTime
    lastConsumedTime readCompacted unsentBytes keyHashRangeArrays"""
INTERNAL = """entriesAddedCounter numberOfEntries totalSize currentLedgerEntries
    currentLedgerSize lastLedgerCreatedTimestamp waitingCursorsCount pendingAddEntriesCount
    lastConfirmedEntry state ledgers cursors schemaLedgers compactedLedger"""
# `heldBy` is ours.
LEDGER = "ledgerId entries size offloaded underReplicated heldBy"
CURSOR = """markDeletePosition readPosition waitingReadOp pendingReadOps messagesConsumedCounter
    cursorLedger cursorLedgerLastEntry individuallyDeletedMessages lastLedgerSwitchTimestamp state
    active numberOfEntriesSinceFirstNotAckedMessage totalNonContiguousDeletedMessagesRange
    subscriptionHavePendingRead subscriptionHavePendingReplayRead properties"""


def all_named(documents: list[dict[str, Any]], names: str) -> None:
    assert documents
    for document in documents:
        assert set(document) <= set(names.split()), document


def use(client: Client, admin: Admin) -> None:
    """Publishes three entries of six messages; one consumer of each kind, and a reader; two
    acks.
    """
    producer = client.create_producer("t", "prices")
    for number in range(2):
        producer.send(b"%d" % number, partition_key="k")
    batching = client.create_producer(
        "t", batching_enabled=True, batching_max_messages=4, batching_max_publish_delay_ms=60_000
    )
    for number in range(4):
        batching.send_async(b"%d" % number, None, partition_key="k")
    batching.flush()
    batching.close()
    start = InitialPosition.Earliest
    shared = client.subscribe(
        "t", "shared", ConsumerType.Shared, initial_position=start, properties={"team": "x"}
    )
    received = [shared.receive(WAIT_MS) for _ in range(6)]
    shared.acknowledge(received[1])
    admin.create_subscription("t", "idle", MessageId.earliest)
    reader = client.create_reader("t", MessageId.earliest, reader_name="tail")
    assert len(list(reader)) == 6


def test_every_field_has_pulsars_name(client: Client, admin: Admin) -> None:
    """Parsers of Pulsar's stats find its names here, and no invented names."""
    use(client, admin)
    stats, internal = admin.stats("t"), admin.internal_stats("t")
    all_named([stats], TOPIC)
    all_named(stats["publishers"], PUBLISHER)
    subscriptions = list(stats["subscriptions"].values())
    all_named(subscriptions, SUBSCRIPTION)
    all_named([each for one in subscriptions for each in one["consumers"]], CONSUMER)
    all_named([internal], INTERNAL)
    all_named([*internal["ledgers"], internal["compactedLedger"]], LEDGER)
    all_named(list(internal["cursors"].values()), CURSOR)


def test_stats_show_what_clients_did(client: Client, admin: Admin) -> None:
    """Counters, backlogs, connected clients; also MET-05: no compaction yet."""
    use(client, admin)

    def acked() -> dict[str, Any] | None:
        stats = admin.stats("t")
        return stats if stats["subscriptions"]["shared"]["lastAckedTimestamp"] else None

    stats = wait_until(acked, "the acknowledgement")
    assert stats is not None
    assert (stats["msgInCounter"], stats["msgOutCounter"]) == (6, 12)
    assert stats["bytesOutCounter"] == 2 * stats["bytesInCounter"] == 2 * stats["storageSize"]
    assert stats["compaction"].pop("strategy") == {"name": "publishing-order", "settings": {}}
    assert set(stats["compaction"].values()) == {0}
    assert [each["producerName"] for each in stats["publishers"]] == ["prices"]
    assert stats["publishers"][0]["address"].startswith("/127.0.0.1:")
    assert stats["deduplicationStatus"] == "Enabled"
    subscriptions = stats["subscriptions"]
    shared, idle = subscriptions["shared"], subscriptions["idle"]
    assert (shared["msgBacklog"], shared["nonContiguousDeletedMessagesRanges"]) == (2, 1)
    assert (idle["msgBacklog"], idle["backlogSize"]) == (3, stats["storageSize"])
    assert stats["backlogSize"] == stats["storageSize"]
    consumer = shared["consumers"][0]
    assert (consumer["msgOutCounter"], consumer["avgMessagesPerEntry"]) == (6, 2)
    assert consumer["metadata"] == {"team": "x"}
    assert consumer["lastConsumedTimestamp"] > 0
    assert idle["consumers"] == []


def test_stats_show_a_reader_while_it_reads(client: Client, admin: Admin) -> None:
    """As in Pulsar: a non-durable subscription named reader-..., and its cursor."""
    use(client, admin)

    def has_asked_again() -> dict[str, Any]:
        """The client's permits for what it has read arrive after the messages."""
        found: dict[str, Any] = admin.stats("t")
        (name,) = (each for each in found["subscriptions"] if each.startswith("reader-"))
        shown = {"name": name, **found["subscriptions"][name]}
        return shown if shown["consumers"][0]["availablePermits"] == 1000 else {}

    shown = wait_until(has_asked_again, "the reader's permits")
    internal = admin.internal_stats("t")
    cursor = internal["cursors"][shown["name"]]
    assert (shown["isDurable"], shown["type"], shown["msgBacklog"]) == (False, "Exclusive", 0)
    assert shown["consumers"][0]["consumerName"] == shown["activeConsumerName"] == "tail"
    assert shown["msgOutCounter"] == 6
    last = internal["lastConfirmedEntry"]
    assert (cursor["markDeletePosition"], cursor["active"]) == (last, True)
    client.close()
    wait_until(lambda: set(admin.stats("t")["subscriptions"]) == {"shared", "idle"}, "its leaving")
    assert admin.stats("t")["msgOutCounter"] == 12
    assert admin.stats("t")["publishers"] == []
