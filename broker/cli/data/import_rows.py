"""The rows of an imported file: CSV rows, or JSON lines.

    >>> [row] = read_rows([b'{"id": 1.10, "n": [1,  2]}'], "jsonl", ["id"])
    >>> row.texts["id"], row.content
    ('1.10', b'{"id": 1.10, "n": [1,  2]}')

Numbers are not parsed: a JSON line is published byte for byte. The text of a field is its exact
text (a string without its quotes and escapes). A CSV row becomes a JSON object of strings. Files
are UTF-8, with or without a byte order mark.

For an invalid row the reader yields an error in its place; the caller may continue after it.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import IO, Any, NamedTuple, NoReturn, cast

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.text import counted

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# More than a message can hold; the csv module's default limit is 128 KiB.
_FIELD_CHARACTERS_MAX = 16 * 1024 * 1024
# Each read lets another thread take the interpreter.
_READ_BYTES = 1024 * 1024
_SPACE = re.compile(r"[ \t\r\n]*")


class Row(NamedTuple):
    """A row. `line`: its first line in the file, from 1. A text of None is a null."""

    line: int
    texts: Mapping[str, str | None]
    # The row as JSON.
    content: bytes


Rows = Iterator[Row | InvalidRequest]


def read_rows(lines: Iterable[bytes], format_: str, columns: Sequence[str]) -> Rows:
    """Yields the rows of a file. Raises InvalidRequest for an unusable header of a CSV file.

    A CSV file must have the `columns` fields; a JSON row may lack them, but must not repeat one.
    """
    unmarked = _unmarked(lines)
    return _csv_rows(unmarked, columns) if format_ == "csv" else _json_rows(unmarked, columns)


def _unmarked(lines: Iterable[bytes]) -> Iterator[bytes]:
    rest = iter(lines)
    first = [line.removeprefix(_BYTE_ORDER_MARK) for line in islice(rest, 1)]
    return chain(first, rest)


# CSV


def _csv_rows(lines: Iterable[bytes], columns: Sequence[str]) -> Rows:
    csv.field_size_limit(_FIELD_CHARACTERS_MAX)
    # Invalid UTF-8 is reported per row: it must not end the reading.
    texts = (line.decode(errors="surrogateescape") for line in lines)
    reader = csv.reader(texts, strict=True)
    names: list[str] = []
    while True:
        # A quoted field may span several lines.
        line = reader.line_num + 1
        wrong: InvalidRequest | None
        try:
            values = next(reader, None)
        except csv.Error as error:
            values, wrong = [], InvalidRequest(f"Line {line} is not valid CSV: {error}.")
        else:
            wrong = None if values is None else _wrong_values(line, values, names)
        if values is None:
            return
        if wrong is not None:
            if not names:
                raise wrong
            yield wrong
        elif values and not names:
            names = _checked_header(line, values, columns)
        elif values:
            fields = dict(zip(names, values, strict=True))
            yield Row(line, fields, _json(fields))


def _wrong_values(line: int, values: list[str], names: list[str]) -> InvalidRequest | None:
    wrong = _wrong_bytes(line, "\n".join(values).encode(errors="surrogateescape"))
    if wrong is None and values and names and len(values) != len(names):
        has = counted(len(values), "field")
        return InvalidRequest(f"Line {line} has {has}, and the header has {len(names)}.")
    return wrong


def _checked_header(line: int, names: list[str], columns: Sequence[str]) -> list[str]:
    for name in columns:
        if name not in names:
            raise InvalidRequest(f"Line {line} has no field {name!r}, only {', '.join(names)}.")
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"Line {line} has the field {name!r} twice.")
    return names


def _json(fields: dict[str, str]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


# JSON lines


def _json_rows(lines: Iterable[bytes], columns: Sequence[str]) -> Rows:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _json_row(number, line.rstrip(b"\r\n"), columns)


def _json_row(number: int, line: bytes, columns: Sequence[str]) -> Row | InvalidRequest:
    try:
        text = line.decode()
        fields = _fields_at_start(text)
        if fields is None:
            # Spaces around it, or not an object, or not JSON.
            fields = _EXACT.decode(text)
        if type(fields) is not tuple:
            return InvalidRequest(f"Line {number} is not a JSON object.")
        texts = dict(fields)
        if not _NESTED.isdisjoint(map(type, texts.values())):
            texts = dict(_fields(text))
    except UnicodeDecodeError as error:
        return _not_utf8(number, error)
    except (ValueError, RecursionError) as error:
        return InvalidRequest(f"Line {number} is not valid JSON: {error}.")
    if len(texts) < len(fields):
        names = [name for name, _ in fields]
        for name in columns:
            if names.count(name) > 1:
                return InvalidRequest(f"Line {number} has the field {name!r} twice.")
    return Row(number, texts, line)


def _fields_at_start(text: str) -> Any:
    """Returns the fields of a text that is an object, without spaces around it; None otherwise."""
    try:
        # In half the time of raw_decode().
        fields, end = _SCAN(text, 0)
    except StopIteration:
        return None
    return fields if end == len(text) else None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


# Objects are tuples of their pairs, which may have a name twice. Numbers keep their text: Python's
# limits and rounding do not apply.
_EXACT = json.JSONDecoder(
    object_pairs_hook=tuple, parse_int=str, parse_float=str, parse_constant=_refuse
)
_SCAN: Callable[[str, int], tuple[Any, int]] = cast(Any, _EXACT).scan_once
# The types of values whose texts are parts of the line; the others are their texts, or None.
_NESTED = {bool, list, tuple}


def _fields(text: str) -> Iterator[tuple[str, str | None]]:
    """Yields the names and exact texts of the fields of a line that is an object."""
    at = _next(text, text.index("{") + 1)
    while text[at] == '"':
        name, at = _EXACT.raw_decode(text, at)
        # The value begins after the colon.
        begin = _next(text, _next(text, at) + 1)
        value, end = _EXACT.raw_decode(text, begin)
        yield name, _text(value, text[begin:end])
        # The next token follows the comma, or is the end after the brace.
        at = _next(text, _next(text, end) + 1)
        if at == len(text):
            return


def _next(text: str, at: int) -> int:
    """Returns the position of the next character that is not a space."""
    match = _SPACE.match(text, at)
    assert match is not None
    return match.end()


def _text(value: Any, raw: str) -> str | None:
    if value is None:
        return None
    return value if raw[0] == '"' else raw


def _wrong_bytes(line: int, content: bytes) -> InvalidRequest | None:
    try:
        content.decode()
    except UnicodeDecodeError as error:
        return _not_utf8(line, error)
    return None


def _not_utf8(line: int, error: UnicodeDecodeError) -> InvalidRequest:
    what = f"the byte 0x{error.object[error.start]:02x}, {error.reason}"
    return InvalidRequest(f"Line {line} is not valid UTF-8: {what}.")


@contextmanager
def opened(name: str) -> Iterator[IO[bytes]]:
    """Opens a file, or standard input for "-"."""
    if name == "-":
        yield sys.stdin.buffer
    else:
        with absolute_path(name).open("rb", buffering=_READ_BYTES) as file:
            yield file
