"""`import`: publishes a CSV or JSON-lines file to a keyed topic.

A row becomes a message: the text of one field is the key; the row, or the text of another field, is
the value (import_rows.py defines these texts). An invalid row is reported with its line number. The
rows before it are imported; with `--on-error skip`, so are the rows after it. An import that ends
early reports its progress, and `--skip-rows` continues from there.
"""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.connecting import client_of
from ledgerfold.broker.cli.data.import_kafka import (
    KAFKA_LOG,
    KAFKA_OPTIONS,
    import_kafka_log,
    refuse_kafka_options,
)
from ledgerfold.broker.cli.data.import_rows import Rows, opened, read_rows
from ledgerfold.broker.cli.data.producing import Outgoing
from ledgerfold.broker.cli.data.row_rules import ROW_RULES, RowRules, message_of_row, rules_of
from ledgerfold.broker.cli.ending import Interrupts
from ledgerfold.broker.cli.exit_codes import DONE, FAILED
from ledgerfold.broker.cli.units import COUNT
from ledgerfold.broker.cli.verbs import Verbs, argument
from ledgerfold.garbage import searched_rarely
from ledgerfold.storage.errors import InvalidRequest, LedgerfoldError
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client import MessageId, Producer, Result

COMMANDS = Verbs()


def _format(options: argparse.Namespace) -> str:
    if options.format:
        return str(options.format)
    ending = Path(options.file).suffix.lstrip(".").lower()
    if ending not in ("csv", "jsonl"):
        raise InvalidRequest(f"{options.file}: give --format csv or --format jsonl.")
    return ending


@dataclass
class _Import:
    """The progress of an import.

    Rows are counted from the first of the file, including invalid ones: `read` rows were read, of
    which the first `passed` were imported before.
    """

    rules: RowRules
    skips: bool
    passed: int = 0
    rows: int = 0
    tombstones: int = 0
    # Records of a Kafka topic with an empty value; on other topics these are tombstones.
    empty: int = 0
    skipped: int = 0

    def __post_init__(self) -> None:
        self.read = self.passed
        self._error: LedgerfoldError | None = None
        # Rows without a receipt, by number; partitions answer in any order.
        self._pending: dict[int, None] = {}

    def send(self, producer: Producer, rows: Rows, interrupts: Interrupts) -> None:
        """Publishes the rows. Raises InvalidRequest for a row, and the first error of a message."""
        self.rules = self.rules._replace(is_kafka=producer.is_kafka_topic())
        try:
            for message in self._messages(islice(rows, self.passed, None)):
                # An interrupt during the send would leave it unknown whether the message was sent.
                interrupts.is_held = True
                self.read += 1
                self._pending[self.read] = None
                producer.send_async(
                    message.value,
                    partial(self._on_receipt, self.read),
                    properties=message.properties,
                    partition_key=message.key,
                    event_timestamp=message.event_time_ms,
                )
                self._count(message.value)
                interrupts.is_held = False
                interrupts.check()
        finally:
            interrupts.is_held = False
            producer.flush()
        if self._error is not None:
            raise self._error

    def _count(self, value: bytes | None) -> None:
        self.rows += 1
        if value is None or not (value or self.rules.is_kafka):
            self.tombstones += 1
        elif not value:
            self.empty += 1

    def _messages(self, rows: Rows) -> Iterator[Outgoing]:
        rules = self.rules
        for row in rows:
            try:
                if isinstance(row, InvalidRequest):
                    raise row
                message = message_of_row(row, rules)
            except InvalidRequest as error:
                if not self.skips:
                    what = "Correct the line, or use --on-error skip."
                    raise InvalidRequest(f"{error} {what}") from error
                print(f"ledgerfold: {error} The row is skipped.", file=sys.stderr)
                self.skipped += 1
                self.read += 1
                continue
            yield message

    def _on_receipt(self, number: int, result: Result, message_id: MessageId | None) -> None:
        """Handles a receipt, in the client's thread."""
        if message_id is not None:
            self._pending.pop(number, None)
        elif self._error is None:
            self._error = LedgerfoldError(f"Not stored: {result.name}.")

    @property
    def imported(self) -> int:
        """The number of rows, from the start of the file, that need not be imported again."""
        return min(list(self._pending), default=self.read + 1) - 1

    def how_to_go_on(self) -> str:
        """Describes how to continue after an early end."""
        done = counted(self.imported, "row")
        if not self.imported:
            return "No row is known to be imported."
        some = " (some later rows may be, too)" if self._pending else ""
        return (
            f"Imported before it: {done}{some}. To continue, add --skip-rows {self.imported} "
            "to the command."
        )

    def counts(self, topic: str) -> str:
        parts = [counted(self.tombstones, "tombstone")]
        if self.empty:
            parts.append(counted(self.empty, "empty value"))
        skipped = f", {self.skipped:,} skipped" if self.skips else ""
        return (
            f"{counted(self.rows, 'row')} imported into {topic}, with "
            f"{' and '.join(parts)}{skipped}"
        )


@COMMANDS.verb("import", "publish a CSV or JSON-lines file, keyed by a field")
@argument("file FILE.csv|FILE.jsonl|-|kafka-log", "the file; -: standard input")
@ROW_RULES
@argument("--properties FIELD", "the field that is a JSON object of properties, or of headers")
@argument("--topic", "default: the file's name")
@argument("--format", "default: by the file's extension", choices=("csv", "jsonl"))
@argument(
    "--on-error",
    "stop at an invalid row (the default), or skip it and exit with 1 at the end",
    choices=("skip", "stop"),
    default="stop",
)
@argument(
    "--skip-rows",
    "for a file: skip its first N rows, to continue an interrupted import",
    **COUNT,
    default=0,
)
@KAFKA_OPTIONS
def _import(options: argparse.Namespace) -> int:
    if options.file == KAFKA_LOG:
        return import_kafka_log(options)
    refuse_kafka_options(options)
    if options.key is None:
        raise InvalidRequest("The key is missing: give --key FIELD.")
    if options.topic is None and options.file == "-":
        raise InvalidRequest("Standard input has no name: give --topic.")
    from ledgerfold.broker.client.messages.configs import BULK_SENDING

    topic = options.topic or Path(options.file).stem
    format_ = _format(options)
    rules = rules_of(options)._replace(properties=options.properties)
    importing = _Import(rules, options.on_error == "skip", options.skip_rows)
    with (
        opened(options.file) as lines,
        Interrupts(signal.SIGINT, signal.SIGTERM) as interrupts,
        client_of(options) as client,
        searched_rarely(),
    ):
        try:
            rows = read_rows(lines, format_, importing.rules.fields)
            producer = client.create_producer(topic, batching_enabled=True, **BULK_SENDING)
            importing.send(producer, rows, interrupts)
        except InvalidRequest as error:
            raise InvalidRequest(f"{error} {importing.how_to_go_on()}") from error
        except (KeyboardInterrupt, LedgerfoldError, OSError) as error:
            is_interrupted = isinstance(error, KeyboardInterrupt)
            ended = "Interrupted." if is_interrupted else "The import is incomplete."
            print(f"ledgerfold: {ended} {importing.how_to_go_on()}", file=sys.stderr)
            raise
    print(importing.counts(topic), file=sys.stderr)
    return FAILED if importing.skipped else DONE
