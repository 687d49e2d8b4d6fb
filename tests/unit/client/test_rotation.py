"""Turns: each partition in its order, none for ever behind another."""

from __future__ import annotations

from collections import deque
from typing import Any

import pytest

from ledgerfold.broker.client.core.partition_set import MESSAGES_PER_TURN, Rotation


def poll(numbers: deque[int]) -> int | None:
    return numbers.popleft() if numbers else None


def drain(rotation: Rotation[deque[int]], count: int) -> list[int | None]:
    return [rotation.take(poll) for _ in range(count)]


def test_one_member_is_emptied_before_the_next() -> None:
    first, second = deque([1, 2]), deque[int]()
    rotation = Rotation([first, second])
    assert drain(rotation, 3) == [1, 2, None]
    second.append(7)
    first.append(3)
    assert sorted(number for number in drain(rotation, 2) if number is not None) == [3, 7]


def test_a_busy_member_yields_after_its_share() -> None:
    busy, quiet = deque(range(1000)), deque([-1])
    rotation = Rotation([busy, quiet])
    taken = drain(rotation, MESSAGES_PER_TURN + 2)
    assert taken.index(-1) == MESSAGES_PER_TURN
    assert [each for each in taken if each != -1] == list(range(MESSAGES_PER_TURN + 1))


def test_members_with_data_are_chosen() -> None:
    rotation = Rotation([deque[int](), deque([5])])
    assert rotation.find(bool)
    assert rotation.current == deque([5])
    rotation.next_turn()
    assert rotation.current == deque()
    assert rotation.find(bool)
    assert not Rotation([deque[int]()]).find(bool)


def test_an_error_is_raised_again() -> None:
    """Nothing is skipped: the next call gets the error again."""

    def fail_at(member: str) -> Any:
        if member == "bad":
            raise ValueError(member)

    rotation = Rotation(["good", "bad", "good"])
    for _ in range(2):
        with pytest.raises(ValueError, match="bad"):
            rotation.take(fail_at)
        with pytest.raises(ValueError, match="bad"):
            rotation.find(fail_at)


def test_new_members_are_included() -> None:
    rotation = Rotation([deque[int]()])
    assert rotation.take(poll) is None
    rotation.members += (deque([4]),)
    assert rotation.take(poll) == 4
