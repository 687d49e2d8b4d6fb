"""A connected producer of a non-persistent topic: publishes entries unchanged.

Each entry goes to the consumers that are connected now, and has its receipt at once, even if no
consumer got it. There are no duplicates: published messages are not remembered. As in Pulsar, every
receipt has the same id.

On a manual clock (`serve --test-clock`) the producer's own clock is ignored, as on other topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from ledgerfold.broker.log.state import LogState
from ledgerfold.broker.subscriptions.non_persistent import EVERYWHERE
from ledgerfold.broker.topics.access import Claim
from ledgerfold.broker.topics.loaded_topic import ServedTopic
from ledgerfold.broker.topics.producer import check_codec
from ledgerfold.broker.topics.receipts import NOWHERE, Receipt, ReceiptQueue
from ledgerfold.storage.entry import FORMAT_VERSION, Buffer, stamped_header
from ledgerfold.storage.entry_check import check_entry
from ledgerfold.storage.errors import LedgerfoldError
from ledgerfold.storage.ledger import StoredEntry

Publish = Callable[[StoredEntry], None]


class NonPersistentProducer(ReceiptQueue):
    """A producer that belongs to one stream. Created by NonPersistentTopic.attach_producer().

    `publish`: delivers an entry. `number`: spreads messages without a key over consumers.
    """

    # Because no other message can be its duplicate.
    last_sequence_id = -1

    def __init__(
        self,
        topic: ServedTopic,
        state: LogState,
        name: str,
        number: int,
        claim: Claim,
        publish: Publish,
        on_detached: Callable[[NonPersistentProducer], object],
        *,
        is_pulsar_client: bool,
    ) -> None:
        super().__init__(topic, state, name, on_detached)
        self.claim = claim
        # The epoch of the topic when it was connected.
        self.topic_epoch: int | None = None
        self._number, self._publish = number, publish
        self._is_pulsar_client = is_pulsar_client

    def append_all(self, entries: Iterable[Buffer], *, is_new: bool = True) -> None:
        """Publishes entries in order, up to the first bad one. `is_new`: has no effect.

        Raises InvalidRequest, and the error that ended the producer.
        """
        self.check()
        for entry in entries:
            header = check_entry(entry, self._entry_bytes_max)
            check_codec(header, is_pulsar_client=self._is_pulsar_client)
            now_ms = self.emulated_now_ms()
            if now_ms is not None:
                header = header._replace(publish_time_ms=now_ms)
            stamped = stamped_header(header, *EVERYWHERE, self._topic.clock.now_ms(), self._number)
            header = header._replace(version=FORMAT_VERSION, producer_number=self._number)
            data = b"".join((stamped, entry[header.header_bytes :]))
            self._publish(StoredEntry(header, data))
            receipt = Receipt(EVERYWHERE, header.sequence_id, header.size_bytes, durable_at=None)
            self.add(receipt, is_new=False)

    def refuse(self, sequence_id: int, size_bytes: int, refusal: LedgerfoldError) -> None:
        """Queues the refusal of an entry that was not published: its receipt has the reason."""
        self.add(Receipt(NOWHERE, sequence_id, size_bytes, None, refusal), is_new=False)
