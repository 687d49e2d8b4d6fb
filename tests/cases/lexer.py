"""The notation's tokens, and the error with the position of a mistake.

    >>> [token.text for token in tokens('a=1@5 [b="x y"] | RC-read -> E0 a=1', 1, 1, "-")]
    ['a', '=', '1', '@', '5', '[', 'b', '=', 'x y', ']', '|', 'RC-read', '->', 'E0', 'a', '=', '1']

Quoted text may contain anything: \\n \\t \\0 \\xHH \\uHHHH \\" \\\\ are escapes, `b"..."` is bytes,
and `"ab"*100` is the text a hundred times. Outside of quotes a comma is a space, and a semicolon a
bar, so that the catalogue's sentences can be copied.
"""

from __future__ import annotations

import re
from typing import NamedTuple

WORD, TEXT, BYTES = "word", "text", "bytes"
_TOKEN = re.compile(
    r"""(?P<space>[\s,]+)
      | (?P<text>b?"(?:\\.|[^"\\])*"(?:\*\d+)?)
      | (?P<mark>->|>=|<=|[|;]|\[|\]|\{|\}|=|@)
      | (?P<word>(?:<[^<>|\s]*>|-(?!>)|[^\s,;|\[\]{}"=@<>-])+)
      | (?P<order>[<>])
    """,
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|.)")
_ESCAPED = {"n": "\n", "t": "\t", "0": "\0", '"': '"', "\\": "\\"}


class NotationError(Exception):
    """A text that is not a case: `source`:`line`:`column`: `message`. Lines and columns from 1."""

    def __init__(self, message: str, source: str, line: int, column: int) -> None:
        super().__init__(f"{source}:{line}:{column}: {message}")
        self.message, self.source, self.line, self.column = message, source, line, column


class Place(NamedTuple):
    source: str
    line: int
    column: int

    def error(self, message: str) -> NotationError:
        return NotationError(message, *self)


class Token(NamedTuple):
    """`kind`: WORD; TEXT and BYTES, without their quotes; otherwise a mark, which is a kind by
    itself.

    `raw` is the text as written.
    """

    kind: str
    text: str
    place: Place
    raw: str

    @property
    def is_name(self) -> bool:
        return self.kind in (WORD, TEXT, BYTES)


def tokens(line: str, number: int, column: int, source: str) -> list[Token]:
    """Returns the tokens of one line that begins at `column`. Raises NotationError."""
    found, at = [], 0
    while at < len(line):
        place = Place(source, number, column + at)
        match = _TOKEN.match(line, at)
        if match is None:
            raise place.error(
                "a text without its closing quote" if line[at] == '"' else f"{line[at]!r} here"
            )
        at = match.end()
        text = match.group()
        if match.lastgroup == "text":
            found.append(_quoted(text, place))
        elif match.lastgroup == "word":
            found.append(Token(WORD, text, place, text))
        elif match.lastgroup != "space":
            found.append(Token("|" if text == ";" else text, text, place, text))
    return found


def _quoted(text: str, place: Place) -> Token:
    opened, closed = text.index('"'), text.rindex('"')

    def unescape(match: re.Match[str]) -> str:
        code = match.group(1)
        if len(code) > 1:
            return chr(int(code[1:], 16))
        if code not in _ESCAPED:
            raise place.error(f'\\{code} in a text; there are \\n \\t \\0 \\xHH \\uHHHH \\" \\\\')
        return _ESCAPED[code]

    inner = _ESCAPE.sub(unescape, text[opened + 1 : closed])
    if opened and any(ord(each) > 255 for each in inner):
        raise place.error("bytes are ASCII, or written \\xHH")
    times = int(text[closed + 2 :] or 1)
    return Token(BYTES if opened else TEXT, inner * times, place, text)


class Cursor:
    """A walk over the tokens of one step. `end` is where the step ends, for errors."""

    def __init__(self, found: list[Token], end: Place) -> None:
        self._tokens, self._at, self._end = found, 0, end

    @property
    def place(self) -> Place:
        return self._end if self.is_done else self._tokens[self._at].place

    @property
    def is_done(self) -> bool:
        return self._at == len(self._tokens)

    def sees(self, kind: str) -> bool:
        """Returns whether the next token is of this kind, or is this word."""
        if self.is_done:
            return False
        token = self._tokens[self._at]
        return token.kind == kind or (token.kind == WORD and token.text == kind)

    def sees_pair(self, skipped: int = 0) -> bool:
        """Returns whether `name=` follows, after this number of tokens."""
        at = self._at + skipped
        following = self._tokens[at : at + 2]
        return len(following) == 2 and following[0].is_name and following[1].kind == "="

    def sees_id(self) -> bool:
        """Returns whether the name of an entry and a message follow, as in `E2.1 a=1`."""
        return self.sees(WORD) and self.sees_pair(1) and self._tokens[self._at].text[0] == "E"

    def sees_count(self) -> bool:
        """Returns whether `10 messages` or `10 records` follows."""
        words = [token.text for token in self._tokens[self._at : self._at + 2]]
        return len(words) == 2 and words[0].isdecimal() and words[1] in ("messages", "records")

    def peek(self) -> Token:
        """Returns the next token without consuming it. There must be one."""
        return self._tokens[self._at]

    def take(self, kind: str = "") -> Token:
        """Consumes and returns the next token. Raises NotationError if there is none, or if it is
        not a `kind`.
        """
        if self.is_done:
            raise self._end.error(f"the step ends here; {kind or 'more'} is missing")
        token = self._tokens[self._at]
        if kind and not self.sees(kind):
            raise token.place.error(f"{token.text!r} where {kind} is expected")
        self._at += 1
        return token

    def take_name(self) -> Token:
        """Consumes and returns the next token, a word or a quoted text."""
        if not self.is_done and self._tokens[self._at].is_name:
            return self.take()
        return self.take(WORD)

    def skip(self, kind: str) -> bool:
        """Consumes the next token if it is a `kind`."""
        if not self.sees(kind):
            return False
        self._at += 1
        return True


def as_written(found: list[Token]) -> str:
    """Returns the tokens as written; line ends become one space."""
    shown = ""
    for before, token in zip([None, *found], found, strict=False):
        end = before and before.place._replace(column=before.place.column + len(before.raw))
        shown += token.raw if before is None or token.place == end else " " + token.raw
    return shown
