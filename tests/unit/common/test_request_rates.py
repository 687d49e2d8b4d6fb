"""The limit of requests a second of each client."""

from __future__ import annotations

import pytest

from ledgerfold.broker.common import request_rates
from ledgerfold.broker.common.request_rates import RequestRates
from ledgerfold.storage.errors import TooManyRequests


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def taken(rates: RequestRates, client: str = "a", most: int = 100) -> int:
    """Returns how many requests a client may make now."""
    for number in range(most):
        try:
            rates.take(client)
        except TooManyRequests:
            return number
    return most


def test_requests_of_a_second_are_limited(clock: Clock) -> None:
    rates = RequestRates(8, clock)
    assert taken(rates) == 8
    clock.now_s += 0.0625
    assert taken(rates) == 0
    # A refused request takes nothing.
    clock.now_s += 0.0625
    assert taken(rates) == 1
    clock.now_s += 0.5
    assert taken(rates) == 4
    clock.now_s += 3600
    assert taken(rates) == 8


def test_clients_have_separate_limits(clock: Clock) -> None:
    rates = RequestRates(3, clock)
    assert [taken(rates, each) for each in ("a", "b", "a")] == [3, 3, 0]


def test_clients_that_come_once_are_forgotten(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_rates, "CLIENTS_MAX", 2)
    rates = RequestRates(1, clock)
    assert taken(rates, "busy") == 1
    for number in range(5):
        assert taken(rates, f"{number}", 1) == 1
        assert taken(rates, "busy") == 0
    assert len(rates._buckets) == 2
