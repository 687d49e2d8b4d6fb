"""Lookups: where a topic is (here), how many partitions it has, which topics there are.

Transactions and watchers of topics are refused, each in the answer that its command has.
"""

from __future__ import annotations

from ledgerfold.broker.common.names import parse_namespace, persistent_topic
from ledgerfold.broker.pulsar.errors import number_of
from ledgerfold.broker.pulsar.frames import command
from ledgerfold.broker.pulsar.link import Link
from ledgerfold.storage.errors import LedgerfoldError, NotAllowed
from ledgerfold.v1 import pulsar_pb2
from ledgerfold.v1.pulsar_pb2 import BaseCommand

_CONNECT, _LOOKUP_FAILED, _METADATA_FAILED = 1, 2, 1
# Of modes of GET_TOPICS_OF_NAMESPACE.
_NON_PERSISTENT = 1
NO_TRANSACTIONS = "There are no transactions: create the client without enable_transaction."
_NO_WATCHERS = "Lists of topics are not watched: clients poll them."


class Lookups:
    """The commands of one connection that need no producer and no consumer.

    `service_url`: as clients reach this broker.
    """

    def __init__(self, link: Link, service_url: str) -> None:
        self._link, self._service_url = link, service_url

    async def partitions(self, request: BaseCommand) -> None:
        asked = request.partitioned_metadata
        answer = pulsar_pb2.CommandPartitionedMetadataResponse(request_id=asked.request_id)
        try:
            name = persistent_topic(asked.topic)
            answer.partitions, answer.response = self._link.broker.partitions.count(name), 0
        except LedgerfoldError as error:
            answer.response, answer.error = _METADATA_FAILED, number_of(error)
            answer.message = str(error)
        type_ = pulsar_pb2.PARTITIONED_METADATA_RESPONSE
        self._link.send(command(type_, partitioned_metadata_response=answer))

    async def lookup(self, request: BaseCommand) -> None:
        asked = request.lookup
        answer = pulsar_pb2.CommandLookupResponse(request_id=asked.request_id)
        try:
            persistent_topic(asked.topic)
            answer.response, answer.authoritative = _CONNECT, True
            answer.broker_service_url = self._service_url
        except LedgerfoldError as error:
            answer.response, answer.error = _LOOKUP_FAILED, number_of(error)
            answer.message = str(error)
        self._link.send(command(pulsar_pb2.LOOKUP_RESPONSE, lookup_response=answer))

    async def topics(self, request: BaseCommand) -> None:
        """Answers with the topics of a namespace; each partition is one. Raises InvalidRequest."""
        asked = request.get_topics_of_namespace
        names = list[str]()
        if asked.mode != _NON_PERSISTENT:
            names = self._link.broker.list_topics(parse_namespace(asked.namespace))
        answer = pulsar_pb2.CommandGetTopicsOfNamespaceResponse(
            request_id=asked.request_id, topics=names
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

    async def watch(self, request: BaseCommand) -> None:
        """Raises NotAllowed."""
        raise NotAllowed(_NO_WATCHERS)
