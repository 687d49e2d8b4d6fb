"""Printing: tables on a terminal, JSON lines in a pipe, or as `-o` says.

* `table`, and `text` of messages: for people. On a terminal nothing is wider than it; what is cut
  ends with a mark, and `--no-truncate` shows it whole; sentences are wrapped. In a pipe or a file
  nothing is cut.
* `json`: one array, empty when there is nothing. It is written as its rows come, and closed also
  where an error ends them.
* `jsonl`: an object a line.

What pulsar-admin has a form for is printed in that unless `-o` says otherwise: an answer that is
one thing is an object then, one that lists things an array of objects, or a line each.

What people read is escaped (tables.py). What is no UTF-8 stands in base64.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.tables import Row, aligned, cut, printable
from ledgerfold.storage.message_ids import id_text

if TYPE_CHECKING:
    from ledgerfold.broker.client import Message, MessageId


def add_output(parser: argparse.ArgumentParser, choices: Sequence[str]) -> None:
    people, pipe = choices[0], choices[-1]
    text = f"default: {people} on a terminal, {pipe} in a pipe"
    parser.add_argument("-o", "--output", choices=choices, help=text)
    parser.add_argument(
        "--no-truncate", action="store_true", help=f"{people} wider than the terminal"
    )


def add_answer(parser: argparse.ArgumentParser) -> None:
    """`-o`, where pulsar-admin's own form is the default."""
    choices = ("table", "json", "jsonl")
    help_ = "default: as pulsar-admin prints it"
    parser.add_argument("-o", "--output", choices=choices, help=help_)
    parser.add_argument("--no-truncate", action="store_true", help="tables wider than the terminal")


def print_answer(options: argparse.Namespace, rows: Iterable[Row], lines: Iterable[str]) -> None:
    """A list: `lines` unless `-o` was given."""
    if options.output is not None:
        print_rows(options, rows)
        return
    for line in lines:
        print(line)


def print_object(options: argparse.Namespace, row: Row, text: str | None = None) -> None:
    """One thing: `text` unless `-o` was given; None: the object, as pulsar-admin prints it."""
    match options.output:
        case "table":
            is_flat = not any(isinstance(value, dict | list) for value in row.values())
            rows = [row] if is_flat else [*_named(row)]
            print(aligned(rows, width_of(options)) if rows else "(nothing)")
        case "jsonl":
            print(to_json(row))
        case None if text is not None:
            print(text)
        case _:
            print_document(row)


def _named(document: Any, name: str = "") -> Iterator[Row]:
    """A line for each value of an object, by its path.

    >>> list(_named({"a": {"b": 1, "c": {}}, "d": [2]}))
    [{'name': 'a.b', 'value': 1}, {'name': 'a.c', 'value': '{}'}, {'name': 'd', 'value': '[2]'}]
    """
    if isinstance(document, dict) and document:
        for each, value in document.items():
            yield from _named(value, f"{name}.{each}" if name else each)
    else:
        is_plain = isinstance(document, str | int | float)
        yield {"name": name, "value": document if is_plain else to_json(document)}


def wants_table(options: argparse.Namespace) -> bool:
    chosen = getattr(options, "output", None)
    return chosen in ("table", "text") or (chosen is None and sys.stdout.isatty())


def width_of(options: argparse.Namespace) -> int | None:
    """Of the terminal that is written to. None: nothing is cut."""
    if options.no_truncate or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def print_rows(
    options: argparse.Namespace, rows: Iterable[Row], *, wrapped: Collection[str] = ()
) -> None:
    """As a table or as JSON; when `rows` ends with an error, those before it. `wrapped`: columns of
    the table that are not cut where the terminal is too narrow.
    """
    if not wants_table(options):
        with json_printer(options) as show:
            for row in rows:
                show(row)
        return
    listed: list[Row] = []
    try:
        listed.extend(rows)
    finally:
        if listed:
            print(aligned(listed, width_of(options), wrapped=wrapped))
    if not listed:
        print("(none)", file=sys.stderr)


@contextmanager
def row_printer(options: argparse.Namespace) -> Iterator[Callable[[Row], None]]:
    """What comes row by row: JSON as it comes, a table at the end."""
    if not wants_table(options):
        with json_printer(options) as show:
            yield show
        return
    listed: list[Row] = []
    try:
        yield listed.append
    finally:
        if listed:
            print(aligned(listed, width_of(options)))


@contextmanager
def json_printer(options: argparse.Namespace) -> Iterator[Callable[[Row], None]]:
    """Prints what it is given: one array, or an object a line."""
    if options.output != "json":
        yield lambda row: print(to_json(row))
        return
    before = "["

    def put(row: Row) -> None:
        nonlocal before
        indented = to_json(row, indent=2).replace("\n", "\n  ")
        print(f"{before}\n  {indented}", end="")
        before = ","

    try:
        yield put
    finally:
        print("[]" if before == "[" else "\n]")


def to_json(document: Any, indent: int | None = None) -> str:
    return json.dumps(document, indent=indent, ensure_ascii=False)


def print_document(document: Any) -> None:
    """One object, as pulsar-admin prints it."""
    print(to_json(document, indent=2))


def message_row(message: Message) -> dict[str, Any]:
    """A message as JSON."""
    offset = message.offset()
    return {
        "id": message_id_text(message.message_id()),
        **({} if offset is None else {"offset": offset}),
        **content(_key(message), message.value()),
        "tombstone": message.is_tombstone(),
        "properties": message.properties(),
        "event_time": message.event_timestamp(),
        "publish_time": message.publish_timestamp(),
        "producer": message.producer_name(),
        "sequence_id": message.sequence_id(),
    }


def content(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """Key and value of a message as JSON; None: it has none."""
    row: dict[str, Any] = {"key": None, "value": None, "tombstone": not value}
    for name, data, encoding_name in (
        ("key", key, "key_encoding"),
        ("value", value, "encoding"),
    ):
        if data is not None:
            row[name], encoding = _text(data)
            if encoding != "utf-8":
                row[encoding_name] = encoding
    return row


def message_text(message: Message, width: int | None = None) -> str:
    """id, key, value on a line."""
    data = None if message.is_tombstone() else message.data()
    line = (
        f"{message_id_text(message.message_id()):<14} {_shown(_key(message), '(no key)'):<20} "
        f"{_shown(data, '(tombstone)')}"
    )
    return cut(line, width)


def message_id_text(message_id: MessageId) -> str:
    """As every command takes it."""
    return id_text(
        message_id.ledger_id(),
        message_id.entry_id(),
        message_id.partition(),
        message_id.batch_index(),
    )


def print_id(options: argparse.Namespace, message_id: MessageId) -> None:
    text = message_id_text(message_id)
    print_object(options, {"id": text}, text)


@contextmanager
def message_printer(options: argparse.Namespace) -> Iterator[Callable[[Message], None]]:
    """Prints messages as they come."""
    if wants_table(options):
        width = width_of(options)
        yield lambda message: print(message_text(message, width))
        return
    with json_printer(options) as show:
        yield lambda message: show(message_row(message))


def _key(message: Message) -> bytes | None:
    if not message.has_key():
        return None
    return message.partition_key().encode(errors="surrogateescape")


def _text(data: bytes) -> tuple[str, str]:
    try:
        return data.decode(), "utf-8"
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _shown(data: bytes | None, absent: str) -> str:
    if data is None:
        return absent
    text, encoding = _text(data)
    return printable(text) if encoding == "utf-8" else f"base64:{text}"
