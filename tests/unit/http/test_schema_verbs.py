"""Schemas over HTTP, as Pulsar 4.0.7 answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.http_lab import HttpLab

AT = "/schemas/public/default/t"
N = "/namespaces/public/default"
T = "/persistent/public/default/t"


def avro(*fields: Any) -> dict[str, Any]:
    listed = [{"name": each, "type": "int"} for each in fields]
    data = json.dumps({"type": "record", "name": "A", "fields": listed}, separators=(",", ":"))
    return {"type": "AVRO", "schema": data, "properties": {"p": "q"}}


TEXT = {"type": "STRING", "schema": "", "properties": {}}
PAIR: dict[str, Any] = {
    "type": "KEY_VALUE",
    "schema": '{"key":"","value":{"type":"record","name":"A","fields":[]}}',
    "properties": {"key.schema.type": "STRING", "value.schema.type": "JSON"},
}


def test_schema_versions(lab: HttpLab) -> None:
    assert lab.ask("GET", f"{AT}/schema").reason == "Schema not found"
    assert lab.status("GET", f"{AT}/schema/0") == 404
    assert lab.get(f"{AT}/schemas") == {"getSchemaResponses": []}
    assert lab.ask("POST", f"{AT}/version", avro("x", "y")).body == {"version": -1}
    for _ in range(2):
        assert lab.ask("POST", f"{AT}/schema", avro("x", "y")).body == {"version": {"version": 0}}
    assert lab.ask("POST", f"{AT}/schema", avro("x")).body == {"version": {"version": 1}}
    assert lab.ask("POST", f"{AT}/version", avro("x")).body == {"version": 1}
    found = lab.get(f"{AT}/schema")
    assert found.pop("timestamp") > 0
    assert found == {
        "version": 1,
        "type": "AVRO",
        "data": avro("x")["schema"],
        "properties": {"p": "q"},
    }
    assert lab.get(f"{AT}/schema/0")["data"] == avro("x", "y")["schema"]
    versions = lab.get(f"{AT}/schemas")["getSchemaResponses"]
    assert [each["version"] for each in versions] == [0, 1]
    assert lab.status("GET", f"{AT}/schema/2") == 404
    # The name of a partition means its topic; no namespace is looked for.
    assert lab.get("/schemas/public/default/t-partition-3/schema")["version"] == 1
    assert lab.status("GET", "/schemas/nope/nope/t/schema") == 404


@pytest.mark.parametrize("verb", ["schema", "compatibility", "version"])
def test_texts_that_are_not_unicode_are_refused(lab: HttpLab, verb: str) -> None:
    """The body is JSON, but its texts are invalid."""
    surrogate = json.dumps({"p": "\ud800"})
    of_half = {**PAIR, "properties": {**PAIR["properties"], "key.schema.properties": surrogate}}
    half = {**PAIR, "schema": f'{{"key":"","value":{surrogate}}}'}
    for each in (of_half, half):
        answer = lab.ask("POST", f"{AT}/{verb}", each)
        assert answer.status == 422
        assert "not Unicode" in answer.reason


def test_schema_deletions(lab: HttpLab) -> None:
    lab.ask("POST", f"{AT}/schema", TEXT)
    assert lab.ask("DELETE", f"{AT}/schema").body == {"version": 1}
    assert lab.ask("DELETE", f"{AT}/schema").body == {"version": 2}
    assert lab.status("GET", f"{AT}/schema") == 404
    assert lab.ask("POST", f"{AT}/schema", avro("x")).body == {"version": {"version": 3}}
    assert lab.ask("DELETE", f"{AT}/schema?force=true").body == {"version": -1}
    assert lab.ask("POST", f"{AT}/schema", PAIR).body == {"version": {"version": 0}}
    assert lab.get(f"{AT}/schema")["data"] == PAIR["schema"]


def test_compatibility_checks(lab: HttpLab) -> None:
    lab.ask("POST", f"{AT}/schema", avro("x"))
    answer = lab.ask("POST", f"{AT}/compatibility", avro())
    assert (answer.status, answer.body) == (
        202,
        {"schemaCompatibilityStrategy": "BACKWARD", "compatibility": True},
    )
    # Pulsar's status, too.
    answer = lab.ask("POST", f"{AT}/compatibility", avro("x", "y"))
    assert answer.status == 500
    assert "the field 'y' of 'A' was not written" in answer.reason


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (avro("x", "y"), 409, "the field 'y'"),
        (TEXT, 409, "exists schema type AVRO, new schema type STRING"),
        ({"type": "AVRO", "schema": "nonsense"}, 422, "Invalid schema definition data for AVRO"),
        ({"type": "AVRO", "schema": '["int"]'}, 422, "a union is not supported"),
        ({"type": "STRING", "schema": "x"}, 422, "must be empty"),
        ({"type": "AUTO_CONSUME", "schema": ""}, 422, "no such type"),
        ({"type": "NONE", "schema": ""}, 422, "is not stored"),
        ({"type": "PROTOBUF_NATIVE", "schema": "{}"}, 422, "root message"),
        ({"schema": "x"}, 400, "must be strings"),
        ({"type": "STRING", "properties": {"a": 1}}, 400, "must be strings"),
        ([], 400, "object"),
        (None, 400, "object"),
    ],
)
def test_refused_uploads(lab: HttpLab, body: Any, status: int, reason: str) -> None:
    lab.ask("POST", f"{AT}/schema", avro("x"))
    answer = lab.ask("POST", f"{AT}/schema", body)
    assert answer.status == status
    assert reason in answer.reason
    assert lab.get(f"{AT}/schema")["version"] == 0


def test_a_version_that_is_not_a_number_is_refused(lab: HttpLab) -> None:
    assert lab.status("GET", f"{AT}/schema/x") == 400


def test_an_upload_is_not_bound_by_automatic_updates(lab: HttpLab) -> None:
    """As in Pulsar: it is how versions are added where clients may not add them."""
    lab.done("POST", f"{N}/isAllowAutoUpdateSchema", False)
    assert lab.status("POST", f"{AT}/schema", TEXT) == 200


def test_schema_policies_of_a_namespace(lab: HttpLab) -> None:
    assert lab.get(f"{N}/schemaCompatibilityStrategy") == "UNDEFINED"
    assert lab.get(f"{N}/schemaValidationEnforced") is False
    assert lab.get(f"{N}/isAllowAutoUpdateSchema") is True
    lab.done("PUT", f"{N}/schemaCompatibilityStrategy", "FORWARD")
    lab.done("POST", f"{N}/schemaValidationEnforced", True)
    lab.done("POST", f"{N}/isAllowAutoUpdateSchema", False)
    shown = lab.get(N)
    assert [
        shown["schema_compatibility_strategy"],
        shown["schema_validation_enforced"],
        shown["is_allow_auto_update_schema"],
    ] == ["FORWARD", True, False]
    assert lab.get(f"{N}/schemaCompatibilityStrategy") == "FORWARD"
    lab.done("PUT", f"{N}/schemaCompatibilityStrategy", "UNDEFINED")
    assert lab.get(f"{N}/schemaCompatibilityStrategy") == "UNDEFINED"
    assert lab.status("PUT", f"{N}/schemaCompatibilityStrategy", "NOPE") == 412
    assert lab.status("PUT", f"{N}/schemaCompatibilityStrategy", 7) == 400
    assert lab.status("POST", f"{N}/isAllowAutoUpdateSchema", "x") == 400


def test_schema_policies_of_a_topic(lab: HttpLab) -> None:
    assert lab.status("GET", f"{T}/schemaCompatibilityStrategy") == 404
    lab.done("PUT", T)
    assert lab.get(f"{T}/schemaCompatibilityStrategy") is None
    assert lab.get(f"{T}/schemaCompatibilityStrategy?applied=true") == "BACKWARD"
    lab.done("PUT", f"{T}/schemaCompatibilityStrategy", "FULL")
    assert lab.get(f"{T}/schemaCompatibilityStrategy") == "FULL"
    lab.done("DELETE", f"{T}/schemaCompatibilityStrategy")
    assert lab.get(f"{T}/schemaCompatibilityStrategy") is None
    assert lab.get(f"{T}/schemaValidationEnforced") is False
    lab.done("POST", f"{T}/schemaValidationEnforced", True)
    assert lab.get(f"{T}/schemaValidationEnforced?applied=true") is True
