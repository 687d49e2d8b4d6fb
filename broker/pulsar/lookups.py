"""Lookups: the address of a topic (this broker's), its number of partitions, and the names of
topics.

Transactions are refused, in the response of each command.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from ledgerfold.broker.common.names import full_topic, namespace_of, parse_namespace
from ledgerfold.broker.faults.faults import looked_up
from ledgerfold.broker.pulsar.link import Link
from ledgerfold.broker.pulsar.patterns import Pattern, hash_of
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import InvalidRequest, NotAllowed, TopicNotFound
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand, CommandGetTopicsOfNamespace

_CONNECT = 1
# The modes of GET_TOPICS_OF_NAMESPACE.
_PERSISTENT, _NON_PERSISTENT = 0, 1
NO_TRANSACTIONS = "There are no transactions: create the client without enable_transaction."


class Lookups:
    """The commands of one connection that need neither producer nor consumer.

    `service_url`: the URL at which clients reach this broker. `is_advertised`: clients use it.
    Otherwise, as with Pulsar's standalone broker, they keep the address that they connected to: it
    may be a port of a container, which the broker does not know.
    """

    def __init__(self, link: Link, service_url: str, *, is_advertised: bool) -> None:
        self._link, self._service_url, self._is_advertised = link, service_url, is_advertised

    async def partitions(self, request: BaseCommand) -> None:
        """Answers with the number of partitions. Raises InvalidRequest, TopicNotFound."""
        requested = request.partitioned_metadata
        answer = pulsar_pb2.CommandPartitionedMetadataResponse(request_id=requested.request_id)
        name, broker = known_topic(self._link.broker, requested.topic), self._link.broker
        await looked_up(broker.faults, name)
        partitions = broker.partitions.count(name)
        is_new = not partitions and not broker.exists(name)
        if is_new and not requested.metadata_auto_creation_enabled:
            raise TopicNotFound(name)
        answer.partitions, answer.response = partitions, 0
        self._link.send(answer)

    async def lookup(self, request: BaseCommand) -> None:
        """Answers with the address of this broker. Raises InvalidRequest, TopicNotFound."""
        requested = request.lookup
        answer = pulsar_pb2.CommandLookupResponse(request_id=requested.request_id)
        broker = self._link.broker
        await looked_up(broker.faults, known_topic(broker, requested.topic))
        listeners, listener = broker.settings.pulsar_listeners, requested.advertised_listener_name
        url = url_for(listener, listeners, self._service_url)
        answer.response, answer.authoritative = _CONNECT, True
        if url.startswith("pulsar://"):
            answer.broker_service_url = url
        # For clients that connected through a proxy that terminates TLS, too.
        answer.broker_service_url_tls = url.replace("pulsar://", "pulsar+ssl://", 1)
        answer.proxy_through_service_url = not (self._is_advertised or listener)
        self._link.send(answer)

    async def topics(self, request: BaseCommand) -> None:
        """Answers with the topics of a namespace; each partition is one.

        Raises InvalidRequest, NotAllowed.
        """
        async with self._link.list_turn():
            self._link.send_list(await self._topics(request.get_topics_of_namespace))

    async def _topics(
        self, requested: CommandGetTopicsOfNamespace
    ) -> pulsar_pb2.CommandGetTopicsOfNamespaceResponse:
        names, broker = list[str](), self._link.broker
        namespace = parse_namespace(requested.namespace)
        if requested.mode != _NON_PERSISTENT:
            names += await broker.in_thread(lambda: broker.names.listed(namespace))
        if requested.mode != _PERSISTENT:
            names += broker.non_persistent.listed(namespace)
        pattern = None
        if requested.HasField("topics_pattern"):
            # If the pattern is not supported here, the client filters the topics itself.
            with suppress(InvalidRequest):
                pattern = Pattern.of(requested.topics_pattern)
        if pattern is not None:
            names = await pattern.matching(names)
        hash_ = hash_of(names)
        is_known = hash_ == requested.topics_hash
        return pulsar_pb2.CommandGetTopicsOfNamespaceResponse(
            request_id=requested.request_id,
            topics=() if is_known else names,
            filtered=pattern is not None,
            topics_hash=hash_,
            changed=not is_known,
        )

    async def transactions(self, request: BaseCommand) -> None:
        answer = pulsar_pb2.CommandTcClientConnectResponse(
            request_id=request.tc_client_connect_request.request_id,
            error=pulsar_pb2.NOT_ALLOWED,
            message=NO_TRANSACTIONS,
        )
        self._link.send(answer)


def known_topic(broker: Broker, name: str) -> str:
    """Returns the full name of a topic, which need not exist; its namespace must.

    Raises InvalidRequest, TopicNotFound.
    """
    topic = full_topic(name)
    namespace = namespace_of(topic)
    if not broker.namespaces.exists(namespace):
        raise TopicNotFound(topic, f"Create the namespace {namespace} first.")
    return topic


def url_for(listener: str, listeners: Mapping[str, str], service_url: str) -> str:
    """Returns the URL that a client is to use. `listener`: the requested name, "" without one.

    Raises NotAllowed for an unknown name.
    """
    if not listener:
        return service_url
    if listener in listeners:
        return f"{service_url.partition('://')[0]}://{listeners[listener]}"
    raise NotAllowed(
        f"There is no listener {listener[:200]!r}: omit the listener name, or start the broker "
        "with --pulsar-config advertisedListeners=NAME:pulsar://HOST:PORT."
    )
