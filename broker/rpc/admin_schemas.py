"""The calls of AdminService about schemas (broker/topics/schemas.py).

A partition's name means its partitioned topic; the topic need not exist.
"""

from __future__ import annotations

from ledgerfold.broker.common.shielding import runs_to_completion
from ledgerfold.broker.rpc.existing import recorded_name
from ledgerfold.broker.rpc.handlers import Handlers
from ledgerfold.storage.errors import IncompatibleSchema
from ledgerfold.v1 import admin_pb2


class SchemaHandlers(Handlers):
    def _name(self, topic: str) -> str:
        return recorded_name(self._broker, topic)

    async def get(self, request: admin_pb2.GetSchemaRequest) -> admin_pb2.GetSchemaResponse:
        number = request.version if request.HasField("version") else None
        record = self._broker.schemas.version(self._name(request.topic), number)
        return admin_pb2.GetSchemaResponse(schema=record)

    async def list_all(
        self, request: admin_pb2.ListSchemasRequest
    ) -> admin_pb2.ListSchemasResponse:
        records = self._broker.schemas.versions(self._name(request.topic))
        return admin_pb2.ListSchemasResponse(schemas=records)

    @runs_to_completion
    async def put(self, request: admin_pb2.PutSchemaRequest) -> admin_pb2.PutSchemaResponse:
        version = await self._broker.schemas.put(self._name(request.topic), request.definition)
        return admin_pb2.PutSchemaResponse(version=version)

    @runs_to_completion
    async def delete(
        self, request: admin_pb2.DeleteSchemaRequest
    ) -> admin_pb2.DeleteSchemaResponse:
        version = await self._broker.schemas.delete(self._name(request.topic), force=request.force)
        return admin_pb2.DeleteSchemaResponse(version=version)

    async def check(self, request: admin_pb2.CheckSchemaRequest) -> admin_pb2.CheckSchemaResponse:
        name = self._name(request.topic)
        answer = admin_pb2.CheckSchemaResponse(is_compatible=True)
        answer.strategy = self._broker.schemas.policies(name).schema_compatibility_strategy
        answer.version = await self._broker.schemas.find(name, request.definition)
        try:
            await self._broker.schemas.check(name, request.definition)
        except IncompatibleSchema as error:
            answer.is_compatible, answer.reason = False, error.message
        return answer
