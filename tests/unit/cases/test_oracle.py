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
from tests.cases.steps.looking import within

pytestmark = pytest.mark.process

COMMAND = """
import json, sys
ANSWERS = {
    "trigger t": {"ok": False, "error": "Conflict", "message": "It runs.", "http": 409},
    "terminate": {"ok": False, "error": "X", "message": "unknown op terminate"},
    "produce": {"ok": True, "ids": [[5, 0, 0], [5, 0, 1]]},
    "last-id": {"ok": True, "id": [5, 0, -1]},
    "stats": {"ok": True, "stats": {"compaction": {"removed": 1}}},
}
STATES = {"0": ["RUNNING", "SUCCESS"], "1": ["RUNNING", "RUNNING", "ERROR"], "2": ["SUCCESS"]}
last = None
for line in sys.stdin:
    request = json.loads(line)
    op, topic = request["op"], request.get("topic", "")
    if op == "kill":
        break
    answer = ANSWERS.get(op) or ANSWERS.get(f"{op} {topic}") or {"ok": True, "request": request}
    if op == "compaction-status":
        answer = {"ok": True, "status": STATES[topic[-1]].pop(0), "lastError": topic}
    if op == "last-request":
        answer = {"ok": True, "last": last}
    last = request
    print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def command(tmp_path: Path) -> str:
    script = tmp_path / "oracle.py"
    script.write_text(COMMAND)
    return shlex.join([sys.executable, str(script)])


@pytest.fixture
def oracle(command: str) -> Iterator[OracleTarget]:
    with closing(OracleTarget(command)) as target:
        yield target


def test_a_request_is_one_line(oracle: OracleTarget) -> None:
    """The operation and its fields."""
    assert oracle.ask("unload", topic="t")["request"] == {"op": "unload", "topic": "t"}


def test_a_refusal_has_its_error_codes(oracle: OracleTarget) -> None:
    """The error's name and the HTTP status."""
    with pytest.raises(Refused, match=r"It runs\.") as refused:
        oracle.ask("trigger", topic="t")
    assert refused.value.codes == {"Conflict", "409"}


def test_unsupported_operations_are_no_refusal(oracle: OracleTarget) -> None:
    """Is no refusal of the broker's; nor is its end."""
    for operation in ("terminate", "kill"):
        with pytest.raises(Unsupported):
            oracle.ask(operation)


def test_a_command_has_one_profile_and_no_clock(oracle: OracleTarget) -> None:
    """Short times pass by themselves."""
    assert oracle.ask("profile", namespace="n", profile="pulsar-4") == {}
    with pytest.raises(Unsupported):
        oracle.ask("profile", namespace="n", profile="documented")
    assert oracle.ask("advance", ms=1) == {}
    with pytest.raises(Unsupported):
        oracle.ask("advance", ms=86_400_000)
    assert oracle.ask("mark")["ms"] < oracle.ask("mark")["ms"]


def test_an_id_without_a_batch_index_means_the_first_message(oracle: OracleTarget) -> None:
    """The command says E0 where E0.0 is meant."""
    oracle.ask("produce", topic="t", messages=[], batch=True)
    assert oracle.ask("last-id", name="r")["id"] == [5, 0, 0]


@pytest.mark.parametrize(("partitions", "status"), [(1, "SUCCESS"), (3, "ERROR")])
def test_a_partitioned_compaction_ends_with_its_last_partition(
    oracle: OracleTarget, partitions: int, status: str
) -> None:
    """The name itself has no status; a partition that failed is the answer."""
    oracle.ask("create", topic="p", partitions=1)
    oracle.ask("grow", topic="p", partitions=partitions)
    answer = oracle.ask("compact", topic="p")
    assert answer["status"] == status
    assert answer["lastError"] == f"p-partition-{partitions // 2}"


TOPIC = "persistent://public/n/t"


def asked_by(oracle: OracleTarget, operation: str, **fields: object) -> list[object]:
    """Returns the command's parameters: the operation, its order, null keys."""
    oracle.ask(operation, topic=TOPIC, **fields)
    last = oracle.ask("last-request", topic=TOPIC)["last"]
    return [last.get(name) for name in ("op", "order", "retainNullKey")]


def test_each_run_names_its_strategy(oracle: OracleTarget) -> None:
    """A topic's strategy overrides the namespace's; without one the broker compacts itself."""
    assert asked_by(oracle, "compact") == ["compact", None, None]
    oracle.ask("strategy", namespace="public/n", order="event-time")
    assert asked_by(oracle, "compact") == ["compact-outside", "EVENT_TIME", False]
    oracle.ask("strategy", topic=TOPIC, order="numeric")
    oracle.ask("retain-null-key", namespace="public/n", retain=True)
    assert asked_by(oracle, "compact") == ["compact-outside", "NUMERIC", True]
    oracle.ask("strategy", topic=TOPIC, remove=True)
    assert asked_by(oracle, "compact-outside") == ["compact-outside", "EVENT_TIME", True]
    assert asked_by(oracle, "compact-outside", order="PUBLISHING")[1] == "PUBLISHING"
    with pytest.raises(Unsupported, match="keep-n"):
        oracle.ask("strategy", topic=TOPIC, order="keep-n", settings={"n": "2"})


def test_a_broker_with_a_different_default_strategy(command: str) -> None:
    """Its own runs are used if the case asks for its order."""
    with closing(OracleTarget(command, "EVENT_TIME")) as oracle:
        assert asked_by(oracle, "compact") == ["compact-outside", "PUBLISHING", False]
        oracle.ask("strategy", topic=TOPIC, order="event-time")
        assert asked_by(oracle, "compact") == ["compact", None, None]
        assert asked_by(oracle, "compact-outside")[1] == "EVENT_TIME"


def test_stats_without_compaction_figures_are_accepted(oracle: OracleTarget) -> None:
    """Unknown stats are ignored, and fail nothing."""
    assert oracle.ask("stats", topic=TOPIC)["stats"] == {"compaction": {"removed": 1}}
    oracle.ask("compact-outside", topic=TOPIC)
    assert oracle.ask("stats", topic=TOPIC)["stats"] == {"compaction": None}
    with pytest.raises(Unsupported):
        within(None, "removed")
