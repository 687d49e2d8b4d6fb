"""`ledgerfold schemas`, and the policies about schemas."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.conftest import Ledgerfold

DATA = '{"type": "record", "name": "A", "fields": [{"name": "x", "type": "int"}]}'
WIDER = DATA.replace('"int"', '"long"')


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"type": "AVRO", "schema": DATA, "properties": {"p": "q"}}))
    return str(path)


def document(cli: Ledgerfold, *arguments: str) -> Any:
    ran = cli(*arguments, "-o", "json")
    assert ran.code == 0, ran.err
    return json.loads(ran.out)


def test_the_schema_of_a_topic(cli: Ledgerfold, topic: str, file: str) -> None:
    assert cli("schemas", "get", topic).code == 3
    assert cli("schemas", "upload", topic, "-f", file) == (0, "0\n", "")
    Path(file).write_text(json.dumps({"type": "AVRO", "schema": WIDER}))
    assert document(cli, "schemas", "upload", topic, "-f", file) == {"version": 1}
    found = document(cli, "schemas", "get", topic, "--version", "0")
    assert found.pop("timestamp") > 0
    assert found == {"version": 0, "type": "AVRO", "data": DATA, "properties": {"p": "q"}}
    assert document(cli, "schemas", "get", topic)["data"] == WIDER
    assert cli("schemas", "versions", topic).out == f"0 AVRO {DATA}\n1 AVRO {WIDER}\n"
    Path(file).write_text(json.dumps({"type": "AVRO", "schema": DATA.replace('"x"', '"y"')}))
    ran = cli("schemas", "upload", topic, "-f", file)
    assert ran.code == 5
    assert "the field 'y' of 'A' was not written" in ran.err
    checked = document(cli, "schemas", "compatibility", topic, "-f", file)
    assert (checked["compatibility"], checked["schemaCompatibilityStrategy"]) == (False, "BACKWARD")
    assert cli("schemas", "delete", topic) == (0, "2\n", "")
    assert cli("schemas", "delete", topic, "--force") == (0, "-1\n", "")
    assert cli("schemas", "versions", topic).out == ""


@pytest.mark.parametrize(
    "content", ["", "{}", "[]", '{"type": "NOPE"}', '{"type": "AVRO", "schema": 7}', "[" * 10**5]
)
def test_a_file_that_is_no_schema(cli: Ledgerfold, topic: str, file: str, content: str) -> None:
    Path(file).write_text(content)
    ran = cli("schemas", "upload", topic, "-f", file)
    assert ran.code == 2
    assert "Traceback" not in ran.err


def test_a_missing_file(cli: Ledgerfold, topic: str, tmp_path: Path) -> None:
    assert cli("schemas", "upload", topic, "-f", str(tmp_path / "none")).code == 3
    large = tmp_path / "large"
    large.write_bytes(b" " * (1024 * 1024 + 1))
    assert "larger than" in cli("schemas", "upload", topic, "-f", str(large)).err


@pytest.mark.parametrize("table", ["topics", "topicPolicies"])
def test_schema_policies(cli: Ledgerfold, topic: str, table: str) -> None:
    cli("topics", "create", topic)
    strategy = "schema-compatibility-strategy"
    assert cli(table, f"get-{strategy}", topic).out == "null\n"
    assert cli(table, f"get-{strategy}", topic, "-ap").out == "BACKWARD\n"
    assert cli(table, f"set-{strategy}", topic, "-c", "FULL_TRANSITIVE").code == 0
    assert cli(table, f"get-{strategy}", topic).out == "FULL_TRANSITIVE\n"
    assert cli(table, f"remove-{strategy}", topic).code == 0
    for name, default in (
        ("schema-validation-enforce", "false"),
        ("is-allow-auto-update-schema", "true"),
    ):
        assert cli(table, f"get-{name}", topic).out == "null\n"
        assert cli(table, f"get-{name}", topic, "-ap").out == f"{default}\n"
        assert cli(table, f"set-{name}", topic, "--enable").code == 0
        assert cli(table, f"get-{name}", topic).out == "true\n"
        assert cli(table, f"set-{name}", topic, "--disable").code == 0
        assert cli(table, f"get-{name}", topic).out == "false\n"
