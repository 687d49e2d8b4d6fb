"""Series: text that is written once, and stands for many: `k<n>=<n*2> for n=0..9`.

>>> from tests.cases.lexer import Cursor, Place, tokens
>>> name, *rest = tokens("k<n*7%10> for n=2..3", 1, 1, "-")
>>> [fill(name, numbers) for numbers in parse_series(Cursor(rest, name.place))]
['k4', 'k1']
"""

from __future__ import annotations

import re

from tests.cases.lexer import BYTES, WORD, Cursor, Token

_PLACE = re.compile(r"<([^<>]*)>")
_TERM = re.compile(r"[+\-*/%]|[^+\-*/%]+")
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)")
Numbers = dict[str, int]


def parse_series(cursor: Cursor) -> list[Numbers]:
    """Parses `for n=0..9`, if present."""
    if not cursor.skip("for"):
        return [{}]
    name = cursor.take(WORD).text
    cursor.take("=")
    bounds = cursor.take(WORD)
    match = _RANGE.fullmatch(bounds.text)
    if match is None:
        raise bounds.place.error(f"{bounds.text!r} is no range; write it as 0..9")
    first, last = map(int, match.groups())
    return [{name: number} for number in range(first, last + 1)]


def value_bytes(token: Token, text: str) -> bytes:
    """Returns the bytes of the token, which has become this text."""
    return text.encode("latin-1" if token.kind == BYTES else "utf-8")


def fill(token: Token, numbers: Numbers) -> str:
    """Returns the token's text with its numbers inserted."""
    if token.kind != WORD:
        return token.text
    return _PLACE.sub(lambda match: str(_evaluate(match.group(1), token, numbers)), token.text)


def _evaluate(text: str, token: Token, numbers: Numbers) -> int:
    """Evaluates `n*7%10` from left to right."""
    terms = _TERM.findall(text)
    if len(terms) % 2 == 0:
        raise token.place.error(f"<{text}> is no arithmetic")
    result = _term(terms[0], token, numbers)
    for sign, term in zip(terms[1::2], terms[2::2], strict=True):
        right = _term(term, token, numbers)
        match sign:
            case "+":
                result += right
            case "-":
                result -= right
            case "*":
                result *= right
            case "/":
                result //= right
            case "%":
                result %= right
            case _:
                raise token.place.error(f"<{text}> is no arithmetic")
    return result


def _term(text: str, token: Token, numbers: Numbers) -> int:
    if text in numbers:
        return numbers[text]
    if not text.isdecimal():
        raise token.place.error(f"<{text}>: no `for` gives {text!r} a number")
    return int(text)
