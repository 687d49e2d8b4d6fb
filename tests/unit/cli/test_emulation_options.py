"""`serve --profile`: one of Pulsar, one of Kafka, or the documentation's."""

from __future__ import annotations

import argparse

import pytest

from ledgerfold.broker.cli.topics.serve_options import EMULATION_OPTIONS, emulation_of
from ledgerfold.broker.policies.profiles import PROFILES, emulation
from ledgerfold.storage.errors import InvalidRequest


def told(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    EMULATION_OPTIONS.add_to(parser)
    return parser.parse_args(arguments)


def test_the_default_is_the_documented_profile() -> None:
    assert emulation(emulation_of(told())) == PROFILES["documented"]


@pytest.mark.parametrize("names", [("pulsar-4", "kafka-4.1"), ("kafka-4.1", "pulsar-4")])
def test_one_profile_for_each_kind_of_topic(names: tuple[str, str]) -> None:
    first, second = names
    options = told("--profile", first, "--profile", second, "--emulate", "exact_backlog=true")
    values = emulation(emulation_of(options))
    assert (values.trim_without_cursor, values.map_reopens_aborted) == (True, True)
    assert values.exact_backlog


@pytest.mark.parametrize(
    "names",
    [
        ("documented", "kafka-4.1"),
        ("pulsar-4", "documented"),
        ("pulsar-4", "pulsar-4"),
        ("pulsar-4", "kafka-4.1", "pulsar-4"),
    ],
)
def test_contradictory_profiles_are_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(InvalidRequest, match="at most one --profile of Pulsar"):
        emulation_of(told(*(f"--profile={each}" for each in names)))
