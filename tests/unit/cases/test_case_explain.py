"""Tests which differences of random scenarios are known."""

from __future__ import annotations

import pytest

from tests.differential.explain import KNOWN, explanation


@pytest.mark.parametrize(
    ("steps", "ours", "theirs", "word"),
    [
        ("a=1 | consumer c0 | seek c0 E0 | unload | raw-read", "nothing", "E0 a=1", "seek"),
        ("a=1 | consumer c0 | unload | receive c0", "E0 a=1", "E0 a=1  E0 a=1", "queue"),
        (
            "consumer c0 | unload | receive c0 max=2 ack",
            "E0 a=1  E1 b=1",
            "E0 a=1  E0 a=1",
            "queue",
        ),
        (
            "strategy namespace newest | consumer c0 type=Failover | compact | receive c0 max=50",
            "E0.0 a=1  E0.1 b=1",
            "E0 b=1",
            "Failover",
        ),
        ("compact | reader r0 RC from=E5 | compact | has-more r0", "false", "true", "has-more"),
        (
            "~=3 | compact | reader r0 RC from=E0 | compact | read r0",
            "nothing",
            "cannot",
            "has-more",
        ),
        ("a=1 | reader r0 | unload | trim | read r0", "E0 a=1", "nothing", "queue"),
        ("a=1 | reader r0 RC | unload | trim | read r0 max=1", "E0 a=1", "E0.1 b=1", "queue"),
        (
            "strategy namespace newest | RC-read from=E1.1 inclusive",
            "E1 a=1",
            "nothing",
            "has-more",
        ),
        (
            "strategy namespace newest | [a=1 b=1] | b=2 | compact | last-id RC",
            "E0",
            "E0.0",
            "last id",
        ),
        ("a=1 | reader r0 | unload | trim | has-more r0", "true", "false", "queue"),
        ("reader r0 from=E1 inclusive | unload | read r0", "E1 b=1", "E0 a=1  E1 b=1", "begins"),
        (
            "reader r0 from=E1 inclusive | unload | read r0",
            "E1",
            "E0.0 a=1  E0.1 a=2  E1",
            "begins",
        ),
        (
            "reader r0 from=E1 inclusive | unload | trim | read r0",
            "E1 b=∅  E2 c=1",
            "E0 a=1  E2 c=1",
            "begins",
        ),
        ("reader r0 from=latest | unload | a=1 | has-more r0", "true", "false", "anew"),
        (
            "reader r0 | unload | trim | read r0",
            "E0 a=1  E1 b=1  E2 c=1",
            "E0 a=1  E2 c=1",
            "queue",
        ),
        (
            "reader r0 from=E0 inclusive | seek r0 latest | read r0",
            "E0 a=1",
            "nothing",
            "has-more",
        ),
        ("a=1 b=∅ | compact | RC-read from=latest inclusive", "E0 a=1", "nothing", "has-more"),
        ("[a=1 b=∅] | compact | RC-read from=E0.0 inclusive", "E0.0 a=1", "nothing", "has-more"),
        ("a=1 | reader r0 RC | compact | compact | read r0", "E0 a=1", "cannot", "has-more"),
        ("a=1 | reader r0 from=latest inclusive | a=2 | read r0", "E0 a=1", "E1 a=2", "opening"),
        ("a=∅ | consumer c0 type=Failover | compact | receive c0", "E0 a=∅", "nothing", "Failover"),
    ],
)
def test_known_differences_are_documented(steps: str, ours: str, theirs: str, word: str) -> None:
    """Each of them, with a scenario that shows it."""
    assert word in explanation(steps.split(" | "), ours, theirs)


@pytest.mark.parametrize(
    ("steps", "ours", "theirs"),
    [
        ("a=1 | compact | RC-read", "nothing", "E0 a=1"),
        ("a=1 b=1 | unload | RC-read", "E1 b=1", "E0 a=1  E1 b=1"),
        ("a=1 | consumer c0 | unload | receive c0", "nothing", "E0 a=1"),
        ("a=1 | reader r0 | trim | unload | read r0", "E0 a=1", "nothing"),
        ("a=1 | reader r0 | unload | trim | read r0 max=2", "E0 a=1", "E1 a=2"),
        ("a=1 | reader r0 | unload | trim | read r0", "E0 a=1  E2 c=1", "E1 b=1  E2 c=1"),
        ("a=1 b=1 | unload | consumer c0 | seek c0 E0 | raw-read", "E1 b=1", "E0 a=1  E1 b=1"),
        ("a=1 | reader r0 | has-more r0", "true", "false"),
        ("consumer c0 type=Failover | compact | receive c0", "nothing", "E0 a=1"),
        ("consumer c0 type=Failover | compact | receive c0", "E0 a=1", "E1 a=2"),
        ("consumer c0 | seek c0 E0 | trim | receive c0", "nothing", "E0 a=1"),
        ("reader r0 from=E0 | seek r0 latest | read r0", "E0 a=1", "nothing"),
        ("reader r0 from=latest | a=1 | has-more r0", "true", "false"),
        ("reader r0 from=latest | unload | a=1 | read r0", "nothing", "E0 a=1"),
        ("reader r0 | unload | trim | read r0", "E0 a=1  E2 c=1", "E0 a=1  E1 b=1"),
        ("reader r0 from=E1 inclusive | read r0", "E1 b=1", "E0 a=1  E1 b=1"),
        ("reader r0 from=E1 | unload | read r0", "E1 b=1", "E0 a=1  E1 b=1"),
        ("reader r0 from=E1 inclusive | unload | read r0", "E1 b=1  E2 c=1", "E0 a=1  E2 c=1"),
        ("reader r0 from=E2 inclusive | unload | read r0", "E2 c=1", "E0 a=1  E1 b=1  E2 c=1"),
        ("a=1 | reader r0 | unload | has-more r0", "true", "false"),
        ("[a=1 b=1] c=1 | RC-read from=E0.0 inclusive", "E0.0 a=1  E1 c=1", "nothing"),
        ("a=1 | reader r0 RC | compact | read r0", "nothing", "cannot"),
        ("compact | reader r0 from=E0 | compact | read r0", "nothing", "cannot"),
        ("compact | reader r0 from=E0 | compact | has-more r0", "false", "true"),
        ("reader r0 from=latest inclusive | reader r1 | read r1", "E0 a=1", "nothing"),
        ("reader r0 from=latest inclusive | a=1 | read r0", "nothing", "E0 a=1"),
    ],
)
def test_unknown_differences_stay_unexplained(steps: str, ours: str, theirs: str) -> None:
    """Lost messages least of all."""
    assert explanation(steps.split(" | "), ours, theirs) == ""


def test_on_one_broker_only_differences_between_clients_are_known() -> None:
    """An explanation by another broker does not count there."""
    steps = ["a=∅", "consumer c0 type=Failover", "compact", "receive c0"]
    assert explanation(steps, "E0 a=∅", "nothing")
    assert explanation(steps, "E0 a=∅", "nothing", is_one_broker=True) == ""
    steps = ["a=1 b=∅", "compact", "RC-read from=latest inclusive"]
    assert "has-more" in explanation(steps, "E0 a=1", "nothing", is_one_broker=True)


def test_each_explanation_has_an_example() -> None:
    """By the table above: one scenario each."""
    assert len({known.why for known in KNOWN}) == 8
