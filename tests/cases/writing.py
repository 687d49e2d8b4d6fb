r"""Answers in the notation: they can be pasted into a case.

>>> from tests.cases.model import Message
>>> print(message_text(Message("a b", b"\xff", id="E2", properties={"p": "q"})))
E2 "a b"=b"\xff"{p:q}
>>> print(word("y" * 99), word("nothing"), word("E0"))
"y"*99 "nothing" E0
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.cases.model import Message

NO_KEY, NULL = "~", "∅"
# The number of characters of a text that are shown, if it need not be pasted.
SHORT = 60
_PLAIN = re.compile(r'[^\s,;|\[\]{}"=@<>\\]+')
# Texts that have another meaning without quotes.
_MEANING = frozenset(
    [
        "for",
        "with",
        "as",
        "nothing",
        "any-order",
        "at-least",
        "error",
        "same",
        "other",
        "part",
        "contains",
    ]
) | {NO_KEY, NULL}
_ESCAPES = {"\n": r"\n", "\t": r"\t", "\0": r"\0", '"': r"\"", "\\": r"\\"}
_UNIT_MAX, _TIMES_MIN = 16, 8


def message_text(message: Message, limit: int | None = None) -> str:
    """Formats a message, with its id if it has one. `limit`: longer texts are cut, with their
    length.
    """
    value = NULL if message.value is None else bytes_word(message.value, limit)
    text = f"{_key(message, limit)}={value}"
    if message.event_time_ms:
        text += f"@{message.event_time_ms}"
    if message.properties:
        pairs = message.properties.items()
        text += "{" + " ".join(f"{_name(name)}:{word(each)}" for name, each in pairs) + "}"
    return text if message.id is None else f"{message.id} {text}"


def _key(message: Message, limit: int | None) -> str:
    if message.key is None:
        return NO_KEY
    if message.is_byte_key:
        return _bytes(base64.b64decode(message.key), limit)
    return word(message.key, limit)


def bytes_word(value: bytes, limit: int | None = None) -> str:
    """Formats bytes as a text if possible."""
    try:
        return word(value.decode(), limit)
    except UnicodeDecodeError:
        return _bytes(value, limit)


def _bytes(content: bytes, limit: int | None) -> str:
    return "b" + _quoted(content.decode("latin-1"), limit, is_bytes=True)


def _name(text: str) -> str:
    """Formats the name of a property, which a colon follows."""
    return _quoted(text, None) if ":" in text else word(text)


def word(text: str, limit: int | None = None) -> str:
    """Formats a word, with quotes if needed."""
    is_plain = _PLAIN.fullmatch(text) and text.isprintable() and ".." not in text
    if is_plain and text not in _MEANING and len(text) <= SHORT:
        return text
    return _quoted(text, limit)


def _quoted(text: str, limit: int | None, *, is_bytes: bool = False) -> str:
    unit = _unit(text) if len(text) > SHORT else text
    if unit != text:
        return f'"{_escaped(unit, is_bytes)}"*{len(text) // len(unit)}'
    if limit is not None and len(text) > limit:
        return f'"{_escaped(text[:limit], is_bytes)}"...({len(text)})'
    return f'"{_escaped(text, is_bytes)}"'


def _unit(text: str) -> str:
    """Returns the unit that the text repeats; the text itself if it repeats none."""
    for length in range(1, min(_UNIT_MAX, len(text) // _TIMES_MIN) + 1):
        if len(text) % length == 0 and text == text[:length] * (len(text) // length):
            return text[:length]
    return text


def _escaped(text: str, is_bytes: bool) -> str:
    return "".join(_escape(each, is_bytes) for each in text)


def _escape(each: str, is_bytes: bool) -> str:
    if each in _ESCAPES:
        return _ESCAPES[each]
    if each.isprintable() and not (is_bytes and ord(each) > 127):
        return each
    code = ord(each)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else each
