"""Compares answers with expectations, and shows a difference."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from tests.cases import compare
from tests.cases.compare import Difference, Judge, Names, Received
from tests.cases.parser import parse


def judge() -> Judge:
    """Builds a comparison with a topic of E0, the batch E1, and E2 in a second ledger; one answer
    is saved.
    """
    names = Names()
    for at in ([7, 0, -1], [7, 1, 0], [9, 0, -1]):
        names.add(at)
    return Judge(names, {"before": [got([7, 0, -1], "a", "1")], "number": 5})


def got(at: list[int], key: str | None, value: str | None, **more: Any) -> Received:
    return {"id": at, "key": key, "value": value} | more


def difference(expected: str, answer: Any) -> Difference | None:
    (case,) = parse(f"ABC-01 T\n  H as before | H as number | RC-read -> {expected}\n")
    assert case.steps[2].expected is not None
    return judge().differs(case.steps[2].expected, answer)


A1 = got([7, 0, -1], "a", "1", eventTime=5, props={"p": "q"})
B2 = got([7, 1, 1], "b", "2")
NONE = got([9, 0, -1], None, None)


def test_the_docstring_example_is_true() -> None:
    """Runs the example in the docstring."""
    assert doctest.testmod(compare).failed == 0


@pytest.mark.parametrize(
    ("expected", "answer"),
    [
        ("a=1 b=2", [A1, B2]),
        ("E0 a=1 E1.1 b=2 E2 ~=∅", [A1, B2, NONE]),
        ("E0 a=1@5{p:q}", [A1]),
        ("any-order b=2 a=1", [A1, B2]),
        ("at-least b=2", [A1, B2]),
        ("nothing", []),
        ("2 messages", [A1, B2]),
        ("E1.1", [7, 1, 1]),
        ("E2", "9:0"),
        ("before-E2", "9:-1"),
        ("at-end", "11:-1"),
        ("none", [-1, -1, -1]),
        ("true", True),
        ("null", None),
        ("5", 5),
        ("> 4", 5),
        ("<= 5.0", 5),
        ("contains rro", "error"),
        ("same as number", 5),
        ("other than number", 6),
        ("same as before", [got([7, 0, -1], "a", "1", handle="h", redelivery=1)]),
        ("part of before", []),
    ],
)
def test_equal_answers(expected: str, answer: Any) -> None:
    """No difference."""
    assert difference(expected, answer) is None


@pytest.mark.parametrize(
    ("expected", "answer", "shown"),
    [
        ("a=2", [A1], ("a=2", "E0 a=1@5{p:q}")),
        ("a=1", [A1, B2], ("a=1", "E0 a=1@5{p:q}  E1.1 b=2")),
        ("b=2 a=1", [A1, B2], ("b=2  a=1", "E0 a=1@5{p:q}  E1.1 b=2")),
        ("a=1 b=2", [A1], ("a=1  b=2", "E0 a=1@5{p:q}")),
        ("E1 a=1", [A1], ("E1 a=1", "E0 a=1@5{p:q}")),
        ("a=1@6", [A1], ("a=1@6", "E0 a=1@5{p:q}")),
        ("b=2{p:q}", [B2], ("b=2{p:q}", "E1.1 b=2")),
        ("any-order a=1", [A1, B2], ("in any order: a=1", "E0 a=1@5{p:q}  E1.1 b=2")),
        ("at-least b=2", [A1], ("among others: b=2", "E0 a=1@5{p:q}")),
        ("nothing", [NONE], ("nothing", "E2 ~=∅")),
        ("a=x", [got([7, 0, -1], "a", "y" * 99)], ("a=x", 'E0 a="y"*99')),
        (
            "a=x",
            [got([7, 0, -1], "a", "z" + "y" * 99)],
            ("a=x", f'E0 a="z{"y" * 59}"...(100)'),
        ),
        ('~=""', [NONE], ('~=""', "E2 ~=∅")),
        ("2 messages", [B2], ("2 messages", "E1.1 b=2")),
        ("a=1", 5, ("messages", "5")),
        ("E1", [7, 1, 0], ("E1", "E1.0")),
        ("none", "12:4", ("none", "12:4")),
        ("> 5", 5, ("> 5", "5")),
        ("contains rro", "none", ("contains rro", "none")),
        ("same as number", 6, ("same as number: 5", "6")),
        ("other than number", 5, ("other than number: 5", "5")),
        ("part of before", [B2], ("part of before: E0 a=1", "E1.1 b=2")),
        ("error 409", "SUCCESS", ("error 409", "SUCCESS")),
    ],
)
def test_different_answers(expected: str, answer: Any, shown: tuple[str, str]) -> None:
    """The difference shows the expected and the actual answer, both in the notation."""
    assert difference(expected, answer) == shown


def test_values_that_are_not_text_are_compared_as_bytes() -> None:
    """Bytes that decode to the expected text are accepted."""
    assert difference(r'a=b"\xff"', [got([7, 0, -1], "a", "\ufffd")]) is None


def test_ids_are_found_by_name() -> None:
    """The way back, for positions that a case names."""
    names = judge().names
    assert (names.id("E1.1"), names.id("E2"), names.id("E3")) == ([7, 1, 1], [9, 0, -1], None)
