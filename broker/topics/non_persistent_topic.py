"""A non-persistent topic: its producers, its subscriptions, and the messages between them.

Nothing is stored, in memory or on disk: a message goes to the consumers that are connected when it
is published (broker/subscriptions/non_persistent.py). The topic itself is in memory only, and ends
with its last use (non_persistent_topics.py) or with the broker; a partitioned one has a record.

Features that need stored messages do not exist: compaction, retention, a backlog, positions, seeks,
termination, deduplication, policies of the topic. Batches and chunks pass unchanged; delayed
messages are not delayed. Producers have Pulsar's access modes, whose epoch lasts as long as the
topic.

Source: Pulsar's NonPersistentTopic.
"""

from __future__ import annotations

import secrets

from ledgerfold.broker.common.given_names import check_name
from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.subscriptions.consumer import Consumer, ConsumerOptions
from ledgerfold.broker.subscriptions.delivery import routing
from ledgerfold.broker.subscriptions.dispatcher import SubscriptionType
from ledgerfold.broker.subscriptions.non_persistent import NonPersistentSubscription
from ledgerfold.broker.topics.access import Claim, ProducerAccess
from ledgerfold.broker.topics.loaded_topic import ServedTopic, TopicContext
from ledgerfold.broker.topics.non_persistent_producer import NonPersistentProducer
from ledgerfold.broker.topics.non_persistent_reader import NonPersistentReader
from ledgerfold.broker.topics.reader import ReaderOptions
from ledgerfold.storage.errors import (
    Moved,
    NotAllowed,
    ProducerBusy,
    SubscriptionBusy,
    SubscriptionNotFound,
    TopicBusy,
)
from ledgerfold.storage.ledger import StoredEntry
from ledgerfold.storage.text import counted

IS_NON_PERSISTENT = (
    "{} is non-persistent: its messages are not stored, so that it has no backlog, no positions, "
    "no compaction and no policies of its own. Use a persistent:// topic for those."
)


class NonPersistentTopic(ServedTopic):
    """A topic in memory. Created by NonPersistentTopics."""

    def __init__(self, broker: TopicContext, name: str) -> None:
        super().__init__(broker)
        self.name = name
        # Only its end is recorded there.
        self._state = LogState(name)
        self.producers: dict[str, NonPersistentProducer] = {}
        self.access = ProducerAccess(name, self.producers)
        self.subscriptions: dict[str, NonPersistentSubscription] = {}
        self._last_number = 0
        # The last time when it was known to be in use.
        self.used_ms = self.clock.now_ms()

    @property
    def is_terminated(self) -> bool:
        """Returns False: the topic ends with its last use, not before."""
        return False

    @property
    def is_used(self) -> bool:
        """Returns whether it has a producer or a subscription."""
        return bool(self.producers or self.subscriptions)

    # Producers

    async def attach_producer(
        self, name: str, claim: Claim | None = None, *, is_pulsar_client: bool = False
    ) -> NonPersistentProducer:
        """Connects a producer. `claim`: its access, Shared without one.

        Raises ProducerBusy, ProducerFenced, Moved (the topic was unloaded).
        """
        claim = claim or Claim()
        try:
            await self.access.take(claim)
            self._check_open()
            self.access.check(claim)
            if name in self.producers:
                raise ProducerBusy(self.name, name)
        except BaseException:
            self.access.release(claim)
            raise
        self._last_number += 1
        producer = self.producers[name] = NonPersistentProducer(
            self,
            self._state,
            name,
            self._last_number,
            claim,
            self._publish,
            self._detach_producer,
            is_pulsar_client=is_pulsar_client,
        )
        producer.topic_epoch = self.access.epoch
        return producer

    def _detach_producer(self, producer: NonPersistentProducer) -> None:
        if self.producers.get(producer.name) is producer:
            del self.producers[producer.name]
            self.used_ms = self.clock.now_ms()
            self.access.release(producer.claim)

    def _publish(self, entry: StoredEntry) -> None:
        """Delivers an entry to one consumer of each subscription, or drops it."""
        self.count_in(entry.header.message_count, len(entry.data))
        for subscription in tuple(self.subscriptions.values()):
            subscription.deliver(entry, lambda: routing(entry)[0])

    # Subscriptions and readers

    def attach(
        self, name: str, options: ConsumerOptions
    ) -> tuple[NonPersistentSubscription, Consumer]:
        """Connects a consumer to the subscription, creating that if needed.

        Raises InvalidRequest (including InvalidHashRanges), NotAllowed, SubscriptionBusy, Moved.
        """
        options.check()
        if options.read_compacted:
            raise NotAllowed(f"{self.name} is non-persistent: it has no compacted view.")
        subscription = self.subscription(name, is_durable=options.durable)
        return subscription, subscription.attach(options)

    def subscription(self, name: str, *, is_durable: bool = True) -> NonPersistentSubscription:
        """Returns the subscription, creating it if needed. Raises InvalidRequest, Moved."""
        self._check_open()
        subscription = self.subscriptions.get(name)
        if subscription is None:
            check_name("A subscription", name)
            subscription = self.subscriptions[name] = NonPersistentSubscription(
                self.name,
                name,
                self.clock,
                self.outgoing,
                is_durable=is_durable,
                on_unused=self._remove,
            )
        return subscription

    def _remove(self, subscription: NonPersistentSubscription) -> None:
        if self.subscriptions.get(subscription.name) is subscription:
            del self.subscriptions[subscription.name]
            self.used_ms = self.clock.now_ms()

    def existing_subscription(self, name: str) -> NonPersistentSubscription:
        """Raises SubscriptionNotFound."""
        subscription = self.subscriptions.get(name)
        if subscription is None:
            raise SubscriptionNotFound(self.name, name)
        return subscription

    def delete_subscription(self, name: str, *, force: bool = False) -> None:
        """Deletes a subscription. `force`: disconnects its consumers first.

        Raises SubscriptionNotFound, SubscriptionBusy.
        """
        subscription = self.existing_subscription(name)
        if subscription.consumers and not force:
            connected = counted(len(subscription.consumers), "consumer is", "consumers are")
            why = f"{connected} connected. Close all, or use force."
            raise SubscriptionBusy(self.name, name, why)
        subscription.close(SubscriptionNotFound(self.name, name))
        self._remove(subscription)

    def open_reader(self, options: ReaderOptions) -> NonPersistentReader:
        """Connects a reader until it is detached.

        Raises NotAllowed (read-compacted, a reserved name), SubscriptionBusy.
        """
        name = options.subscription or f"reader-{secrets.token_hex(5)}"
        existing = self.subscriptions.get(name)
        if name == COMPACTION_CURSOR or (existing is not None and existing.is_durable):
            raise NotAllowed(f"{name!r} is a subscription of {self.name}: use another name.")
        attached = ConsumerOptions(
            SubscriptionType.EXCLUSIVE,
            durable=False,
            read_compacted=options.read_compacted,
            name=options.name or name,
        )
        return NonPersistentReader(*self.attach(name, attached), self.count_out)

    # The whole topic

    def check_idle(self) -> None:
        """Raises TopicBusy if a client publishes, consumes or reads."""
        consumers = sum(len(each.consumers) for each in self.subscriptions.values())
        if self.producers or consumers:
            raise TopicBusy(self.name, len(self.producers), consumers)

    def close(self) -> None:
        """Ends all streams with Moved: the topic was unloaded or deleted."""
        self.access.close()
        self._state.close()
        error = Moved(f"{self.name} was unloaded; connect again.")
        for producer in tuple(self.producers.values()):
            producer.end(error)
        for subscription in tuple(self.subscriptions.values()):
            subscription.close(error)

    def _check_open(self) -> None:
        if self._state.closed is not None:
            raise self._state.closed
