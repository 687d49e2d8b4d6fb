"""A connected reader of a non-persistent topic: a consumer of its own subscription, as in Pulsar.

It gets the messages that are published from now on, regardless of its start position. It cannot
seek. All its waiting messages have been sent, so the answer to has-more follows the sent entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ledgerfold.broker.common.outgoing import Share
from ledgerfold.broker.common.traffic import Peer, Traffic
from ledgerfold.broker.subscriptions.consumer import Consumer, Delivery
from ledgerfold.broker.subscriptions.non_persistent import NonPersistentSubscription
from ledgerfold.broker.topics.stream_reader import Checked, Entries, Step
from ledgerfold.storage.errors import LedgerfoldError, NotAllowed
from ledgerfold.storage.ledger import StoredEntry
from ledgerfold.storage.served_entry import read_served_header
from ledgerfold.v1.data_pb2 import StartPosition


class NonPersistentReader:
    """A reader that belongs to one stream. Created by NonPersistentTopic.open_reader()."""

    def __init__(
        self,
        subscription: NonPersistentSubscription,
        consumer: Consumer,
        count_out: Callable[[Traffic], None],
    ) -> None:
        self._subscription, self._consumer = subscription, consumer
        self._count_out = count_out

    @property
    def name(self) -> str:
        return self._consumer.name

    @property
    def share(self) -> Share:
        return self._consumer.share

    @property
    def peer(self) -> Peer:
        return self._consumer.peer

    @peer.setter
    def peer(self, peer: Peer) -> None:
        self._consumer.peer = peer

    # Requests of the client

    def add_permits(self, messages: int) -> None:
        self._subscription.add_permits(self._consumer, messages)

    def check(self, check_id: int) -> None:
        """Asks whether more entries exist; take() returns the answer."""
        self._consumer.answer_ack(check_id)

    def seek(self, start: StartPosition, seek_id: int) -> None:
        """Raises NotAllowed."""
        raise NotAllowed(
            f"{self._subscription.topic} is non-persistent: it stores no messages to seek."
        )

    def finish(self) -> None:
        """Notes that the client has finished sending: it is leaving."""
        self._consumer.finish()

    def end(self, error: LedgerfoldError) -> None:
        """Makes the stream end with `error`."""
        self._consumer.end(error)

    def detach(self) -> None:
        """Disconnects the reader and releases what is held for it."""
        self._subscription.detach(self._consumer)
        self._consumer.share.close()

    # Steps for the client

    async def take(self) -> list[Step] | None:
        """Waits for and returns the next steps for the client; None if the stream is to end.

        Raises the error of end(), or that the topic was unloaded.
        """
        while (output := await self._consumer.take()) is not None:
            steps = list[Step]()
            if output.deliveries:
                steps.append(Entries(self._counted(output.deliveries)))
            if output.acked_request_ids:
                steps.append(Checked(output.acked_request_ids, has_more=bool(output.deliveries)))
            if steps:
                return steps
            # A change of the active consumer does not affect readers.
            await asyncio.sleep(0)
        return None

    def _counted(self, deliveries: Sequence[Delivery]) -> list[StoredEntry]:
        data = [each.entry for each in deliveries]
        messages = sum(each.messages for each in deliveries)
        self._count_out(Traffic(messages, len(data), sum(map(len, data))))
        return [StoredEntry(read_served_header(each), each) for each in data]
