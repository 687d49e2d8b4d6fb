"""Messages in the notation, to publish or expected.

    a=1            one message, published alone          a=∅   a tombstone (null value)
    [a=1 b=2]      one batch                             a=""  an empty value
    ~=x            no key                                ""=1  the empty key
    b"k"=b"v"      bytes, of key and value               a=1@5 event time 5
    a=1{p:q r:s}   with properties                       E2.1 a=1   expected under that id

    k<n>=<n*2> for n=0..9        ten messages; + - * / % from left to right
    [k<n%3>=1 for n=0..9]        ten messages, one batch
    [a=<n> b=<n>] for n=0..9     ten batches

A placeholder for a number, `<...>`, is replaced outside of quotes only.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from tests.cases.lexer import BYTES, WORD, Cursor, Token
from tests.cases.model import Entry, Message
from tests.cases.series import Numbers, fill, parse_series, value_bytes
from tests.cases.writing import NO_KEY, NULL

Item = TypeVar("Item")


class _Draft(NamedTuple):
    """A message before its numbers are known."""

    id: Token | None
    key: Token
    value: Token
    event_time: Token | None
    properties: list[tuple[Token, Token]] | None

    def message(self, numbers: Numbers) -> Message:
        key, value = fill(self.key, numbers), fill(self.value, numbers)
        is_byte_key = self.key.kind == BYTES
        if is_byte_key:
            key = base64.b64encode(key.encode("latin-1")).decode()
        properties = None
        if self.properties is not None:
            properties = {fill(key, numbers): fill(text, numbers) for key, text in self.properties}
        return Message(
            key=None if self.key[:2] == (WORD, NO_KEY) else key,
            value=None if self.value[:2] == (WORD, NULL) else value_bytes(self.value, value),
            id=self.id and fill(self.id, numbers),
            is_byte_key=is_byte_key,
            event_time_ms=self.event_time and _number(self.event_time, numbers),
            properties=properties,
        )


def begins_messages(cursor: Cursor) -> bool:
    """Returns whether messages follow, and not a verb."""
    return cursor.sees("[") or cursor.sees_pair()


def parse_entries(cursor: Cursor) -> tuple[Entry, ...]:
    """Parses entries to be published. Raises NotationError."""
    makers: list[Callable[[Numbers], Entry]] = []
    while begins_messages(cursor):
        makers.append(_batch(cursor) if cursor.sees("[") else _plain(cursor))
    return tuple(_series(cursor, makers))


def parse_messages(cursor: Cursor) -> tuple[Message, ...]:
    """Parses expected messages. Raises NotationError."""
    makers: list[Callable[[Numbers], Message]] = []
    while cursor.sees_pair() or cursor.sees_id():
        makers.append(_draft(cursor).message)
    if cursor.sees("["):
        raise cursor.place.error("expected messages stand without brackets: E1.0 a=1 E1.1 b=1")
    return tuple(_series(cursor, makers))


def _plain(cursor: Cursor) -> Callable[[Numbers], Entry]:
    draft = _draft(cursor)
    return lambda numbers: Entry((draft.message(numbers),), is_batch=False)


def _batch(cursor: Cursor) -> Callable[[Numbers], Entry]:
    cursor.take("[")
    makers: list[Callable[[Numbers], Message]] = []
    while cursor.sees_pair():
        makers.append(_draft(cursor).message)
    if not makers:
        raise cursor.place.error("a batch has messages")
    series = parse_series(cursor)
    cursor.take("]")
    return lambda numbers: Entry(
        tuple(make(numbers | more) for more in series for make in makers), is_batch=True
    )


def _series(cursor: Cursor, makers: list[Callable[[Numbers], Item]]) -> Iterator[Item]:
    place = cursor.place
    series = parse_series(cursor)
    if not makers:
        raise place.error("messages are missing")
    for numbers in series:
        for make in makers:
            yield make(numbers)


def _draft(cursor: Cursor) -> _Draft:
    at = cursor.take(WORD) if cursor.sees_id() else None
    key = cursor.take_name()
    cursor.take("=")
    value = cursor.take_name()
    for token in (key, value):
        if token.kind == WORD and ".." in token.text:
            raise token.place.error(
                f"{token.text!r} is one text: quote it. A series: k=<n> for n=0..9"
            )
    event_time = cursor.take(WORD) if cursor.skip("@") else None
    return _Draft(at, key, value, event_time, _properties(cursor))


def _properties(cursor: Cursor) -> list[tuple[Token, Token]] | None:
    if not cursor.skip("{"):
        return None
    found = []
    while not cursor.skip("}"):
        name = cursor.take_name()
        word = name if name.kind == WORD else cursor.take(WORD)
        before, colon, text = word.text.partition(":")
        if not colon or (word is not name and before):
            raise word.place.error("a property is written name:value")
        value = word._replace(text=text) if text else cursor.take_name()
        found.append((word._replace(text=before) if word is name else name, value))
    return found


def _number(token: Token, numbers: Numbers) -> int:
    text = fill(token, numbers)
    if not text.isdecimal():
        raise token.place.error(f"{text!r} is no time in ms")
    return int(text)
