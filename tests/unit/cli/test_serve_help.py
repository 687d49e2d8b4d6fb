"""Tests the output of `serve --help`."""

from __future__ import annotations

import argparse

import pytest

from ledgerfold.broker.cli.main import make_parser
from ledgerfold.broker.common.settings import BrokerSettings
from ledgerfold.storage.entry import ENTRY_BYTES_MAX
from tests.support.command_line import ledgerfold


def options() -> list[argparse.Action]:
    (commands,) = (
        each for each in make_parser()._actions if isinstance(each, argparse._SubParsersAction)
    )
    found: list[argparse.Action] = commands.choices["serve"]._actions
    return [each for each in found if each.dest != "help"]


@pytest.mark.parametrize("option", options(), ids=lambda each: each.option_strings[-1])
def test_each_option_has_a_help_text(option: argparse.Action) -> None:
    """The help states the effect, before the default; no bare name."""
    text = str(option.help)
    assert len(text.split()) >= 5
    assert not text.startswith(("default", "of ", "when "))


def test_shown_defaults_are_those_of_the_settings() -> None:
    """They are written twice, because `--help` does not load the module."""
    given = make_parser().parse_args(["serve", "--data", "d"])
    settings = BrokerSettings(given.data)
    texts = {each.dest: str(each.help) for each in options()}
    for name in ("message_bytes_max", "unsent_bytes_max"):
        assert f"default {getattr(settings, name) >> 20}M" in texts[name]
    assert given.listen == settings.listen
    assert given.streams_max == settings.streams_max
    most = str(ENTRY_BYTES_MAX)
    given = make_parser().parse_args(["serve", "--data", "d", "--max-message-size", most])
    assert given.message_bytes_max == ENTRY_BYTES_MAX
    assert "must be 16M or more" in ledgerfold("serve", "--unsent-max", "15M").err
    assert "must be at most 16 MiB" in ledgerfold("serve", "--max-message-size", most + "0").err
