"""Runs one case on a target with listed answers: its requests, and how each case ends."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import report, runner
from tests.cases.parser import parse
from tests.cases.protocol import Refused, Unsupported
from tests.cases.runner import Outcome, State, run_case

Answers = dict[str, list[Any]]


class ScriptedTarget:
    """Answers each operation from its list, an exception by raising it; {} when that is empty."""

    profile = "documented"
    quiet_ms = 0

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def ask(self, operation: str, /, **fields: Any) -> dict[str, Any]:
        self.asked.append((operation, fields))
        answer = self.answers[operation].pop(0) if self.answers.get(operation) else {}
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    def operations(self) -> list[str]:
        return [operation for operation, _ in self.asked]


def run(steps: str, answers: Answers) -> tuple[Outcome, ScriptedTarget]:
    (case,) = parse(f"ABC-01 A title\n    {steps}\n", "a.cases")
    target = ScriptedTarget(answers)
    return run_case(target, case, "documented"), target


def status(*found: str) -> Answers:
    return {"compaction-status": [{"status": each} for each in found]}


CONFLICT = Refused("It runs.", frozenset({"409", "COMPACTION_RUNNING"}))


def test_a_passing_case() -> None:
    """Each case has a namespace under its profile; entries get names when published."""
    outcome, target = run(
        "[a=1 b=2] c=3 | last-id -> E1",
        {
            "produce": [{"ids": [[5, 0, 0], [5, 0, 1]]}, {"ids": [[5, 1, -1]]}],
            "last-id": [{"id": [5, 1, -1]}],
        },
    )
    assert (outcome.state, outcome.step) == (State.PASS, None)
    assert target.operations()[:4] == ["namespace", "profile", "produce", "produce"]
    _, batch = target.asked[2]
    assert batch["topic"].startswith("persistent://public/abc-01-")
    assert (batch["batch"], batch["batchMax"]) == (True, 2)


@pytest.mark.parametrize(
    ("steps", "answers", "details"),
    [
        (
            "a=1 | status -> ERROR",
            {"produce": [{"ids": [[5, 0, -1]]}]} | status("SUCCESS"),
            [
                "a.cases:2:11: status -> ERROR",
                "not as expected",
                "  expected  ERROR",
                "  got       SUCCESS",
            ],
        ),
        (
            "trigger",
            {"trigger": [CONFLICT]},
            ["a.cases:2:5: trigger", "409 COMPACTION_RUNNING: It runs."],
        ),
        (
            "trigger -> error 404",
            {"trigger": [CONFLICT]},
            [
                "a.cases:2:5: trigger -> error 404",
                "another error",
                "  expected  error 404",
                "  got       409 COMPACTION_RUNNING: It runs.",
            ],
        ),
        (
            "trigger -> error",
            {},
            [
                "a.cases:2:5: trigger -> error",
                "not as expected",
                "  expected  error",
                "  got       null",
            ],
        ),
        (
            "compact",
            {"compact": [{"status": "ERROR", "lastError": "disk full"}]},
            [
                "a.cases:2:5: compact",
                "the run failed",
                "  expected  SUCCESS",
                "  got       ERROR: disk full",
            ],
        ),
        ("consumer c | seek c E0", {}, ["a.cases:2:18: seek c E0", "there is no E0 yet"]),
        (
            "expire s older-than=10ms",
            {},
            [
                "a.cases:2:5: expire s older-than=10ms",
                "older-than= goes by whole seconds, 1s is the least",
            ],
        ),
        ("has-more r", {}, ["a.cases:2:5: has-more r", "nothing is open as r"]),
        ("view r | view r", {}, ["a.cases:2:14: view r", "r is open already"]),
        ("id-by-time t", {}, ["a.cases:2:5: id-by-time t", "no time was marked as t"]),
    ],
)
def test_a_failing_case(steps: str, answers: Answers, details: list[str]) -> None:
    """It ends at the first unexpected step, and reports the difference."""
    outcome, _ = run(steps, answers)
    assert outcome.state is State.FAIL
    assert report.details(outcome) == details


def test_an_expected_refusal() -> None:
    """Compares HTTP status or reason; the case continues."""
    outcome, target = run(
        "trigger -> error 409 | trigger -> error COMPACTION_RUNNING | trigger -> error | unload",
        {"trigger": [CONFLICT] * 3},
    )
    assert outcome.state is State.PASS
    assert target.operations()[-1] == "unload"


@pytest.mark.parametrize(
    ("expected", "asked"),
    [
        ("-> nothing", [1]),
        ("-> a=1 a=1", [2, 1]),
        ("-> 2 messages", [2, 1]),
        ("-> at-least a=1", [1, 1_000_000]),
        ("", [1, 1_000_000]),
        ("max=2", [2]),
    ],
)
def test_the_number_of_awaited_messages(expected: str, asked: list[int]) -> None:
    """Waits for the expected number, then for one more that must not arrive; without a number, for
    all.
    """
    received = [{"id": [5, 0, -1], "key": "a", "value": "1", "handle": "h"}]
    answers = [{"messages": received * count} for count in ([] if asked == [1] else asked[:1])]
    more: Answers = {"receive": [*answers, {"messages": []}]}
    _, target = run(f"consumer c | receive c {expected}", more)
    assert [each["max"] for operation, each in target.asked if operation == "receive"] == asked


def test_features_missing_in_a_target_are_no_failure() -> None:
    """The case ends there."""
    outcome, _ = run("terminate | unload", {"terminate": [Unsupported("There is no terminate.")]})
    assert (outcome.state, outcome.why) == (State.NOT_HERE, "There is no terminate.")


def test_eventually_repeats_a_step() -> None:
    """Until the answer is as expected."""
    outcome, target = run("eventually status -> SUCCESS", status("RUNNING", "RUNNING", "SUCCESS"))
    assert outcome.state is State.PASS
    assert target.operations().count("compaction-status") == 3


def test_eventually_has_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case fails if it waits for longer."""
    monkeypatch.setattr(runner, "WAIT_S", 0)
    outcome, _ = run("eventually status -> SUCCESS", status("RUNNING", "RUNNING", "RUNNING"))
    assert outcome.state is State.FAIL


def test_open_clients_are_closed_at_the_end() -> None:
    """Also if the case fails; errors for a deleted topic are ignored."""
    outcome, target = run(
        "reader r | consumer c | hold | status -> ERROR",
        {"close": [CONFLICT]} | status("RUNNING"),
    )
    assert outcome.state is State.FAIL
    assert target.operations()[-3:] == ["release", "close", "close"]


def test_the_output_has_one_line_per_case_and_a_count() -> None:
    """As `scripts/cases` prints it."""
    (case,) = parse("ABC-01 A title\n  documented: unload\n  pulsar-4: unload\n")
    passed = Outcome(case, "pulsar-4", State.PASS, seconds=0.25)
    outcomes = [passed, Outcome(case, "documented", State.FAIL), Outcome(case, "", State.NOT_HERE)]
    assert report.line(passed).split(maxsplit=2)[:2] == ["pass", "ABC-01"]
    assert "A title (pulsar-4)" in report.line(passed)
    assert report.summary(outcomes) == "1 passed, 1 failed, 1 not applicable here in 0.2 s"
