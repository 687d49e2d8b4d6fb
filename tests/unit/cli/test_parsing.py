"""Tests the syntax of the command line."""

from __future__ import annotations

import json
from itertools import permutations

import pytest

from ledgerfold.broker.cli.main import make_parser
from tests.support.command_line import ledgerfold
from tests.unit.cli.conftest import Ledgerfold

FIELDS = ("exact_backlog=true", "skip_run_without_new_data=false")


@pytest.mark.parametrize("pieces", list(permutations(["t", "--profile", "fields"])))
def test_arguments_before_and_after_an_option(pieces: tuple[str, ...]) -> None:
    """They may have any order; the first argument that is no option is the name."""
    arguments = ["topics", "set-emulation"]
    for piece in pieces:
        arguments += {"t": ["t"], "--profile": ["--profile", "pulsar-4"], "fields": [*FIELDS]}[
            piece
        ]
    found = make_parser().parse_args(arguments)
    name, *fields = [piece for piece in arguments[2:] if piece in ("t", *FIELDS)]
    assert (found.topic, found.profile, found.fields) == (name, "pulsar-4", fields)


def test_arguments_on_both_sides_of_an_option(cli: Ledgerfold, topic: str) -> None:
    """All of them count."""
    cli("topics", "create", topic)
    one, two = FIELDS
    assert cli("topics", "set-emulation", topic, one, "--profile", "pulsar-4", two).code == 0
    found = json.loads(cli("topics", "get-emulation", topic).out)
    assert (found["exact_backlog"], found["skip_run_without_new_data"]) == (True, False)


@pytest.mark.parametrize("verb", ["serve", "verify", "repair", "segment dump"])
def test_commands_without_a_broker_take_no_url(verb: str) -> None:
    """Otherwise it could be mistaken for the address to listen on."""
    assert "unknown option --url." in ledgerfold(*verb.split(), "--url", "h:1").err


@pytest.mark.parametrize(
    "arguments",
    [
        ("clock", "advance", "-5s"),
        ("clock", "advance", "-5"),
        ("clock", "advance", "-1.5h"),
        ("topics", "set-retention", "t", "-t", "-5s", "-s", "1M"),
    ],
)
def test_an_invalid_value_that_begins_with_a_minus(arguments: tuple[str, ...]) -> None:
    """The error is about the value, not about an option."""
    ran = ledgerfold(*arguments)
    assert ran.code == 2
    assert "is not a duration like 500ms, 10s" in ran.err


@pytest.mark.parametrize(
    "arguments", [("topics", "set-emulation"), ("topics", "set-emulation", "t", "--nonsense")]
)
def test_missing_and_unknown_arguments(arguments: tuple[str, ...]) -> None:
    """As everywhere."""
    ran = ledgerfold(*arguments)
    assert ran.code == 2
    assert "topic" in ran.err or "--nonsense" in ran.err
