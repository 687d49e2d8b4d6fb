"""`import`: a CSV or JSON-lines file as a keyed topic.

    >>> [(row.line, row.fields) for row in read_rows([b"id,name", b"1,Ada"], "csv", ["id"])]
    [(2, {'id': '1', 'name': 'Ada'})]

A row becomes a message: the text of one field is the key, the row as JSON the value. Files are
UTF-8, with or without a byte order mark. What is wrong with a row is said with its line number; the
rows before it are imported then.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from ledgerfold.broker.cli.connecting import client_of
from ledgerfold.broker.cli.producing import Outgoing, send_all
from ledgerfold.storage.errors import InvalidRequest

Commands = argparse._SubParsersAction
_INT64_MAX = 2**63 - 1
_BYTE_ORDER_MARK = "\ufeff"
# More than a message may hold; the csv module's own limit is 128 KiB.
_FIELD_CHARACTERS_MAX = 16 * 1024 * 1024


class Row(NamedTuple):
    """`line` is where it begins in the file, from 1."""

    line: int
    fields: dict[str, Any]


class RowRules(NamedTuple):
    """How rows become messages."""

    key: str
    event_time: str | None = None
    # FIELD and VALUE of --tombstone-when.
    tombstone: tuple[str, str] | None = None

    @property
    def fields(self) -> list[str]:
        """Those that they speak of."""
        tombstone = self.tombstone[0] if self.tombstone else None
        return [name for name in (self.key, self.event_time, tombstone) if name is not None]


def add_import(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "import", help="publish a CSV or JSON-lines file, keyed by a field"
    )
    parser.set_defaults(run=_import)
    parser.add_argument("file", metavar="FILE.csv|FILE.jsonl|-", help="-: standard input")
    parser.add_argument("--key", required=True, metavar="FIELD", help="its text is the key")
    parser.add_argument("--topic", help="default: the file's name")
    parser.add_argument("--format", choices=("csv", "jsonl"), help="default: by the file's ending")
    parser.add_argument("--event-time", metavar="FIELD", help="ms since the epoch")
    parser.add_argument(
        "--tombstone-when", metavar="FIELD=VALUE", help="such a row deletes its key"
    )


def read_rows(lines: Iterable[bytes], format_: str, wanted: Sequence[str]) -> Iterator[Row]:
    """The rows of a file; a CSV file must have the `wanted` fields. Raises InvalidRequest."""
    texts = _decoded(lines)
    return _csv_rows(texts, wanted) if format_ == "csv" else _json_rows(texts)


def _decoded(lines: Iterable[bytes]) -> Iterator[str]:
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            raise InvalidRequest(f"Line {number} is no UTF-8: {error}.") from error
        yield text.removeprefix(_BYTE_ORDER_MARK) if number == 1 else text


def _csv_rows(lines: Iterable[str], wanted: Sequence[str]) -> Iterator[Row]:
    csv.field_size_limit(_FIELD_CHARACTERS_MAX)
    reader = csv.reader(lines, strict=True)
    names: list[str] = []
    while True:
        # A quoted field may go over several lines.
        line = reader.line_num + 1
        try:
            values = next(reader, None)
        except csv.Error as error:
            raise InvalidRequest(f"Line {line} is no CSV: {error}.") from error
        if values is None:
            return
        if not values:
            continue
        if not names:
            names = _checked_header(line, values, wanted)
        elif len(values) != len(names):
            raise InvalidRequest(
                f"Line {line} has {len(values)} fields, and the header has {len(names)}."
            )
        else:
            yield Row(line, dict(zip(names, values, strict=True)))


def _checked_header(line: int, names: list[str], wanted: Sequence[str]) -> list[str]:
    for name in wanted:
        if name not in names:
            raise InvalidRequest(f"Line {line} names no field {name!r}, only {', '.join(names)}.")
    for name in names:
        if names.count(name) > 1:
            raise InvalidRequest(f"Line {line} names the field {name!r} twice.")
    return names


def _json_rows(lines: Iterable[str]) -> Iterator[Row]:
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InvalidRequest(f"Line {number} is no JSON: {error}.") from error
        if not isinstance(fields, dict):
            raise InvalidRequest(f"Line {number} is no JSON object.")
        yield Row(number, fields)


def to_message(row: Row, rules: RowRules) -> Outgoing:
    """The row as JSON under its key, or a tombstone. Raises InvalidRequest, naming the line."""
    key = _text(row.fields.get(rules.key))
    if not key:
        raise InvalidRequest(f"Line {row.line} has no {rules.key!r}, which is to be the key.")
    event_time_ms = None
    if rules.event_time is not None:
        text = _text(row.fields.get(rules.event_time))
        if re.fullmatch("[0-9]{1,19}", text) is None or int(text) > _INT64_MAX:
            raise InvalidRequest(f"Line {row.line}: {rules.event_time!r} is no time in ms: {text}")
        event_time_ms = int(text)
    if rules.tombstone is not None:
        field, value = rules.tombstone
        if field in row.fields and _text(row.fields[field]) == value:
            return Outgoing(key, None, event_time_ms)
    value_json = json.dumps(row.fields, separators=(",", ":"))
    return Outgoing(key, value_json.encode(), event_time_ms)


def _text(value: Any) -> str:
    """Text as it is, nothing for null, else as JSON writes it."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


@contextmanager
def _opened(name: str) -> Iterator[IO[bytes]]:
    if name == "-":
        yield sys.stdin.buffer
    else:
        with Path(name).open("rb") as file:
            yield file


def _format(options: argparse.Namespace) -> str:
    if options.format:
        return str(options.format)
    ending = Path(options.file).suffix.lstrip(".").lower()
    if ending not in ("csv", "jsonl"):
        raise InvalidRequest(f"{options.file}: say --format csv or --format jsonl.")
    return ending


def _rules(options: argparse.Namespace) -> RowRules:
    tombstone = None
    if options.tombstone_when is not None:
        field, found, value = options.tombstone_when.partition("=")
        if not found:
            raise InvalidRequest("--tombstone-when: write FIELD=VALUE.")
        tombstone = field, value
    return RowRules(options.key, options.event_time, tombstone)


def _import(options: argparse.Namespace) -> None:
    if options.topic is None and options.file == "-":
        raise InvalidRequest("Standard input has no name: say --topic.")
    topic = options.topic or Path(options.file).stem
    format_, rules = _format(options), _rules(options)
    rows = tombstones = 0

    def messages(lines: IO[bytes]) -> Iterator[Outgoing]:
        nonlocal rows, tombstones
        for row in read_rows(lines, format_, rules.fields):
            message = to_message(row, rules)
            yield message
            rows += 1
            tombstones += message.value is None

    with _opened(options.file) as lines:
        client = client_of(options)
        try:
            producer = client.create_producer(topic, batching_enabled=True)
            send_all(producer, messages(lines))
        except InvalidRequest as error:
            raise InvalidRequest(f"{error} {rows} rows before it are imported.") from error
        finally:
            client.close()
    print(f"{rows} rows imported into {topic}, {tombstones} of them tombstones", file=sys.stderr)
