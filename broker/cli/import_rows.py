"""The rows of a file that is imported: lines of CSV, or JSON lines.

    >>> [row] = read_rows([b'{"id": 1.10, "n": [1,  2]}'], "jsonl", ["id"])
    >>> row.texts["id"], row.content
    ('1.10', b'{"id": 1.10, "n": [1,  2]}')

Nothing is read into numbers and written anew: a JSON line is published byte for byte, and the text
of a field is what stands there (a string without its quotes and escapes). A CSV row becomes JSON
whose values are texts. Files are UTF-8, with or without a byte order mark.

What is wrong with a row stands in its place, as the error; whoever reads may go on behind it.
"""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, NoReturn

from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.words import counted

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
# More than a message may hold; the csv module's own limit is 128 KiB.
_FIELD_CHARACTERS_MAX = 16 * 1024 * 1024
_SPACE = re.compile(r"[ \t\r\n]*")


class Row(NamedTuple):
    """`line` is where it begins in the file, from 1. A text that is None stands for a null."""

    line: int
    texts: Mapping[str, str | None]
    # The row as JSON.
    content: bytes


Rows = Iterator[Row | InvalidRequest]


def read_rows(lines: Iterable[bytes], format_: str, wanted: Sequence[str]) -> Rows:
    """The rows of a file. Raises InvalidRequest when a CSV file's header is not usable.

    A CSV file must have the `wanted` fields; a row of JSON may do without, but names none twice.
    """
    unmarked = _unmarked(lines)
    return _csv_rows(unmarked, wanted) if format_ == "csv" else _json_rows(unmarked, wanted)


def _unmarked(lines: Iterable[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(lines, 1):
        yield line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line


# CSV


def _csv_rows(lines: Iterable[bytes], wanted: Sequence[str]) -> Rows:
    csv.field_size_limit(_FIELD_CHARACTERS_MAX)
    # What is no UTF-8 is found row by row: one such must not end the reading.
    texts = (line.decode(errors="surrogateescape") for line in lines)
    reader = csv.reader(texts, strict=True)
    names: list[str] = []
    while True:
        # A quoted field may go over several lines.
        line = reader.line_num + 1
        wrong: InvalidRequest | None
        try:
            values = next(reader, None)
        except csv.Error as error:
            values, wrong = [], InvalidRequest(f"Line {line} is no CSV: {error}.")
        else:
            wrong = None if values is None else _wrong_values(line, values, names)
        if values is None:
            return
        if wrong is not None:
            if not names:
                raise wrong
            yield wrong
        elif values and not names:
            names = _checked_header(line, values, wanted)
        elif values:
            fields = dict(zip(names, values, strict=True))
            yield Row(line, fields, _json(fields))


def _wrong_values(line: int, values: list[str], names: list[str]) -> InvalidRequest | None:
    wrong = _wrong_bytes(line, "\n".join(values).encode(errors="surrogateescape"))
    if wrong is None and values and names and len(values) != len(names):
        has = counted(len(values), "field")
        return InvalidRequest(f"Line {line} has {has}, and the header has {len(names)}.")
    return wrong


def _checked_header(line: int, names: list[str], wanted: Sequence[str]) -> list[str]:
    for name in wanted:
        if name not in names:
            raise InvalidRequest(f"Line {line} names no field {name!r}, only {', '.join(names)}.")
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"Line {line} names the field {name!r} twice.")
    return names


def _json(fields: dict[str, str]) -> bytes:
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


# JSON lines


def _json_rows(lines: Iterable[bytes], wanted: Sequence[str]) -> Rows:
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _json_row(number, line.rstrip(b"\r\n"), wanted)


def _json_row(number: int, line: bytes, wanted: Sequence[str]) -> Row | InvalidRequest:
    wrong = _wrong_bytes(number, line)
    if wrong is not None:
        return wrong
    text = line.decode()
    try:
        if not isinstance(_EXACT.decode(text), dict):
            return InvalidRequest(f"Line {number} is no JSON object.")
        fields = list(_fields(text))
    except (ValueError, RecursionError) as error:
        return InvalidRequest(f"Line {number} is no JSON: {error}.")
    names = [name for name, _ in fields]
    for name in wanted:
        if names.count(name) > 1:
            return InvalidRequest(f"Line {number} names the field {name!r} twice.")
    return Row(number, dict(fields), line)


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


# Numbers stay as they are written. (Python's limits and roundings have no say.)
_EXACT = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_refuse)


def _fields(text: str) -> Iterator[tuple[str, str | None]]:
    """Of a line that is known to be an object: names, and texts as they stand there."""
    at = _next(text, text.index("{") + 1)
    while text[at] == '"':
        name, at = _EXACT.raw_decode(text, at)
        # Behind the colon.
        begin = _next(text, _next(text, at) + 1)
        value, end = _EXACT.raw_decode(text, begin)
        yield name, _text(value, text[begin:end])
        # Behind the comma, or the closing brace.
        at = _next(text, _next(text, end) + 1)
        if at == len(text):
            return


def _next(text: str, at: int) -> int:
    """Where the next thing stands that is no space."""
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
        what = f"the byte 0x{error.object[error.start]:02x}, {error.reason}"
        return InvalidRequest(f"Line {line} is no UTF-8: {what}.")
    return None


@contextmanager
def opened(name: str) -> Iterator[IO[bytes]]:
    """A file, or standard input for "-"."""
    if name == "-":
        yield sys.stdin.buffer
    else:
        with absolute_path(name).open("rb") as file:
            yield file
