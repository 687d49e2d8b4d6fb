"""Tests the cache of recent values: bounded, built once, and not kept if it may be stale."""

from __future__ import annotations

import pytest

from ledgerfold.storage.lru_cache import LruCache


def test_the_least_recently_used_value_is_dropped() -> None:
    made = list[int]()

    def get(key: int) -> str:
        return recent.get(key, lambda: made.append(key) or str(key))  # type: ignore[func-returns-value]

    recent = LruCache[int, str](2)
    assert [get(key) for key in (1, 2, 1, 3, 1, 2)] == ["1", "2", "1", "3", "1", "2"]
    assert made == [1, 2, 3, 2]
    assert len(recent) == 2


def test_concurrent_callers_get_the_same_value() -> None:
    recent = LruCache[int, list[str]](2)
    first = ["first"]

    def make() -> list[str]:
        # Another thread, meanwhile.
        assert recent.get(1, lambda: first) is first
        return ["second"]

    assert recent.get(1, make) is first


def test_values_computed_during_a_removal_are_not_cached() -> None:
    """The caller still gets the value."""
    recent = LruCache[int, str](2)

    def make() -> str:
        recent.forget(lambda key: key == 1)
        return "old"

    assert recent.get(1, make) == "old"
    assert recent.get(1, lambda: "new") == "new"
    recent.forget(lambda key: key != 1)
    assert recent.get(1, lambda: "other") == "new"


def test_a_failed_computation_is_repeated() -> None:
    recent = LruCache[int, float](2)
    with pytest.raises(ZeroDivisionError):
        recent.get(1, lambda: 1 / 0)
    assert recent.get(1, lambda: 1.0) == 1.0
