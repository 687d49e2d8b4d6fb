"""The calls of AdminService about single entries (broker/topics/single_entries.py)."""

from __future__ import annotations

from ledgerfold.broker.rpc.existing import recorded_name
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.broker.topics.single_entries import entry_by_id, examined_entry, peeked_entries
from ledgerfold.storage.entry import Position
from ledgerfold.v1 import admin_pb2


class MessageHandlers:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def peek(self, request: admin_pb2.PeekMessagesRequest) -> admin_pb2.PeekMessagesResponse:
        name, place = recorded_name(self._broker, request.topic), request.position
        found = await peeked_entries(
            self._broker, name, request.subscription, place, request.messages
        )
        return admin_pb2.PeekMessagesResponse(entries=[bytes(each.data) for each in found])

    async def examine(
        self, request: admin_pb2.ExamineMessagesRequest
    ) -> admin_pb2.ExamineMessagesResponse:
        name, place = recorded_name(self._broker, request.topic), request.position
        found = await examined_entry(self._broker, name, place, from_earliest=request.from_earliest)
        return admin_pb2.ExamineMessagesResponse(entry=bytes(found.data))

    async def by_id(
        self, request: admin_pb2.GetMessageByIdRequest
    ) -> admin_pb2.GetMessageByIdResponse:
        name, at = (
            recorded_name(self._broker, request.topic),
            Position(request.ledger_id, request.entry_id),
        )
        found = await entry_by_id(self._broker, name, at)
        return admin_pb2.GetMessageByIdResponse(entry=bytes(found.data))
