"""`import`: a CSV or JSON-lines file as a keyed topic.

A row becomes a message: the text of one field is the key, the row the value, or the text of another
field. (What those texts are says import_rows.py.) What is wrong with a row is said with its line
number; the rows before it are imported then, and with `--on-error skip` those behind it, too. An
import that ends before its file does says how far it came, and `--skip-rows` goes on from there.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.connecting import client_of
from ledgerfold.broker.cli.ending import Interrupts
from ledgerfold.broker.cli.exit_codes import DONE, FAILED
from ledgerfold.broker.cli.import_kafka import (
    KAFKA_LOG,
    add_kafka_log,
    import_kafka_log,
    refuse_kafka_options,
)
from ledgerfold.broker.cli.import_rows import Rows, opened, read_rows
from ledgerfold.broker.cli.producing import Outgoing
from ledgerfold.broker.cli.row_rules import RowRules, add_row_rules, message_of_row, rules_of
from ledgerfold.broker.cli.units import parse_count
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.storage.words import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client import MessageId, Producer, Result

Commands = argparse._SubParsersAction


def add_import(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser(
        "import", help="publish a CSV or JSON-lines file, keyed by a field"
    )
    parser.set_defaults(run=_import)
    add = parser.add_argument
    add("file", metavar="FILE.csv|FILE.jsonl|-|kafka-log", help="-: standard input")
    add_row_rules(parser)
    add("--topic", help="default: the file's name")
    add("--format", choices=("csv", "jsonl"), help="default: by the file's ending")
    add(
        "--on-error",
        choices=("skip", "stop"),
        default="stop",
        help="at a row that cannot be imported; skip ends with 1 if it skipped any; default stop",
    )
    add(
        "--skip-rows",
        type=parse_count,
        default=0,
        metavar="N",
        help="of a file: pass its first N rows, which an import that was interrupted has imported",
    )
    add_kafka_log(parser)


def _format(options: argparse.Namespace) -> str:
    if options.format:
        return str(options.format)
    ending = Path(options.file).suffix.lstrip(".").lower()
    if ending not in ("csv", "jsonl"):
        raise InvalidRequest(f"{options.file}: say --format csv or --format jsonl.")
    return ending


@dataclass
class _Import:
    """The messages of a file, and the count of what became of its rows.

    Rows are counted from the first of the file, bad ones too: `read` of them were looked at, the
    `passed` first of which were imported before.
    """

    rules: RowRules
    skips: bool
    passed: int = 0
    rows: int = 0
    tombstones: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        self.read = self.passed
        self._error: LedgerfoldError | None = None
        # Those whose receipt has not come, by number; several partitions answer in any order.
        self._pending: dict[int, None] = {}

    def send(self, producer: Producer, rows: Rows, interrupts: Interrupts) -> None:
        """Raises InvalidRequest for a row, and what a message failed with."""
        try:
            for message in self._messages(islice(rows, self.passed, None)):
                # An interrupt in the midst of it would leave open whether this one was sent.
                interrupts.is_held = True
                self.read += 1
                self._pending[self.read] = None
                producer.send_async(
                    message.value,
                    partial(self._on_receipt, self.read),
                    partition_key=message.key,
                    event_timestamp=message.event_time_ms,
                )
                self.rows += 1
                self.tombstones += message.value is None
                interrupts.is_held = False
                interrupts.check()
        finally:
            interrupts.is_held = False
            producer.flush()
        if self._error is not None:
            raise self._error

    def _messages(self, rows: Rows) -> Iterator[Outgoing]:
        for row in rows:
            try:
                if isinstance(row, InvalidRequest):
                    raise row
                message = message_of_row(row, self.rules)
            except InvalidRequest as error:
                if not self.skips:
                    raise
                print(f"ledgerfold: {error} It is skipped.", file=sys.stderr)
                self.skipped += 1
                self.read += 1
                continue
            yield message

    def _on_receipt(self, number: int, result: Result, message_id: MessageId | None) -> None:
        """In the client's thread."""
        if message_id is not None:
            self._pending.pop(number, None)
        elif self._error is None:
            self._error = LedgerfoldError(f"Not stored: {result.name}.")

    @property
    def imported(self) -> int:
        """So many rows, from the first of the file on, need not be read again."""
        return min(list(self._pending), default=self.read + 1) - 1

    def how_to_go_on(self) -> str:
        """After an end that was none."""
        done = counted(self.imported, "row")
        if not self.imported:
            return "No row is known to be imported."
        some = " (some of those behind may be, too)" if self._pending else ""
        return (
            f"Imported before it: {done}{some}. To go on behind, add --skip-rows {self.imported} "
            "to the command."
        )

    def counts(self, topic: str) -> str:
        skipped = f", {self.skipped:,} skipped" if self.skips else ""
        return (
            f"{counted(self.rows, 'row')} imported into {topic}, with "
            f"{counted(self.tombstones, 'tombstone')}{skipped}"
        )


def _import(options: argparse.Namespace) -> int:
    if options.file == KAFKA_LOG:
        return import_kafka_log(options)
    refuse_kafka_options(options)
    if options.key is None:
        raise InvalidRequest("Say which field is the key: --key FIELD.")
    if options.topic is None and options.file == "-":
        raise InvalidRequest("Standard input has no name: say --topic.")
    topic = options.topic or Path(options.file).stem
    format_ = _format(options)
    importing = _Import(rules_of(options), options.on_error == "skip", options.skip_rows)
    with opened(options.file) as lines, Interrupts() as interrupts:
        client = client_of(options)
        try:
            rows = read_rows(lines, format_, importing.rules.fields)
            producer = client.create_producer(topic, batching_enabled=True)
            importing.send(producer, rows, interrupts)
        except InvalidRequest as error:
            raise InvalidRequest(f"{error} {importing.how_to_go_on()}") from error
        except (KeyboardInterrupt, LedgerfoldError, OSError) as error:
            ended = (
                "Interrupted." if isinstance(error, KeyboardInterrupt) else "It is not finished."
            )
            print(f"ledgerfold: {ended} {importing.how_to_go_on()}", file=sys.stderr)
            raise
        finally:
            client.close()
    print(importing.counts(topic), file=sys.stderr)
    return FAILED if importing.skipped else DONE
