"""`topics peek-messages`, `examine-messages` and `get-message-by-id`: single messages of a topic.

The default output is that of pulsar-admin, with each message's own properties, and all messages of
a batch. Source: Pulsar's CmdTopics, and Netty's ByteBufUtil.prettyHexDump.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.connecting import TOPIC, admin_of
from ledgerfold.broker.cli.output import MESSAGES, message_printer
from ledgerfold.broker.cli.tables import printable
from ledgerfold.broker.cli.units import COUNT, POSITIVE
from ledgerfold.broker.cli.verbs import Verbs, argument

if TYPE_CHECKING:
    from ledgerfold.broker.client import Message

VERBS = Verbs()
_RULE = f"+{'-' * 8}+{'-' * 49}+{'-' * 16}+"
_DIGITS = "".join(f"{each:3x}" for each in range(16))


@VERBS.verb("peek-messages", "show messages of a subscription's backlog", TOPIC)
@argument("-s --subscription", "the subscription's name", required=True)
@argument("-n --count", "the number of messages; default: 1", **POSITIVE, default=1)
@MESSAGES
def _peek(options: argparse.Namespace) -> None:
    messages = admin_of(options).peek_messages(options.topic, options.subscription, options.count)
    _print_messages(options, messages)


@VERBS.verb("examine-messages", "show a message by its position in the topic", TOPIC)
@argument(
    "-i --initialPosition",
    "count from this end; default: latest",
    choices=("earliest", "latest"),
    default="latest",
)
@argument(
    "-m --messagePosition", "the position in entries, from 1; default: 1", **POSITIVE, default=1
)
@MESSAGES
def _examine(options: argparse.Namespace) -> None:
    messages = admin_of(options).examine_messages(
        options.topic, options.messagePosition, from_earliest=options.initialPosition == "earliest"
    )
    _print_messages(options, messages)


@VERBS.verb("get-message-by-id", "show a message by its ledger id and entry id", TOPIC)
@argument("-l --ledgerId", "the ledger's id", **COUNT, required=True)
@argument("-e --entryId", "the entry's id", **COUNT, required=True)
@MESSAGES
def _by_id(options: argparse.Namespace) -> None:
    messages = admin_of(options).messages_by_id(options.topic, options.ledgerId, options.entryId)
    _print_messages(options, messages, more=("Redelivery count: 0",))


def _print_messages(
    options: argparse.Namespace, messages: Iterable[Message], more: Iterable[str] = ()
) -> None:
    """Prints messages. `more`: lines of pulsar-admin's output that only one verb has."""
    if options.output is None:
        parts = ["\n".join(_lines(each, more)) for each in messages]
        if parts:
            print(f"\n{'-' * 73}\n\n".join(parts))
        return
    with message_printer(options) as show:
        for each in messages:
            show(each)


def _lines(message: Message, more: Iterable[str]) -> Iterator[str]:
    """Yields the lines that pulsar-admin prints for a message."""
    entry, row = message
    id_ = message.message_id()
    id_text = f"{id_.ledger_id()}:{id_.entry_id()}"
    if id_.batch_index() < 0:
        yield f"Message ID: {id_text}"
    else:
        yield f"Batch Message ID: {id_text}:{id_.batch_index()}"
    yield f"Publish time: {message.publish_timestamp()}"
    yield f"Event time: {message.event_timestamp()}"
    yield from more
    if deliver_at_ms := entry.decoded(row)[0].deliver_at_ms:
        yield f"Deliver at time: {deliver_at_ms}"
    if properties := message.properties():
        yield "Properties:"
        yield from (f"{printable(name)}    {printable(properties[name])}" for name in properties)
    yield hex_dump(message.data())


def hex_dump(data: bytes) -> str:
    """Returns bytes as a table of 16 in a line.

    >>> print(hex_dump(b"v1"))
             +-------------------------------------------------+
             |  0  1  2  3  4  5  6  7  8  9  a  b  c  d  e  f |
    +--------+-------------------------------------------------+----------------+
    |00000000| 76 31                                           |v1              |
    +--------+-------------------------------------------------+----------------+
    """
    if not data:
        return ""
    head = f"{' ' * 9}+{'-' * 49}+\n{' ' * 9}|{_DIGITS} |\n{_RULE}"
    rows = [_hex_row(data, at) for at in range(0, len(data), 16)]
    return "\n".join((head, *rows, _RULE))


def _hex_row(data: bytes, at: int) -> str:
    row = data[at : at + 16]
    text = "".join(chr(each) if 0x20 <= each < 0x7F else "." for each in row)
    return f"|{at:08x}| {row.hex(' '):<48}|{text:<16}|"
