"""`produce`: publishes messages from the command line, from files, or from standard input.

ledgerfold produce prices -k p3 -m 10 -p currency=EUR
ledgerfold produce prices -K : < prices.txt        # p3:10, a line each
ledgerfold produce prices -k p3 --tombstone

Options are those of `pulsar-client produce` where they exist. One difference: -m is one message,
including commas, unless -s is given. Ids are printed as by `read`.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

from ledgerfold.broker.cli.connecting import TOPIC, client_of
from ledgerfold.broker.cli.output import FORMATS, message_id_text, row_printer
from ledgerfold.broker.cli.tables import printable
from ledgerfold.broker.cli.units import parse_count, parse_positive
from ledgerfold.broker.cli.verbs import Verbs, argument, flag, repeated
from ledgerfold.storage.errors import InvalidRequest, KafkaError, LedgerfoldError
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client import MessageId, Producer, Result

COMMANDS = Verbs()
# A limit that is never reached, in messages and in ms.
_UNBOUNDED = 2**31 - 1
# Just below the maximum entry size: the client splits larger batches.
_BATCH_BYTES_MAX = 15 * 1024 * 1024


class Outgoing(NamedTuple):
    """A message to publish. `value` None: a tombstone; `event_time_ms` None: not set.

    A `key` of bytes is published in base64, as by clients, and unchanged to a Kafka topic.
    """

    key: str | bytes | None
    value: bytes | None
    event_time_ms: int | None = None
    properties: dict[str, str] | None = None


def _check(options: argparse.Namespace) -> None:
    has_content = bool(options.message or options.file)
    if options.tombstone and has_content:
        raise InvalidRequest(
            "--tombstone cannot be combined with -m and -f: a tombstone has no value."
        )
    if options.tombstone and options.key is None:
        raise InvalidRequest("A tombstone needs a key: -k KEY.")
    if options.key_delimiter is not None and (has_content or options.tombstone or options.key):
        raise InvalidRequest(
            "-K reads keys from standard input: it cannot be combined with -k, -m or -f."
        )
    if options.key_delimiter == "":
        raise InvalidRequest("-K needs at least one character.")
    if not (has_content or options.tombstone):
        if options.times > 1:
            raise InvalidRequest("-n repeats -m and -f; standard input is read once.")
        if sys.stdin.isatty():
            raise InvalidRequest(
                "Nothing to publish: -m MESSAGE, -f FILE, or lines on standard input."
            )


def _properties(options: argparse.Namespace) -> dict[str, str] | None:
    pairs = [pair for text in options.property for pair in text.split(",")]
    for pair in pairs:
        if "=" not in pair:
            raise InvalidRequest(f"-p {pair!r}: expected NAME=VALUE, separated by commas.")
    return dict(pair.split("=", 1) for pair in pairs) or None


def _outgoing(options: argparse.Namespace) -> Iterator[Outgoing]:
    if options.tombstone:
        for _ in range(options.times):
            yield Outgoing(options.key, None, options.event_time)
    elif options.message or options.file:
        for _ in range(options.times):
            for value in _values(options):
                yield _with_empty(options, options.key, value)
    else:
        for number, line in enumerate(sys.stdin.buffer, 1):
            yield _from_line(options, number, line.rstrip(b"\r\n"))


def _values(options: argparse.Namespace) -> Iterator[bytes]:
    for text in options.message:
        parts = text.split(options.separator) if options.separator else [text]
        yield from map(os.fsencode, parts)
    for path in options.file:
        yield path.read_bytes()


def _from_line(options: argparse.Namespace, number: int, line: bytes) -> Outgoing:
    if options.key_delimiter is None:
        return _with_empty(options, options.key, line)
    key, delimiter, value = line.partition(os.fsencode(options.key_delimiter))
    if not delimiter:
        text = printable(os.fsdecode(line[:60]))
        before = f"{counted(number - 1, 'line')} before it published"
        raise InvalidRequest(f"Line {number} has no {options.key_delimiter!r}: {text} ({before}).")
    return _with_empty(options, os.fsdecode(key), value)


def _with_empty(options: argparse.Namespace, key: str | None, value: bytes) -> Outgoing:
    is_tombstone = options.empty_is_tombstone and not value
    return Outgoing(key, None if is_tombstone else value, options.event_time)


@COMMANDS.verb(
    "produce",
    "publish messages",
    TOPIC,
    description="Publishes messages. Without -m, -f and --tombstone, each line of standard input "
    "is a message.",
)
@repeated("-m --message --messages", "a message; may be repeated")
@argument("-s --separator", "split each -m into messages at this separator")
@repeated("-f --file --files", "a file that is one message; may be repeated", type=absolute_path)
@argument("-k --key", "the key of every message")
@repeated(
    "-p --property --properties NAME=VALUE[,...]", "properties of every message; may be repeated"
)
@argument(
    "-n --times --num-produce", "publish -m and -f this many times", type=parse_positive, default=1
)
@argument("--event-time MS", "event time, in ms since the epoch", type=parse_count)
@flag("--tombstone", "publish a tombstone: a message without a value")
@flag("--batch", "publish all messages as one batch, up to 15 MiB")
@argument(
    "--compression",
    "compression; default none; gzip only on Kafka topics, zlib only on others",
    type=str.lower,
    choices=("zstd", "lz4", "zlib", "snappy", "gzip"),
)
@argument("-K --key-delimiter DELIM", "input lines are KEY DELIM VALUE")
@flag("-Z --empty-is-tombstone", "publish empty values as tombstones")
@flag("-v --verbose", "print message ids")
@argument("-o --output", "format of message ids; default: one per line", choices=FORMATS)
def _produce(options: argparse.Namespace) -> None:
    _check(options)
    properties = _properties(options)
    with client_of(options) as client, _id_printer(options) as on_stored, _plain_refusals(options):
        count = send_all(
            client.create_producer(options.topic, **_producer_options(options)),
            _outgoing(options),
            properties=properties,
            on_stored=on_stored,
        )
    print(f"{counted(count, 'message')} published to {options.topic}", file=sys.stderr)


@contextmanager
def _plain_refusals(options: argparse.Namespace) -> Iterator[None]:
    """Describes Kafka's refusal of records without a key by the options that give one."""
    # The client warns of an error that flush() raises.
    logging.getLogger("ledgerfold.broker.client.core.send_queue").setLevel(logging.ERROR)
    try:
        yield
    except KafkaError as error:
        if options.key is None and "without key" in error.message:
            why = f"{options.topic} is a compacted Kafka topic: each record needs a key."
            raise InvalidRequest(f"{why} Use -k or -K.") from error
        raise


def _producer_options(options: argparse.Namespace) -> dict[str, Any]:
    from ledgerfold.broker.client import CompressionType
    from ledgerfold.broker.client.messages.configs import BULK_SENDING

    producer_options = {"batching_enabled": not (options.message or options.file), **BULK_SENDING}
    if options.compression:
        names = {each.name.lower(): each for each in CompressionType}
        producer_options["compression_type"] = names[options.compression]
    if options.batch:
        producer_options |= {
            "batching_enabled": True,
            "batching_max_messages": _UNBOUNDED,
            "batching_max_allowed_size_in_bytes": _BATCH_BYTES_MAX,
            "batching_max_publish_delay_ms": _UNBOUNDED,
            "max_pending_messages": 0,
        }
    return producer_options


@contextmanager
def _id_printer(options: argparse.Namespace) -> Iterator[Callable[[MessageId], None] | None]:
    """Yields a function that prints an id: immediately, but a table at the end."""
    if options.output is None:
        yield _print_id if options.verbose else None
        return
    options.no_truncate = True
    with row_printer(options) as show:
        yield lambda message_id: show({"id": message_id_text(message_id)})


def _print_id(message_id: MessageId) -> None:
    print(message_id_text(message_id), flush=True)


def send_all(
    producer: Producer,
    messages: Iterable[Outgoing],
    *,
    properties: dict[str, str] | None = None,
    on_stored: Callable[[MessageId], object] | None = None,
) -> int:
    """Publishes messages and waits until all are stored. Returns their number. Raises the first
    error. `properties`: those of messages without their own.

    `on_stored` gets the ids, in order, in the client's thread. If `messages` raises, the messages
    before are stored.
    """
    receipts = None if on_stored is None else _Receipts(on_stored)
    count = 0
    try:
        for message in messages:
            producer.send_async(
                message.value,
                receipts,
                properties=properties if message.properties is None else message.properties,
                partition_key=message.key,
                event_timestamp=message.event_time_ms,
            )
            count += 1
    finally:
        producer.flush()
    if receipts is not None:
        receipts.check()
    return count


class _Receipts:
    """A send callback that passes ids to `on_stored`, and keeps the first error."""

    def __init__(self, on_stored: Callable[[MessageId], object]) -> None:
        self._on_stored = on_stored
        self._error: LedgerfoldError | OSError | None = None

    def __call__(self, result: Result, message_id: MessageId | None) -> None:
        if message_id is None:
            self._error = self._error or LedgerfoldError(f"Not stored: {result.name}.")
            return
        try:
            self._on_stored(message_id)
        except OSError as error:
            # The reader of the ids has closed the pipe; publishing continues.
            self._error = self._error or error

    def check(self) -> None:
        """Raises the first error."""
        if self._error is not None:
            raise self._error
