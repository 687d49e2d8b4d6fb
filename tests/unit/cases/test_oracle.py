"""A command that answers JSON lines, as a target."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cases.oracle import OracleTarget
from tests.cases.protocol import Refused, Unsupported

pytestmark = pytest.mark.process

COMMAND = """
import json, sys
ANSWERS = {
    "trigger t": {"ok": False, "error": "Conflict", "message": "It runs.", "http": 409},
    "terminate": {"ok": False, "error": "X", "message": "unknown op terminate"},
    "produce": {"ok": True, "ids": [[5, 0, 0], [5, 0, 1]]},
    "last-id": {"ok": True, "id": [5, 0, -1]},
}
STATES = {"0": ["RUNNING", "SUCCESS"], "1": ["RUNNING", "RUNNING", "ERROR"], "2": ["SUCCESS"]}
for line in sys.stdin:
    request = json.loads(line)
    op, topic = request["op"], request.get("topic", "")
    if op == "kill":
        break
    answer = ANSWERS.get(op) or ANSWERS.get(f"{op} {topic}") or {"ok": True, "request": request}
    if op == "compaction-status":
        answer = {"ok": True, "status": STATES[topic[-1]].pop(0), "lastError": topic}
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def oracle(tmp_path: Path) -> Iterator[OracleTarget]:
    script = tmp_path / "oracle.py"
    script.write_text(COMMAND)
    with closing(OracleTarget(shlex.join([sys.executable, str(script)]))) as target:
        yield target


def test_a_request_is_a_line(oracle: OracleTarget) -> None:
    """The operation and its fields."""
    assert oracle.ask("unload", topic="t")["request"] == {"op": "unload", "topic": "t"}


def test_a_refusal_has_its_codes(oracle: OracleTarget) -> None:
    """The error's name and the HTTP status."""
    with pytest.raises(Refused, match=r"It runs\.") as refused:
        oracle.ask("trigger", topic="t")
    assert refused.value.codes == {"Conflict", "409"}


def test_what_the_command_does_not_know(oracle: OracleTarget) -> None:
    """Is no refusal of the broker's; nor is its end."""
    for operation in ("terminate", "kill"):
        with pytest.raises(Unsupported):
            oracle.ask(operation)


def test_it_has_one_profile_and_no_clock(oracle: OracleTarget) -> None:
    """Short times pass by themselves."""
    assert oracle.ask("profile", namespace="n", profile="pulsar-4") == {}
    with pytest.raises(Unsupported):
        oracle.ask("profile", namespace="n", profile="documented")
    assert oracle.ask("advance", ms=1) == {}
    with pytest.raises(Unsupported):
        oracle.ask("advance", ms=86_400_000)
    assert oracle.ask("mark")["ms"] < oracle.ask("mark")["ms"]


def test_the_first_of_a_batch_as_a_last_id(oracle: OracleTarget) -> None:
    """The command says E0 where E0.0 is meant."""
    oracle.ask("produce", topic="t", messages=[], batch=True)
    assert oracle.ask("last-id", name="r")["id"] == [5, 0, 0]


@pytest.mark.parametrize(("partitions", "status"), [(1, "SUCCESS"), (3, "ERROR")])
def test_a_compaction_of_partitions_has_ended_when_each_has(
    oracle: OracleTarget, partitions: int, status: str
) -> None:
    """The name itself has no status; a partition that failed is the answer."""
    oracle.ask("create", topic="p", partitions=1)
    oracle.ask("grow", topic="p", partitions=partitions)
    answer = oracle.ask("compact", topic="p")
    assert answer["status"] == status
    assert answer["lastError"] == f"p-partition-{partitions // 2}"
