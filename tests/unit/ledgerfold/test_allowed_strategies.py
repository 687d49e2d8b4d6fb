"""Tests which user-defined strategies may be loaded, before their code is."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from ledgerfold.storage.errors import InvalidRequest, StrategyNotAllowed
from ledgerfold.strategies.allowed import AllowedStrategies, parse_allowed
from ledgerfold.strategies.catalogue import checked
from ledgerfold.v1.records_pb2 import CompactionStrategy
from tests.support.outside_package import OutsidePackage

ALLOWED = AllowedStrategies(("shop:Best",), "this broker")


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OutsidePackage:
    package = OutsidePackage(tmp_path)
    package.write()
    monkeypatch.syspath_prepend(tmp_path)
    return package


def test_named_and_installed_strategies(package: OutsidePackage) -> None:
    """An entry point by its name, and by the class behind it; nothing is imported for it."""
    for name in ("shop:Best", "longest", "outside:Longest", "publishing-order", "whatever"):
        ALLOWED.check(name)
    assert "outside" not in sys.modules


def test_classes_that_come_with_ledgerfold() -> None:
    """They are named as a user's class is, and nothing else of their module is."""
    ALLOWED.check("ledgerfold.strategies:Numeric")
    with pytest.raises(StrategyNotAllowed):
        ALLOWED.check("ledgerfold.strategies:StrategicMessage")


@pytest.mark.parametrize("name", ["os:system", "outside:Raises", "shop:Best.worst", "shop:best"])
def test_strategies_that_are_not_allowed(package: OutsidePackage, name: str) -> None:
    """The error lists the allowed ones and says what to do."""
    with pytest.raises(StrategyNotAllowed) as raised:
        ALLOWED.check(name)
    assert raised.value.strategy == name
    for words in ("(first, longest)", "(shop:Best)", f"this broker with --allow-strategy {name}."):
        assert words in raised.value.message
    assert "outside" not in sys.modules


def test_a_long_list_is_cut() -> None:
    """The error still fits into a gRPC trailer."""
    many = AllowedStrategies(tuple(f"shop{number:03}:Best" for number in range(1000)))
    with pytest.raises(StrategyNotAllowed, match=r"shop009:Best, \.\.\.\)") as raised:
        many.check("os:system")
    assert len(raised.value.message) < 700


def test_strategies_allowed_by_the_same_command_line() -> None:
    """Ledgerfold's strategies need no permission."""
    more = ALLOWED.also("mine:Own", "event-time", "shop:Best")
    assert more.named == ("shop:Best", "mine:Own")
    assert ALLOWED.also("event-time") is ALLOWED


@pytest.mark.parametrize("name", ["longest", "shop:", ":Best", "shop:Best;", "s:B" + "x" * 200, ""])
def test_values_that_the_option_rejects(name: str) -> None:
    with pytest.raises(InvalidRequest):
        parse_allowed(name)
    assert parse_allowed("my.shop:Outer.Inner") == "my.shop:Outer.Inner"


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"a b": "1"}, "Setting 'a b' .* is not a valid name"),
        ({"": "1"}, "Setting '' .* is not a valid name"),
        ({"n" * 201: "1"}, "is not a valid name"),
        ({"n": "1" * 4097}, "has 4097 characters. It may have at most 4096"),
        ({"n": "\0"}, "and no NUL"),
        ({f"n{number}": "" for number in range(101)}, "has 101 settings; the limit is 100"),
    ],
)
def test_settings_have_bounds(settings: dict[str, str], why: str) -> None:
    """They are stored, logged, and part of every status."""
    with pytest.raises(InvalidRequest, match=why):
        checked(CompactionStrategy(name="mine:Own", settings=settings))
