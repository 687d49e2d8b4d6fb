"""Output formats: tables on a terminal, JSON lines in a pipe, or as `-o` selects.

* `table`, and `text` for messages: for people. On a terminal, lines are cut at its width, with a
  mark, unless `--no-truncate` is given; sentences are wrapped. In a pipe or a file nothing is cut.
* `json`: one array, `[]` without results. It is written row by row, and closed even after an error.
* `jsonl`: one object per line.

Verbs of pulsar-admin use its output format unless `-o` is given: with `-o`, a single result is an
object, and a list is an array of objects, or one object per line.

Text for people is escaped (tables.py). Data that is not valid UTF-8 is shown in base64.
"""

from __future__ import annotations

import argparse
import base64
import json
import shutil
import sys
from codecs import getincrementaldecoder
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.tables import Row, aligned, cut, printable
from ledgerfold.broker.cli.verbs import Argument, argument, flag, together
from ledgerfold.storage.decoded import decoded_key
from ledgerfold.storage.message_ids import id_text

if TYPE_CHECKING:
    from ledgerfold.broker.client import Message, MessageId


def output(*choices: str) -> Argument:
    """Describes `-o` of a verb with the formats `choices`: the first is for people, the last for
    pipes.
    """
    people, pipe = choices[0], choices[-1]
    return _output(choices, f"default: {people} on a terminal, {pipe} in a pipe", people)


def _output(choices: Sequence[str], help_: str, cut_: str) -> Argument:
    return together(
        argument("-o --output", help_, choices=choices),
        flag("--no-truncate", f"do not cut {cut_} at the terminal's width"),
    )


FORMATS = ("table", "json", "jsonl")
ROWS = output(*FORMATS)
DOCUMENT = output("table", "jsonl", "json")
# The default is pulsar-admin's format.
ANSWER = _output(FORMATS, "default: pulsar-admin's format", "tables")
MESSAGES = _output(("text", "json", "jsonl"), "default: pulsar-admin's format", "lines of text")


def print_answer(options: argparse.Namespace, rows: Iterable[Row], lines: Iterable[str]) -> None:
    """Prints a list: `lines` unless `-o` was given."""
    if options.output is not None:
        print_rows(options, rows)
        return
    for line in lines:
        print(line)


def print_object(options: argparse.Namespace, row: Row, text: str | None = None) -> None:
    """Prints one object: `text` unless `-o` was given; `text` None: as pulsar-admin's JSON."""
    match options.output:
        case "table":
            is_flat = not any(isinstance(value, dict | list) for value in row.values())
            rows = [row] if is_flat else [*_named_rows(row)]
            print(aligned(rows, width_of(options)) if rows else "(nothing)")
        case "jsonl":
            print(to_json(row))
        case None if text is not None:
            print(text)
        case _:
            print_document(row)


def _named_rows(document: Any, name: str = "") -> Iterator[Row]:
    """Yields a row for each value of an object, named by its path.

    >>> list(_named_rows({"a": {"b": 1, "c": {}}, "d": [2]}))
    [{'name': 'a.b', 'value': 1}, {'name': 'a.c', 'value': '{}'}, {'name': 'd', 'value': '[2]'}]
    """
    if isinstance(document, dict) and document:
        for each, value in document.items():
            yield from _named_rows(value, f"{name}.{each}" if name else each)
    else:
        is_plain = isinstance(document, str | int | float)
        yield {"name": name, "value": document if is_plain else to_json(document)}


def wants_table(options: argparse.Namespace) -> bool:
    chosen = getattr(options, "output", None)
    return chosen in ("table", "text") or (chosen is None and sys.stdout.isatty())


def width_of(options: argparse.Namespace) -> int | None:
    """Returns the width of the output terminal. None: nothing is cut."""
    if options.no_truncate or not sys.stdout.isatty():
        return None
    return shutil.get_terminal_size().columns


def print_rows(
    options: argparse.Namespace, rows: Iterable[Row], *, wrapped: Collection[str] = ()
) -> None:
    """Prints rows as a table or as JSON. If `rows` raises, the rows before the error are printed.

    `wrapped`: columns of the table that are wrapped instead of cut.
    """
    is_empty = True
    with row_printer(options, wrapped=wrapped) as show:
        for row in rows:
            show(row)
            is_empty = False
    if is_empty and wants_table(options):
        print("(none)", file=sys.stderr)


@contextmanager
def row_printer(
    options: argparse.Namespace, *, wrapped: Collection[str] = ()
) -> Iterator[Callable[[Row], None]]:
    """Yields a function that prints a row: JSON immediately, a table at the end."""
    listed: list[Row] = []
    try:
        with printer(options, listed.append) as show:
            yield show
    finally:
        if listed:
            print(aligned(listed, width_of(options), wrapped=wrapped))


@contextmanager
def printer(
    options: argparse.Namespace, print_row: Callable[[Row], None]
) -> Iterator[Callable[[Row], None]]:
    """Yields a function that prints a row immediately: JSON, or for people by `print_row`."""
    if wants_table(options):
        yield print_row
        return
    with json_printer(options) as show:
        yield show


@contextmanager
def json_printer(options: argparse.Namespace) -> Iterator[Callable[[Row], None]]:
    """Yields a function that prints a row as JSON: in one array, or one object per line."""
    if options.output != "json":
        write = sys.stdout.write

        def put_line(row: Row) -> None:
            write(f"{to_json(row)}\n")

        yield put_line
        return
    before = "["

    def put(row: Row) -> None:
        nonlocal before
        indented = _indented(row).replace("\n", "\n  ")
        print(f"{before}\n  {indented}", end="")
        before = ","

    try:
        yield put
    finally:
        print("[]" if before == "[" else "\n]")


def to_json(document: Any) -> str:
    """Returns a document as JSON, in one line."""
    # Imported here, because `ledgerfold --help` does not need it.
    import orjson

    try:
        return orjson.dumps(document).decode()
    except TypeError:
        # Arguments that are not UTF-8, which the output escapes (main.py).
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def _indented(document: Any) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False)


def print_document(document: Any) -> None:
    """Prints one object, as pulsar-admin does."""
    print(_indented(document))


def message_row(message: Message) -> dict[str, Any]:
    """Returns a message as JSON. Errors are those of its entry's batch."""
    # NOTE: reads the entry that the message is a row of: by the methods of the message it would
    # take three times as long.
    entry, row = message
    header, (batch, at) = entry.header_of(row), entry.decoded(row)
    ledger_id, entry_id, index = entry.identity(row)
    shown: dict[str, Any] = {"id": id_text(ledger_id, entry_id, entry.partition, index)}
    offset = entry.offset(row)
    if offset is not None:
        shown["offset"] = offset
    key = batch.key(at)
    if key is not None and batch.key_is_base64(at):
        key = decoded_key(key)
    _add_content(shown, key, None if batch.is_null(at) else message.data())
    shown["tombstone"] = entry.is_tombstone(row)
    shown["properties"] = batch.properties(at)
    shown["event_time"] = batch.event_time_ms(at)
    shown["publish_time"] = header.publish_time_ms
    shown["producer"] = batch.producer_name
    # Only records of a Kafka topic may have no producer, and then they have no number.
    is_numbered = offset is None or batch.producer_name != ""
    shown["sequence_id"] = batch.sequence_id(at) if is_numbered else None
    return shown


def content(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    """Returns key and value of a message as JSON; `key` None: no key."""
    row: dict[str, Any] = {}
    _add_content(row, key, value)
    return row


def _add_content(row: dict[str, Any], key: bytes | None, value: bytes | None) -> None:
    row["key"], key_encoding = (None, None) if key is None else decoded(key)
    row["value"], encoding = (None, None) if value is None else decoded(value)
    row["tombstone"] = not value
    if key_encoding is not None:
        row["key_encoding"] = key_encoding
    if encoding is not None:
        row["encoding"] = encoding


def message_text(message: Message, width: int | None = None) -> str:
    """Returns a line with id, key and value."""
    data = None if message.is_tombstone() else message.data()
    line = (
        f"{message_id_text(message.message_id()):<14} {_shown(_key(message), '(no key)'):<20} "
        f"{_shown(data, '(tombstone)')}"
    )
    return cut(line, width)


def message_id_text(message_id: MessageId) -> str:
    """Returns an id in the form that all commands accept."""
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
    """Yields a function that prints a message immediately."""
    if wants_table(options):
        width = width_of(options)
        yield lambda message: print(message_text(message, width))
        return
    from ledgerfold.broker.client.messages.message import decoding_sections

    to_row = decoding_sections(message_row)
    with json_printer(options) as show:
        yield lambda message: show(to_row(message))


def _key(message: Message) -> bytes | None:
    if not message.has_key():
        return None
    return message.partition_key().encode(errors="surrogateescape")


def decoded(data: bytes, *, is_cut: bool = False) -> tuple[str, str | None]:
    """Returns text and None, or base64 and its name. A value that was cut may end within a
    character.
    """
    try:
        text = getincrementaldecoder("utf-8")().decode(data, final=not is_cut)
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"
    return text + "…" * is_cut, None


def _shown(data: bytes | None, absent: str) -> str:
    if data is None:
        return absent
    text, encoding = decoded(data)
    return printable(text) if encoding is None else f"base64:{text}"
