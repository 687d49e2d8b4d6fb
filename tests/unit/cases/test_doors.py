"""A command that answers JSON lines and drives another broker."""

from __future__ import annotations

import doctest
import shlex
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from tests.cases import doors
from tests.cases.doors import DoorBrokers, DoorTarget
from tests.cases.ledgerfold import LedgerfoldTarget
from tests.cases.parser import parse
from tests.cases.protocol import Unsupported
from tests.tidy import ROOT

pytestmark = pytest.mark.process

# Answers its arguments and environment.
COMMAND = """
import json, sys
for line in sys.stdin:
    op = json.loads(line)["op"]
    if op == "truncate":
        break
    answer = {"ok": True, "op": op, "addresses": sys.argv[1:]}
    if op in ("cancel", "terminate"):
        answer = {"ok": False, "message": f"unknown op {op}"}
    print(json.dumps(answer), flush=True)
"""


class Ours:
    """A broker that has other ports each time it starts."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.port = 1

    @property
    def ready(self) -> dict[str, Any]:
        return {"pulsar": f"127.0.0.1:{self.port}", "admin": f"127.0.0.1:{self.port + 1}"}

    def ask(self, operation: str, /, **fields: Any) -> dict[str, Any]:
        self.asked.append(operation)
        self.port += 2 * (operation in ("restart", "kill", "compact-outside"))
        return {}

    def close(self) -> None:
        self.asked.append("close")


@pytest.fixture
def template(tmp_path: Path) -> str:
    script = tmp_path / "driver.py"
    script.write_text(COMMAND)
    return shlex.join([sys.executable, str(script)]) + " {pulsar} {admin}"


@pytest.fixture
def ours() -> Ours:
    return Ours()


@pytest.fixture
def door(template: str, ours: Ours) -> Iterator[DoorTarget]:
    with closing(DoorTarget(template, cast(LedgerfoldTarget, ours))) as target:
        yield target


def test_the_docstring_example_is_true() -> None:
    """Runs the example in the docstring."""
    assert doctest.testmod(doors).failed == 0


def test_the_command_gets_the_addresses(door: DoorTarget) -> None:
    """The URLs are those of the ready line."""
    answer = door.ask("stats", topic="t")
    assert answer["addresses"] == ["pulsar://127.0.0.1:1", "http://127.0.0.1:2"]


@pytest.mark.parametrize("operation", ["restart", "kill", "compact-outside"])
def test_a_restarted_broker_gets_another_command(
    door: DoorTarget, ours: Ours, operation: str
) -> None:
    """It gets the new addresses."""
    door.ask(operation, topic="t")
    assert ours.asked == [operation]
    assert door.ask("unload", topic="t")["addresses"][0] == "pulsar://127.0.0.1:3"


@pytest.mark.parametrize(
    "operation", ["profile", "strategy", "retain-null-key", "cancel", "terminate"]
)
def test_unsupported_operations_use_grpc(door: DoorTarget, ours: Ours, operation: str) -> None:
    """Pulsar has no such thing, or its driver does not know the operation."""
    door.ask(operation, topic="t")
    assert ours.asked == [operation]


@pytest.mark.parametrize("operation", ["produce", "compact", "namespace", "retention", "mark"])
def test_other_operations_use_the_command(door: DoorTarget, ours: Ours, operation: str) -> None:
    """Nothing uses gRPC."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(door, "_mended", lambda operation, answer: answer)
        door.ask(operation, topic="t")
    assert ours.asked == []


def test_grpc_does_not_replace_a_command_that_ended(door: DoorTarget, ours: Ours) -> None:
    """Otherwise, a case would pass without the tested driver."""
    with pytest.raises(Unsupported, match="ended with 0"):
        door.ask("truncate", topic="t")
    assert ours.asked == []


def test_kafka_topics_are_only_tested_over_grpc(template: str, tmp_path: Path) -> None:
    """Its cases are not for this target."""
    (case,) = parse("log: 0:a=1 |\n")
    brokers = DoorBrokers.__new__(DoorBrokers)
    with pytest.raises(Unsupported, match="gRPC only"):
        brokers.options_of(case)


def test_cases_that_pulsars_clients_cannot_run_are_documented() -> None:
    """Each, in docs/NOT_EMULATED.md."""
    text = (ROOT / "docs" / "NOT_EMULATED.md").read_text()
    for number in doors._OF_THE_CLIENT:
        assert f"* {number}: " in text
        (case,) = parse(f"{number} A title\n    a=1 | RC-read\n")
        brokers = DoorBrokers.__new__(DoorBrokers)
        with pytest.raises(Unsupported, match="client"):
            brokers.options_of(case, "documented")
        assert "--pulsar-listen" in brokers.options_of(case, "pulsar-4")


def test_cases_of_pulsars_clients_use_real_time(template: str) -> None:
    """A client of Pulsar stamps its messages by the machine's clock."""
    (case,) = parse("a=1 | advance 1s | RC-read\n")
    brokers = DoorBrokers.__new__(DoorBrokers)
    assert "--test-clock" not in brokers.options_of(case)
