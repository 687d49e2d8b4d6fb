"""Tokens of the notation: texts, bytes, words, and errors that say where."""

from __future__ import annotations

import doctest

import pytest

from tests.cases import lexer
from tests.cases.lexer import BYTES, TEXT, WORD, NotationError, Token, as_written, tokens


def lex(line: str) -> list[Token]:
    return tokens(line, 3, 5, "a.cases")


def test_the_docstring_example_is_true() -> None:
    """Runs the example in the docstring."""
    assert doctest.testmod(lexer).failed == 0


@pytest.mark.parametrize(
    ("line", "kind", "text"),
    [
        ("a-b.c:d", WORD, "a-b.c:d"),
        ("k<n%3+1>", WORD, "k<n%3+1>"),
        ('"a b"', TEXT, "a b"),
        ('""', TEXT, ""),
        (r'"\n\t\0\x41\"\\"', TEXT, '\n\t\0A"\\'),
        ('"ab"*3', TEXT, "ababab"),
        (r'b"\xff"', BYTES, "\xff"),
        ("∅", WORD, "∅"),
        (">=", ">=", ">="),
        ("->", "->", "->"),
    ],
)
def test_each_kind_of_token(line: str, kind: str, text: str) -> None:
    """Each way to write one."""
    (token,) = lex(line)
    assert (token.kind, token.text) == (kind, text)


def test_a_word_ends_before_an_arrow_but_not_at_a_dash() -> None:
    """`roll+trim->` is a word and an arrow."""
    assert [token.text for token in lex("roll+trim->x")] == ["roll+trim", "->", "x"]


def test_separators_outside_of_quotes() -> None:
    """But in quotes."""
    assert [token.kind for token in lex('a=1, b="x,;"; c')] == [
        *(WORD, "=", WORD, WORD, "=", TEXT, "|", WORD)
    ]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('a="x', "a.cases:3:7: a text without its closing quote"),
        (r'"\q"', r"a.cases:3:5: \q in a text"),
        ('b"ä€"', "a.cases:3:5: bytes are ASCII"),
    ],
)
def test_errors_state_their_place(line: str, message: str) -> None:
    """With source, line and column."""
    with pytest.raises(NotationError) as error:
        lex(line)
    assert str(error.value).startswith(message)


def test_a_step_is_shown_as_it_was_written() -> None:
    """Quotes and spaces are kept; a line's end is one space."""
    first = tokens('[a="x y" b=1]   with', 1, 1, "-")
    assert as_written(first + tokens("queue=1", 2, 8, "-")) == '[a="x y" b=1] with queue=1'
