"""`produce`, `consume` and `read`: messages in and out."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from broker.cli.output import add_output, print_message
from storage.errors import InvalidRequest

if TYPE_CHECKING:
    from broker.client import Client, MessageId

Commands = argparse._SubParsersAction
_FORMATS = ("text", "json", "jsonl")


class Outgoing(NamedTuple):
    """One message to publish. `value` None is a tombstone."""

    key: str | None
    value: bytes | None


def add_produce(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("produce", help="publish messages")
    parser.set_defaults(run=_produce)
    parser.add_argument("topic")
    parser.add_argument("-m", "--message", action="append", default=[], help="taken as it is")
    parser.add_argument("-f", "--file", action="append", default=[], type=Path, help="one message")
    parser.add_argument("-k", "--key")
    parser.add_argument("-p", "--property", action="append", default=[], metavar="NAME=VALUE")
    parser.add_argument("-n", "--times", type=int, default=1, help="send all of it so often")
    parser.add_argument("--event-time", type=int, default=0, metavar="MS", help="since the epoch")
    parser.add_argument("--tombstone", action="store_true", help="a message without a value")
    parser.add_argument("--batch", action="store_true", help="all messages as one batch")
    parser.add_argument("--compression", choices=("zstd", "lz4", "zlib"))
    parser.add_argument(
        "-K", "--key-delimiter", metavar="DELIM", help="input lines are KEY DELIM VALUE"
    )
    parser.add_argument("-Z", "--empty-is-tombstone", action="store_true")
    parser.add_argument("-v", "--verbose", action="store_true", help="print message ids")


def add_consume(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("consume", help="consume through a subscription")
    parser.set_defaults(run=_consume)
    parser.add_argument("topic")
    parser.add_argument("-s", "--subscription", required=True)
    parser.add_argument(
        "-t",
        "--type",
        default="Exclusive",
        choices=("Exclusive", "Shared", "Failover", "Key_Shared"),
    )
    parser.add_argument("-p", "--position", default="Latest", choices=("Latest", "Earliest"))
    parser.add_argument("-n", "--number", type=int, default=1, help="0: for ever; default 1")
    parser.add_argument("--read-compacted", action="store_true")
    parser.add_argument("--until-end", action="store_true", help="stop where there is no more")
    parser.add_argument("--no-ack", action="store_true", help="acknowledge nothing")
    add_output(parser, _FORMATS)


def add_read(commands: Commands[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("read", help="read without a subscription")
    parser.set_defaults(run=_read)
    parser.add_argument("topic")
    parser.add_argument(
        "--from",
        dest="start",
        default="earliest",
        metavar="earliest|latest|L:E[:I]|TIME",
        help="TIME: ms since the epoch, or ISO 8601",
    )
    parser.add_argument("-i", "--inclusive", action="store_true", help="with the message at --from")
    parser.add_argument("-n", "--number", type=int, default=0, help="0, the default: no limit")
    parser.add_argument("--read-compacted", action="store_true")
    parser.add_argument("--until-end", action="store_true", help="stop where there is no more")
    add_output(parser, _FORMATS)


def client_of(options: argparse.Namespace) -> Client:
    from broker.client import Client

    return Client(options.url)


def _outgoing(options: argparse.Namespace) -> Iterator[Outgoing]:
    if options.tombstone:
        if options.key is None:
            raise InvalidRequest("A tombstone needs a key: -k KEY.")
        yield Outgoing(options.key, None)
        return
    for text in options.message:
        yield _with_empty(options, options.key, text.encode())
    for path in options.file:
        yield _with_empty(options, options.key, path.read_bytes())
    if not options.message and not options.file:
        if sys.stdin.isatty():
            raise InvalidRequest(
                "Nothing to publish: -m MESSAGE, -f FILE, or lines on standard input."
            )
        for line in sys.stdin.buffer:
            yield _from_line(options, line.rstrip(b"\r\n"))


def _from_line(options: argparse.Namespace, line: bytes) -> Outgoing:
    if options.key_delimiter is None:
        return _with_empty(options, options.key, line)
    key, found, value = line.partition(options.key_delimiter.encode())
    if not found:
        raise InvalidRequest(f"A line without {options.key_delimiter!r}: {line[:60]!r}")
    return _with_empty(options, key.decode(), value)


def _with_empty(options: argparse.Namespace, key: str | None, value: bytes) -> Outgoing:
    return Outgoing(key, None if options.empty_is_tombstone and not value else value)


def _produce(options: argparse.Namespace) -> int:
    from broker.client import CompressionType

    properties = dict(pair.partition("=")[::2] for pair in options.property)
    compression = CompressionType[(options.compression or "none").upper()]
    errors: list[object] = []
    count = 0

    def done(result: object, message_id: MessageId | None) -> None:
        if message_id is None:
            errors.append(result)
        elif options.verbose:
            print(message_id)

    client = client_of(options)
    try:
        from_input = not (options.message or options.file or options.tombstone)
        producer = client.create_producer(
            options.topic,
            compression_type=compression,
            batching_enabled=options.batch or from_input,
            batching_max_messages=100_000 if options.batch else 1000,
            batching_max_publish_delay_ms=60_000 if options.batch else 10,
        )
        for _ in range(options.times):
            for message in _outgoing(options):
                producer.send_async(
                    message.value,
                    done,
                    partition_key=message.key,
                    properties=properties or None,
                    event_timestamp=options.event_time or None,
                )
                count += 1
        producer.flush()
    finally:
        client.close()
    if errors:
        print(f"ledgerfold: {len(errors)} messages were not stored: {errors[0]}", file=sys.stderr)
        return 1
    if not options.verbose:
        print(f"{count} messages published to {options.topic}", file=sys.stderr)
    return 0


def _consume(options: argparse.Namespace) -> int:
    from broker.client import ConsumerType, InitialPosition

    client = client_of(options)
    try:
        consumer = client.subscribe(
            options.topic,
            options.subscription,
            consumer_type=ConsumerType[options.type.replace("_", "")],
            initial_position=InitialPosition[options.position],
            is_read_compacted=options.read_compacted,
        )
        left = options.number
        while True:
            if options.until_end and not consumer.has_message_available():
                return 0
            message = consumer.receive()
            print_message(options, message)
            if not options.no_ack:
                consumer.acknowledge(message)
            left -= 1
            if left == 0:
                return 0
    finally:
        client.close()


def parse_start(text: str) -> MessageId | int:
    """An id, or ms since the epoch. Raises InvalidRequest."""
    from broker.client import MessageId

    if text in ("earliest", "latest"):
        return MessageId.earliest if text == "earliest" else MessageId.latest
    parts = text.split(":")
    if len(parts) in (2, 3) and all(part.isdecimal() for part in parts):
        ledger_id, entry_id, *index = map(int, parts)
        return MessageId(-1, ledger_id, entry_id, index[0] if index else -1)
    if text.isdecimal():
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"--from {text!r}: write earliest, latest, LEDGER:ENTRY[:INDEX] or a time."
        ) from None
    return int(moment.timestamp() * 1000)


def _read(options: argparse.Namespace) -> int:
    from broker.client import MessageId

    start = parse_start(options.start)
    client = client_of(options)
    try:
        reader = client.create_reader(
            options.topic,
            MessageId.earliest if isinstance(start, int) else start,
            is_read_compacted=options.read_compacted,
            start_message_id_inclusive=options.inclusive,
        )
        if isinstance(start, int):
            reader.seek(start)
        left = options.number
        while not options.until_end or reader.has_message_available():
            print_message(options, reader.read_next())
            left -= 1
            if left == 0:
                break
    finally:
        client.close()
    return 0
