"""The calls of Admin about schemas (broker/client/administration/admin.py).

>>> from ledgerfold.broker.client.administration.admin import Admin
>>> with Admin("127.0.0.1:7650") as admin:
...     admin.put_schema("words", "STRING")
...     print(admin.check_schema("words", "INT64").reason)
0
persistent://public/default/words does not accept the schema: exists schema type STRING, new ...
"""

from __future__ import annotations

from collections.abc import Mapping

from ledgerfold.broker.client.administration.channel import Calls
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.v1 import admin_pb2, records_pb2

_PREFIX = "SCHEMA_TYPE_"
_NONE = f"{_PREFIX}NONE"


class SchemaCalls(Calls):
    """The schema calls. A partition's name means its partitioned topic."""

    def get_schema(self, topic: str, version: int | None = None) -> records_pb2.SchemaRecord:
        """Returns a version of the topic's schema, by default the latest. Raises SchemaNotFound."""
        request = admin_pb2.GetSchemaRequest(topic=topic, version=version)
        record: records_pb2.SchemaRecord = self._call(request).schema
        return record

    def list_schemas(self, topic: str) -> list[records_pb2.SchemaRecord]:
        """Returns all versions of the topic's schema, oldest first."""
        return list(self._call(admin_pb2.ListSchemasRequest(topic=topic)).schemas)

    def put_schema(
        self,
        topic: str,
        type_: str,
        data: bytes = b"",
        properties: Mapping[str, str] | None = None,
    ) -> int:
        """Adds a version of the topic's schema, unless an equal one exists. Returns its number.

        `type_`: "AVRO", "JSON", "STRING" and so on, with a definition in `data` if it has one.
        Raises InvalidSchema, IncompatibleSchema.
        """
        definition = _definition(type_, data, properties)
        request = admin_pb2.PutSchemaRequest(topic=topic, definition=definition)
        return int(self._call(request).version)

    def delete_schema(self, topic: str, *, force: bool = False) -> int:
        """Deletes all versions of the topic's schema; its messages stay.

        Returns the number of the version that marks the deletion. With `force` there is no mark:
        this returns -1, and the next version is 0.
        """
        request = admin_pb2.DeleteSchemaRequest(topic=topic, force=force)
        return int(self._call(request).version)

    def check_schema(
        self,
        topic: str,
        type_: str,
        data: bytes = b"",
        properties: Mapping[str, str] | None = None,
    ) -> admin_pb2.CheckSchemaResponse:
        """Returns whether put_schema() would accept a schema, and the number of the equal version.

        The number is -1 if no version is equal.

        Raises InvalidSchema.
        """
        definition = _definition(type_, data, properties)
        request = admin_pb2.CheckSchemaRequest(topic=topic, definition=definition)
        answer: admin_pb2.CheckSchemaResponse = self._call(request)
        return answer


def _definition(
    type_: str, data: bytes, properties: Mapping[str, str] | None
) -> records_pb2.SchemaDefinition:
    known = [each.name for each in records_pb2.SchemaType.DESCRIPTOR.values]
    known.remove(_NONE)
    if f"{_PREFIX}{type_}" not in known:
        names = ", ".join(each.removeprefix(_PREFIX) for each in known)
        raise InvalidRequest(f"{type_!r} is not a schema type; known types: {names}.")
    return records_pb2.SchemaDefinition(
        type=f"{_PREFIX}{type_}", data=data, properties=properties or {}
    )
