"""The verbs about schemas, and the policies of namespaces and topics about them.

Sources: Pulsar's SchemasResource and SchemasResourceBase; statuses as observed on Pulsar 4.0.7.
Where Pulsar answers 500 to an invalid body, the answer here is 400 or 422.
"""

from __future__ import annotations

from typing import Any

from ledgerfold.broker.common.names import PERSISTENT
from ledgerfold.broker.http.answers import Answer, Refusal, Request, answering, shown
from ledgerfold.broker.http.routes import ADMIN, Route
from ledgerfold.broker.rpc.admin_schemas import SchemaHandlers
from ledgerfold.broker.schemas.compatibility import strategy_name
from ledgerfold.broker.schemas.payloads import definition_in, document_of
from ledgerfold.broker.topics.broker import Broker
from ledgerfold.storage.errors import (
    IncompatibleSchema,
    InvalidRequest,
    InvalidSchema,
    SchemaNotFound,
)
from ledgerfold.v1 import admin_pb2
from ledgerfold.v1.records_pb2 import SchemaDefinition

_SCHEMAS = f"{ADMIN}/schemas/{{tenant}}/{{namespace}}/{{topic}}"


def schema_routes(broker: Broker) -> list[Route]:
    verbs = SchemaVerbs(broker)
    return [
        ("GET", f"{_SCHEMAS}/schema", verbs.latest),
        ("GET", f"{_SCHEMAS}/schema/{{version}}", verbs.version),
        ("GET", f"{_SCHEMAS}/schemas", verbs.all_versions),
        ("POST", f"{_SCHEMAS}/schema", verbs.upload),
        ("DELETE", f"{_SCHEMAS}/schema", verbs.delete),
        ("POST", f"{_SCHEMAS}/compatibility", verbs.compatibility),
        ("POST", f"{_SCHEMAS}/version", verbs.version_of),
    ]


class SchemaVerbs:
    """The schemas of topics. Neither the topic nor its namespace need exist, as in Pulsar."""

    def __init__(self, broker: Broker) -> None:
        self._schemas = SchemaHandlers(broker)

    async def latest(self, request: Request) -> Answer:
        return await self._get(admin_pb2.GetSchemaRequest(topic=_topic(request)))

    async def version(self, request: Request) -> Answer:
        number = request.number("version")
        return await self._get(admin_pb2.GetSchemaRequest(topic=_topic(request), version=number))

    async def _get(self, request: admin_pb2.GetSchemaRequest) -> Answer:
        with answering(SchemaNotFound, 404, "Schema not found"):
            record = (await self._schemas.get(request)).schema
        return shown(document_of(record))

    async def all_versions(self, request: Request) -> Answer:
        rpc_request = admin_pb2.ListSchemasRequest(topic=_topic(request))
        records = (await self._schemas.list_all(rpc_request)).schemas
        return shown({"getSchemaResponses": [document_of(each) for each in records]})

    async def upload(self, request: Request) -> Answer:
        definition = _definition(request.body)
        rpc_request = admin_pb2.PutSchemaRequest(topic=_topic(request), definition=definition)
        with answering(InvalidSchema, 422), answering(IncompatibleSchema, 409):
            version = (await self._schemas.put(rpc_request)).version
        return shown({"version": {"version": version}})

    async def delete(self, request: Request) -> Answer:
        force = request.flag("force")
        rpc_request = admin_pb2.DeleteSchemaRequest(topic=_topic(request), force=force)
        return shown({"version": (await self._schemas.delete(rpc_request)).version})

    async def compatibility(self, request: Request) -> Answer:
        """Answers whether a schema could be added.

        NOTE: Pulsar answers 500 if it cannot be added; its clients raise an error with the reason.
        """
        answer = await self._check(request)
        if not answer.is_compatible:
            raise Refusal(500, answer.reason)
        strategy = strategy_name(answer.strategy)
        body = shown({"schemaCompatibilityStrategy": strategy, "compatibility": True})
        return Answer(202, body.body)

    async def version_of(self, request: Request) -> Answer:
        return shown({"version": (await self._check(request)).version})

    async def _check(self, request: Request) -> admin_pb2.CheckSchemaResponse:
        definition = _definition(request.body)
        rpc_request = admin_pb2.CheckSchemaRequest(topic=_topic(request), definition=definition)
        with answering(InvalidSchema, 422):
            return await self._schemas.check(rpc_request)


def _topic(request: Request) -> str:
    names = request.names
    return f"{PERSISTENT}://{names['tenant']}/{names['namespace']}/{names['topic']}"


def _definition(body: Any) -> SchemaDefinition:
    """Raises Refusal."""
    with answering(InvalidRequest, 400), answering(InvalidSchema, 422):
        return definition_in(body)
