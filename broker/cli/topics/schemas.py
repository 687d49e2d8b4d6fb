"""`schemas`: the schemas of topics, with pulsar-admin's verbs.

ledgerfold schemas upload prices -f price.json
ledgerfold schemas get prices --version 0

The file is JSON, as for pulsar-admin: {"type": "AVRO", "schema": "...", "properties": {}}.
"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.connecting import TOPIC, admin_of
from ledgerfold.broker.cli.output import ANSWER, print_answer, print_object
from ledgerfold.broker.cli.units import parse_positive
from ledgerfold.broker.cli.verbs import Verbs, argument, flag
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path

if TYPE_CHECKING:
    from ledgerfold.v1.records_pb2 import SchemaRecord

_FILE = argument(
    "-f --filename FILE",
    'JSON: {"type": "AVRO", "schema": "...", "properties": {}}',
    type=absolute_path,
    required=True,
)
_FILE_BYTES_MAX = 1024 * 1024
COMMANDS = Verbs()
VERBS = COMMANDS.command("schemas", "manage the schemas of topics")


def _version(text: str) -> int:
    return 0 if text == "0" else parse_positive(text)


@VERBS.verb("get", "show the schema of a topic", TOPIC)
@argument("-v --version", "the version; default: the latest", type=_version)
@ANSWER
def _get(options: argparse.Namespace) -> None:
    record = admin_of(options).get_schema(options.topic, options.version)
    (document,) = _documents(record)
    print_object(options, document)


@VERBS.verb("versions", "list the versions of a topic's schema", TOPIC, ANSWER)
def _versions(options: argparse.Namespace) -> None:
    documents = _documents(*admin_of(options).list_schemas(options.topic))
    lines = [f"{each['version']} {each['type']} {each['data']}".rstrip() for each in documents]
    print_answer(options, documents, lines)


@VERBS.verb("upload", "add a version of a topic's schema", TOPIC, _FILE, ANSWER)
def _upload(options: argparse.Namespace) -> None:
    version = admin_of(options).put_schema(options.topic, *_definition(options))
    print_object(options, {"version": version}, str(version))


@VERBS.verb("compatibility", "show whether a schema could be added", TOPIC, _FILE, ANSWER)
def _compatibility(options: argparse.Namespace) -> None:
    from ledgerfold.broker.schemas.compatibility import strategy_name

    response = admin_of(options).check_schema(options.topic, *_definition(options))
    document = {
        "compatibility": response.is_compatible,
        "schemaCompatibilityStrategy": strategy_name(response.strategy),
        "reason": response.reason,
    }
    print_object(options, document)


@VERBS.verb("delete", "delete all versions of a topic's schema; its messages stay", TOPIC)
@flag("-f --force", "number the next version 0")
@ANSWER
def _delete(options: argparse.Namespace) -> None:
    version = admin_of(options).delete_schema(options.topic, force=options.force)
    print_object(options, {"version": version}, str(version))


def _documents(*records: SchemaRecord) -> list[dict[str, Any]]:
    from ledgerfold.broker.schemas.payloads import document_of

    return [document_of(each) for each in records]


def _definition(options: argparse.Namespace) -> tuple[str, bytes, dict[str, str]]:
    """Returns type, data and properties of the file. Raises InvalidRequest, OSError."""
    from ledgerfold.broker.schemas.definitions import type_name
    from ledgerfold.broker.schemas.payloads import definition_in

    with options.filename.open("rb") as file:
        content = file.read(_FILE_BYTES_MAX + 1)
    if len(content) > _FILE_BYTES_MAX:
        raise InvalidRequest(f"{options.filename} is larger than {_FILE_BYTES_MAX} bytes.")
    try:
        definition = definition_in(json.loads(content))
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"{options.filename} is not JSON: {error}.") from None
    return type_name(definition.type), definition.data, dict(definition.properties)
