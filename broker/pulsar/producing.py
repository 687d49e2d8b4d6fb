"""Producers: PRODUCER, SEND, CLOSE_PRODUCER, and the receipts.

Receipts and refusals of messages are sent in the order of the SENDs. When a client reconnects a
producer, the new producer replaces the previous one, which may not have noticed that its connection
is lost: both have the name that the broker assigned, and the new one has the higher epoch. A name
that another connection uses is free if that connection does not answer a PING within seconds. A
message that was stored on an earlier connection is not stored again.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, ExitStack

from ledgerfold.broker.common.given_names import check_name, check_properties
from ledgerfold.broker.common.names import COMPACTION_CURSOR
from ledgerfold.broker.pulsar.entries import Storable, to_stored
from ledgerfold.broker.pulsar.errors import is_cpp, number_for_message
from ledgerfold.broker.pulsar.frames import (
    NO_REQUEST,
    Content,
    Frame,
    command,
    encode,
    message_id,
    parse_message,
)
from ledgerfold.broker.pulsar.link import Link, properties_of
from ledgerfold.broker.pulsar.lookups import NO_TRANSACTIONS, known_topic
from ledgerfold.broker.pulsar.schemas import schema_of_producer
from ledgerfold.broker.security.guard import Target
from ledgerfold.broker.security.needs import Need
from ledgerfold.broker.subscriptions.lifecycle import create_subscription
from ledgerfold.broker.topics.access import AccessMode, Claim
from ledgerfold.broker.topics.broker import PulsarTopic
from ledgerfold.broker.topics.non_persistent_producer import NonPersistentProducer
from ledgerfold.broker.topics.producer import Producer
from ledgerfold.broker.topics.receipts import Receipt
from ledgerfold.broker.topics.topic import Topic
from ledgerfold.storage.errors import (
    InvalidRequest,
    LedgerfoldError,
    Moved,
    NotAllowed,
    WrongChecksum,
)
from ledgerfold.storage.records import PULSAR_ENTRIES
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.data_pb2 import StartPosition
from ledgerfold.v1.pulsar_pb2 import BaseCommand, CommandProducer, CommandSend

_MODES = tuple(AccessMode)
AnyProducer = Producer | NonPersistentProducer
# Larger entries are checked on a thread: about a millisecond's work.
_THREAD_BYTES = 512 * 1024
_log = logging.getLogger(__name__)


class AttachedProducer:
    """A connected producer of a link."""

    def __init__(
        self,
        opening: CommandProducer,
        producer: AnyProducer,
        schema_version: bytes,
        resources: ExitStack,
    ) -> None:
        self.id, self.epoch = opening.producer_id, opening.epoch
        # A generated name belongs to the client when it reconnects.
        self.has_own_name = opening.user_provided_producer_name and bool(opening.producer_name)
        self.producer, self.schema_version = producer, schema_version
        # The ids for which clients wait, in the order of the receipts.
        self.sent: deque[int] = deque()
        self._resources = resources
        self.receipts: asyncio.Task[None] | None = None

    def when_detached(self, call: Callable[[], object]) -> None:
        self._resources.callback(call)

    def permitted_by(self, use: AbstractContextManager[object]) -> None:
        """Has it end with a permission."""
        self._resources.enter_context(use)

    def detach(self) -> None:
        """Disconnects it. Messages that its connection still sends are not stored: the client sends
        them again.
        """
        self.producer.end(Moved("The producer was closed."))
        self.producer.detach()
        self._resources.close()
        if self.receipts is not None:
            self.receipts.cancel()


# All attached producers of a broker, by their domain objects: another connection may replace one.
Attached = dict[AnyProducer, AttachedProducer]


class Producing:
    """The producers of one connection. `end_silent`: closes the connection of another address if it
    is silent.
    """

    def __init__(
        self, link: Link, attached: Attached, end_silent: Callable[[str], Awaitable[bool]]
    ) -> None:
        self._link, self._attached, self._end_silent = link, attached, end_silent
        self._producers: dict[int, AttachedProducer] = {}
        # The claim of each id that is being connected: CLOSE_PRODUCER removes it, and the id may be
        # opened again before the first attempt notices.
        self._opening: dict[int, Claim] = {}

    # Commands

    async def open(self, request: BaseCommand) -> None:
        """Connects a producer. Raises the reason for a refusal."""
        opening = request.producer
        _check(opening)
        known = self._producers.get(opening.producer_id)
        if opening.producer_id in self._opening:
            raise Moved("The producer is being connected; try again.")
        if known is not None and known.epoch >= opening.epoch:
            self._answer(opening, known)
            return
        if known is not None:
            del self._producers[opening.producer_id]
            known.detach()
        name = opening.producer_name or f"ledgerfold-{secrets.token_hex(4)}"
        claim = _claim(opening, lambda: self._queued(opening, name))
        self._opening[opening.producer_id] = claim
        try:
            await self._open(opening, name, claim)
        finally:
            if self._opening.get(opening.producer_id) is claim:
                del self._opening[opening.producer_id]

    async def _open(self, opening: CommandProducer, name: str, claim: Claim) -> None:
        broker = self._link.broker
        check_name("A producer", name)
        check_properties("a producer", properties_of(opening.metadata))
        name_of_topic = known_topic(broker, opening.topic)
        topic = await broker.pulsar_topic(name_of_topic, to_write=True)
        # After each wait: CLOSE_PRODUCER may have arrived meanwhile.
        claim.check()
        schema_version = await schema_of_producer(self._link, topic, opening)
        claim.check()
        if opening.initial_subscription_name:
            self._link.check(Need.CONSUME, Target.topic_named(name_of_topic))
            await self._subscribe_first(topic, opening.initial_subscription_name)
            claim.check()
        with ExitStack() as resources:
            resources.enter_context(broker.outgoing.stream())
            if isinstance(topic, Topic):
                await broker.in_thread(lambda: broker.metadata.need_feature(PULSAR_ENTRIES))
                claim.check()
            self._replace(topic, name, opening)
            await self._end_holder(topic, name, claim)
            claim.check()
            producer = await topic.attach_producer(name, claim, is_pulsar_client=True)
            attached = AttachedProducer(opening, producer, schema_version, resources.pop_all())
        if self._link.is_closed or self._opening.get(opening.producer_id) is not claim:
            attached.detach()
            return
        producer.peer = self._link.peer(opening.metadata)
        self._producers[attached.id] = self._attached[producer] = attached
        attached.when_detached(lambda: self._attached.pop(producer, None))
        attached.permitted_by(
            self._link.use(Need.PRODUCE, Target.topic_named(topic.name), producer.end)
        )
        self._answer(opening, attached)
        attached.receipts = self._link.spawn(self._send_receipts(attached))

    async def _subscribe_first(self, topic: PulsarTopic, name: str) -> None:
        """Creates a subscription before the first message; a non-persistent topic keeps none."""
        if isinstance(topic, Topic):
            earliest, now_ms = StartPosition(earliest=True), self._link.broker.clock_ms()
            await create_subscription(topic, name, earliest, created_ms=now_ms)

    def _replace(self, topic: PulsarTopic, name: str, opening: CommandProducer) -> None:
        """Disconnects the producer that the new one replaces."""
        old = topic.producers.get(name)
        attached = None if old is None else self._attached.get(old)
        if attached is None or attached.epoch >= opening.epoch:
            return
        # Only an exclusive producer knows its epoch.
        had_access = bool(opening.producer_access_mode) and opening.HasField("topic_epoch")
        was_exclusive = attached.producer.claim.mode is not AccessMode.SHARED
        is_same = (
            had_access and was_exclusive and opening.topic_epoch == attached.producer.topic_epoch
        )
        if is_same or not attached.has_own_name:
            attached.detach()

    async def _end_holder(self, topic: PulsarTopic, name: str, claim: Claim) -> None:
        """Ends the producer of that name if its client is gone (Pulsar's AbstractTopic).

        Exclusive access has its own rules.
        """
        held = topic.producers.get(name)
        if held is None or held.peer.address == self._link.address:
            return
        if held.claim.mode is claim.mode is AccessMode.SHARED:
            await self._end_silent(held.peer.address)

    def _answer(self, opening: CommandProducer, attached: AttachedProducer) -> None:
        last = attached.producer.last_sequence_id
        takes_none_for_new = isinstance(attached.producer, Producer)
        if takes_none_for_new and not attached.has_own_name and is_cpp(self._link.client_version):
            # NOTE: after -1 the C++ client would number new messages from 0 again if its connection
            # breaks before the first receipt, and they would be treated as duplicates of the first
            # messages.
            last = max(last, 0)
        answer = pulsar_pb2.CommandProducerSuccess(
            request_id=opening.request_id,
            producer_name=attached.producer.name,
            last_sequence_id=last,
            # The Java client does not accept an answer without a version, even if it has no schema.
            schema_version=attached.schema_version,
            topic_epoch=attached.producer.topic_epoch,
        )
        self._link.send(answer)

    def _queued(self, opening: CommandProducer, name: str) -> None:
        """Notifies the client that its producer waits for exclusive access."""
        answer = pulsar_pb2.CommandProducerSuccess(
            request_id=opening.request_id,
            producer_name=name,
            schema_version=b"",
            producer_ready=False,
        )
        self._link.send(answer)

    async def send(self, frame: Frame) -> None:
        """Appends an entry; returns when the next may be read. Raises InvalidRequest."""
        send = frame.command.send
        attached = self._producers.get(send.producer_id)
        if attached is None:
            # The client has closed it, or is being notified to reconnect it.
            return
        producer = attached.producer
        try:
            entry, is_new = await _stored(frame.payload, send, producer.emulated_now_ms())
            if self._producers.get(send.producer_id) is not attached:
                return
            attached.sent.append(send.sequence_id)
            try:
                producer.append_all([entry], is_new=is_new)
            except BaseException:
                attached.sent.pop()
                raise
        except (InvalidRequest, NotAllowed) as error:
            attached.sent.append(send.sequence_id)
            producer.refuse(send.sequence_id, len(frame.payload), error)
        except LedgerfoldError as error:
            producer.end(error)
        except Exception:
            # A defect: it affects only this producer of its connection.
            _log.exception("A message of %s was not stored", producer.name)
            producer.end(Moved("The broker could not store a message; its log says why."))
        await producer.has_room()

    async def close(self, request: BaseCommand) -> None:
        closing = request.close_producer
        claim = self._opening.pop(closing.producer_id, None)
        if claim is not None:
            claim.give_up(Moved("The producer was closed."))
        attached = self._producers.pop(closing.producer_id, None)
        if attached is not None:
            # Messages sent before get their receipts.
            attached.producer.finish()
            try:
                if attached.receipts is not None:
                    await asyncio.wait((attached.receipts,))
            finally:
                # Also if the connection is lost meanwhile.
                attached.detach()
        self._link.succeed(closing.request_id)

    def closed(self) -> None:
        """Disconnects all producers: the connection is lost."""
        self._opening.clear()
        for attached in self._producers.values():
            attached.detach()
        self._producers.clear()

    # Receipts

    async def _send_receipts(self, attached: AttachedProducer) -> None:
        try:
            while receipts := await attached.producer.receipts():
                self._link.write(
                    b"".join(encode(command(self._receipt(attached, each))) for each in receipts)
                )
                await self._link.writable()
        except LedgerfoldError as error:
            self._end(attached, error)

    def _receipt(self, attached: AttachedProducer, receipt: Receipt) -> Content:
        sequence_id = attached.sent.popleft()
        if receipt.refusal is not None:
            if not isinstance(receipt.refusal, WrongChecksum):
                _log.warning(
                    "A message of %s was refused: %s", attached.producer.name, receipt.refusal
                )
            return pulsar_pb2.CommandSendError(
                producer_id=attached.id,
                sequence_id=sequence_id,
                error=number_for_message(receipt.refusal, self._link.client_version),
                message=str(receipt.refusal),
            )
        sent = pulsar_pb2.CommandSendReceipt(
            producer_id=attached.id,
            sequence_id=sequence_id,
            message_id=message_id(*receipt.position),
        )
        if receipt.sequence_id > sequence_id:
            sent.highest_sequence_id = receipt.sequence_id
        return sent

    def _end(self, attached: AttachedProducer, error: LedgerfoldError) -> None:
        """Notifies the client to reconnect the producer: it then gets the reason."""
        _log.info("The producer %s ends: %s", attached.producer.name, error)
        if self._producers.get(attached.id) is attached:
            del self._producers[attached.id]
            closing = pulsar_pb2.CommandCloseProducer(
                producer_id=attached.id, request_id=NO_REQUEST
            )
            self._link.send(closing)
        attached.detach()


def _check(opening: CommandProducer) -> None:
    """Raises NotAllowed for options that no producer can have."""
    if opening.txn_enabled:
        raise NotAllowed(NO_TRANSACTIONS)
    if opening.initial_subscription_name == COMPACTION_CURSOR:
        raise NotAllowed(f"{COMPACTION_CURSOR} is reserved for compaction.")


def _claim(opening: CommandProducer, on_queued: Callable[[], None]) -> Claim:
    """Returns the access that a producer requests. Raises InvalidRequest."""
    if not 0 <= opening.producer_access_mode < len(_MODES):
        raise InvalidRequest(f"Unknown access mode {opening.producer_access_mode}.")
    epoch = opening.topic_epoch if opening.HasField("topic_epoch") else None
    return Claim(_MODES[opening.producer_access_mode], epoch, on_queued)


async def _stored(payload: bytes, send: CommandSend, now_ms: int | None) -> Storable:
    """Returns the entry to store. Raises InvalidRequest, NotAllowed."""
    if len(payload) < _THREAD_BYTES:
        return to_stored(parse_message(payload), send, now_ms)
    return await asyncio.to_thread(lambda: to_stored(parse_message(payload), send, now_ms))
