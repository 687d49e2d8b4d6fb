"""Tests that printed cases can be parsed again."""

from __future__ import annotations

import base64
import doctest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import writing
from tests.cases.compare import Judge, Names
from tests.cases.lexer import tokens
from tests.cases.model import Message, Messages, Value
from tests.cases.parser import parse
from tests.cases.writing import message_text, word

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ODD = st.sampled_from(
    ["~", "∅", "for", "nothing", "E0", "a..b", "ключ", "漢字", "a\u2028b", "\x85", "<n>", "ab" * 90]
)
MESSAGES = st.builds(
    Message,
    key=st.none() | TEXTS | ODD,
    value=st.none() | st.binary(max_size=20) | (TEXTS | ODD).map(str.encode),
    id=st.none() | st.sampled_from(["E0", "E12.3"]),
    event_time_ms=st.none() | st.integers(1, 2**63 - 1),
    properties=st.none() | st.dictionaries(TEXTS, TEXTS, min_size=1, max_size=3),
)


def expected(text: str) -> Any:
    (case,) = parse(f"ABC-01 T\n    RC-read -> {text}\n")
    return case.steps[0].expected


def test_the_docstring_examples_are_true() -> None:
    """Runs the examples in the docstring."""
    assert doctest.testmod(writing).failed == 0


@given(st.lists(MESSAGES, min_size=1, max_size=3))
def test_printed_messages_can_be_parsed(messages: list[Message]) -> None:
    """Tests any keys, values and properties."""
    assert expected("  ".join(map(message_text, messages))) == Messages(tuple(messages))


@given(st.binary(max_size=20), st.binary(max_size=20))
def test_printed_bytes_can_be_parsed(key: bytes, value: bytes) -> None:
    """Tests keys written as bytes, too."""
    message = Message(base64.b64encode(key).decode(), value, is_byte_key=True)
    assert expected(message_text(message)) == Messages((message,))


@given(TEXTS | ODD)
def test_printed_text_can_be_parsed(text: str) -> None:
    """As one token."""
    (token,) = tokens(word(text), 1, 1, "-")
    assert (token.is_name, token.text) == (True, text)


@pytest.mark.parametrize(
    "answer",
    ["", "a text", "nothing", "error", "SUCCESS", "7:1 or so", 5, 1.5, True, None, {"a": [1, "é"]}],
)
def test_printed_values_can_be_parsed(answer: Any) -> None:
    """They equal the answers, as a case judges them."""
    judge = Judge(Names(), {})
    wanted = expected(judge.write(answer))
    assert isinstance(wanted, Value)
    assert judge.differs(wanted, answer) is None


def test_bytes_are_told_apart_from_text() -> None:
    """They are shown as bytes if the broker distinguishes them."""
    came = {"id": [7, 0, -1], "key": "k", "value": "\ufffd", "valueB64": "/w=="}
    names = Names()
    names.add([7, 0, -1])
    judge = Judge(names, {})
    assert judge.write([came]) == r'E0 k=b"\xff"'
    assert judge.differs(expected(r'k=b"\xff"'), [came]) is None
    assert judge.differs(expected(r'k=b"\xfe"'), [came]) is not None
