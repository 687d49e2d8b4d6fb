"""Lookups: where a topic is (here), how many partitions it has, which topics there are.

Transactions are refused, each in the answer that its command has.
"""

from __future__ import annotations

from contextlib import suppress

from ledgerfold.broker.common.names import namespace_of, parse_namespace, persistent_topic
from ledgerfold.broker.pulsar.errors import number_of
from ledgerfold.broker.pulsar.frames import command
from ledgerfold.broker.pulsar.link import Link
from ledgerfold.broker.pulsar.patterns import Pattern, hash_of
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError, NotAllowed, TopicNotFound
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand

_CONNECT, _LOOKUP_FAILED, _METADATA_FAILED = 1, 2, 1
# Of modes of GET_TOPICS_OF_NAMESPACE.
_NON_PERSISTENT = 1
NO_TRANSACTIONS = "There are no transactions: create the client without enable_transaction."


class Lookups:
    """The commands of one connection that need no producer and no consumer.

    `address`: where clients reach this broker. `is_advertised`: they use that address. Otherwise,
    as with Pulsar's standalone broker, they stay at the one by which they came: it may be a port
    of a container, which the broker does not know.
    """

    def __init__(self, link: Link, address: str, *, is_advertised: bool) -> None:
        self._link, self._address, self._is_advertised = link, address, is_advertised

    async def partitions(self, request: BaseCommand) -> None:
        asked = request.partitioned_metadata
        answer = pulsar_pb2.CommandPartitionedMetadataResponse(request_id=asked.request_id)
        try:
            name, broker = self._topic(asked.topic), self._link.broker
            partitions = broker.partitions.count(name)
            is_new = not partitions and broker.metadata.topic(name) is None
            if is_new and not asked.metadata_auto_creation_enabled:
                raise TopicNotFound(name)
            answer.partitions, answer.response = partitions, 0
        except LedgerfoldError as error:
            answer.response, answer.error = _METADATA_FAILED, number_of(error)
            answer.message = str(error)
        type_ = pulsar_pb2.PARTITIONED_METADATA_RESPONSE
        self._link.send(command(type_, partitioned_metadata_response=answer))

    async def lookup(self, request: BaseCommand) -> None:
        asked = request.lookup
        answer = pulsar_pb2.CommandLookupResponse(request_id=asked.request_id)
        try:
            self._topic(asked.topic)
            check_listener(asked.advertised_listener_name)
            answer.response, answer.authoritative = _CONNECT, True
            answer.broker_service_url = f"pulsar://{self._address}"
            # Of clients that came through a proxy that ends TLS.
            answer.broker_service_url_tls = f"pulsar+ssl://{self._address}"
            answer.proxy_through_service_url = not self._is_advertised
        except LedgerfoldError as error:
            answer.response, answer.error = _LOOKUP_FAILED, number_of(error)
            answer.message = str(error)
        self._link.send(command(pulsar_pb2.LOOKUP_RESPONSE, lookup_response=answer))

    def _topic(self, name: str) -> str:
        """Returns the full name of a topic, which need not exist; its namespace must.

        Raises InvalidRequest, NotAllowed, TopicNotFound.
        """
        topic = persistent_topic(name)
        namespace = namespace_of(topic)
        if not self._link.broker.namespaces.exists(namespace):
            raise TopicNotFound(topic, f"Create the namespace {namespace} first.")
        return topic

    async def topics(self, request: BaseCommand) -> None:
        """Answers with the topics of a namespace; each partition is one. Raises InvalidRequest."""
        asked = request.get_topics_of_namespace
        names, broker = list[str](), self._link.broker
        namespace = parse_namespace(asked.namespace)
        if asked.mode != _NON_PERSISTENT:
            names = await broker.in_thread(lambda: broker.names.listed(namespace))
        pattern = None
        if asked.HasField("topics_pattern"):
            # Of a pattern that is none here, the client finds the topics itself.
            with suppress(InvalidRequest):
                pattern = Pattern.of(asked.topics_pattern)
        if pattern is not None:
            names = await pattern.matching(names)
        hash_ = hash_of(names)
        is_known = hash_ == asked.topics_hash
        answer = pulsar_pb2.CommandGetTopicsOfNamespaceResponse(
            request_id=asked.request_id,
            topics=() if is_known else names,
            filtered=pattern is not None,
            topics_hash=hash_,
            changed=not is_known,
        )
        type_ = pulsar_pb2.GET_TOPICS_OF_NAMESPACE_RESPONSE
        self._link.send(command(type_, get_topics_of_namespace_response=answer))

    async def transactions(self, request: BaseCommand) -> None:
        answer = pulsar_pb2.CommandTcClientConnectResponse(
            request_id=request.tc_client_connect_request.request_id,
            error=pulsar_pb2.NOT_ALLOWED,
            message=NO_TRANSACTIONS,
        )
        type_ = pulsar_pb2.TC_CLIENT_CONNECT_RESPONSE
        self._link.send(command(type_, tc_client_connect_response=answer))


def check_listener(name: str) -> None:
    """Raises NotAllowed: a broker has one address for clients, without a name."""
    if name:
        raise NotAllowed(
            f"There is no listener {name[:200]!r}: omit the listener name, and start the broker "
            "with --pulsar-advertise if clients need another address."
        )
