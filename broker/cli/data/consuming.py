"""`consume` and `read`: print messages, with or without a subscription.

ledgerfold consume prices -s audit -p Earliest -n 0 --until-end
ledgerfold read prices --read-compacted --until-end -o jsonl | jq .value
ledgerfold read prices --from 12:3 -i -n 1
ledgerfold read addresses --offset 3 --isolation read_committed

Options are those of `pulsar-client consume` and `read` where they exist. Two differences help with
mistyped names: `consume` reports when it creates the topic, and `read` creates one only with
`--create`. Received messages are flushed to the output before the command waits for more, and
acknowledged only after that.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.connecting import TOPIC, admin_of, client_of
from ledgerfold.broker.cli.output import message_printer, output
from ledgerfold.broker.cli.start_positions import ID, parse_start, topic_of
from ledgerfold.broker.cli.units import COUNT, parse_count
from ledgerfold.broker.cli.verbs import Verbs, argument, flag, together
from ledgerfold.storage.errors import (
    InvalidRequest,
    NotAllowed,
    Timeout,
    TopicIsPartitioned,
    TopicNotFound,
)

if TYPE_CHECKING:
    from ledgerfold.broker.client import Consumer, Message

    Receive = Callable[[int | None], Message]

COMMANDS = Verbs()
_FIRST = "earliest"
_NUMBER = "-n --number --num-messages"
_TYPES = ("Exclusive", "Shared", "Failover", "Key_Shared")
# Maximum delay of a message that the broker has already sent.
_IN_FLIGHT_MS = 200


_COMMON = together(
    flag("--read-compacted", "read the compacted view"),
    flag("--until-end", "stop at the end of the topic"),
    output("text", "json", "jsonl"),
)


@COMMANDS.verb("consume", "consume messages through a subscription", TOPIC)
@argument(
    "-s --subscription --subscription-name",
    "the subscription; created if it does not exist",
    required=True,
)
@argument("-t --type --subscription-type", "default Exclusive", default="Exclusive", choices=_TYPES)
@argument(
    "-p --position --subscription-position",
    "start of a new subscription; default Latest",
    default="Latest",
    choices=("Latest", "Earliest"),
)
@argument(_NUMBER, "0: no limit; default 1", type=parse_count, default=1)
@flag("--no-ack", "do not acknowledge messages")
@_COMMON
def _consume(options: argparse.Namespace) -> None:
    from ledgerfold.broker.client import ConsumerType, InitialPosition

    if not options.subscription:
        raise InvalidRequest("--subscription must not be empty.")
    if options.read_compacted and options.type in ("Shared", "Key_Shared"):
        raise NotAllowed(
            "--read-compacted works with --type Exclusive and Failover, and with `read`: one "
            "client must read a compacted view in order."
        )
    with client_of(options) as client:
        missing = _missing(options, options.topic)
        consumer = client.subscribe(
            options.topic,
            options.subscription,
            consumer_type=ConsumerType[options.type.replace("_", "")],
            initial_position=InitialPosition[options.position],
            is_read_compacted=options.read_compacted,
        )
        if missing is not None:
            print(f"Topic {missing.topic} did not exist and was created.", file=sys.stderr)
        partitions = client.get_topic_partitions(options.topic)
        has_more = functools.partial(_has_more, options, partitions, consumer)
        with message_printer(options) as show:
            for message in _messages(options, consumer.receive, has_more, _IN_FLIGHT_MS):
                show(message)
                if not options.no_ack:
                    sys.stdout.flush()
                    consumer.acknowledge(message)


def _has_more(options: argparse.Namespace, partitions: list[str], consumer: Consumer) -> bool:
    """Returns whether messages are left for this consumer.

    The last position alone is not enough: earlier messages may be acknowledged or belong to other
    consumers. So the broker's read position is checked, too.
    """
    if not consumer.has_message_available():
        return False
    with admin_of(options) as admin:
        internals = [admin.internal_stats(name) for name in partitions]
    return not all(_is_all_sent(internal, options.subscription) for internal in internals)


def _is_all_sent(internal: dict[str, Any], subscription: str) -> bool:
    cursor = internal["cursors"][subscription]
    return _position(cursor["readPosition"]) > _position(internal["lastConfirmedEntry"])


def _position(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(":")))


@COMMANDS.verb("read", "read messages without a subscription", TOPIC)
@argument(
    f"-m --from --start-message-id earliest|latest|{ID}|TIME",
    "start; TIME: ms since the epoch, or ISO 8601; default earliest",
    dest="start",
    default=_FIRST,
)
@flag("-i --inclusive --start-message-id-inclusive", "include the message at --from")
@argument(
    "--offset", "for a Kafka topic: start at that offset, or the next one that exists", **COUNT
)
@argument(
    "--isolation",
    "for a Kafka topic: the isolation level; default read_uncommitted",
    choices=("read_uncommitted", "read_committed"),
    default="read_uncommitted",
)
@argument(_NUMBER, "default 0: no limit", type=parse_count, default=0)
@flag("--create", "create the topic if it does not exist")
@_COMMON
def _read(options: argparse.Namespace) -> None:
    if options.offset is not None and options.start != _FIRST:
        raise InvalidRequest("Give only one of --from and --offset.")
    start = parse_start(options.start)
    topic = options.topic if isinstance(start, int) else topic_of(options.topic, start)
    if not options.create and (missing := _missing(options, topic)) is not None:
        # A reader would create the topic and wait without end.
        is_named = topic == options.topic
        raise TopicNotFound(missing.topic, "--create creates it.") if is_named else missing
    with client_of(options) as client:
        at_time = start if isinstance(start, int) else None
        at_id = None if isinstance(start, int) or options.offset is not None else start
        reader = client.create_reader(
            topic,
            at_id,
            is_read_compacted=options.read_compacted,
            start_message_id_inclusive=options.inclusive,
            start_offset=options.offset,
            start_time_ms=at_time,
            isolation=options.isolation,
        )
        # A reader's answer about the end is exact: no message is in flight then.
        with message_printer(options) as show:
            for message in _messages(options, reader.read_next, reader.has_message_available, 0):
                show(message)


def _missing(options: argparse.Namespace, topic: str) -> TopicNotFound | None:
    """Returns the error of a topic that does not exist, else None."""
    with admin_of(options) as admin:
        try:
            admin.stats(topic)
        except TopicIsPartitioned:
            return None
        except TopicNotFound as error:
            return error
    return None


def _messages(
    options: argparse.Namespace, receive: Receive, has_more: Callable[[], bool], grace_ms: int
) -> Iterator[Message]:
    """Yields up to -n messages, and with --until-end stops at the end of the topic."""
    count = 0
    while options.number == 0 or count < options.number:
        message = _received(receive, 0)
        if message is None:
            sys.stdout.flush()
            if options.until_end:
                message = _next_or_end(receive, has_more, grace_ms)
            else:
                message = receive(None)
        if message is None:
            return
        yield message
        count += 1


def _next_or_end(receive: Receive, has_more: Callable[[], bool], grace_ms: int) -> Message | None:
    """Returns the next message, or None at the end. A message may arrive `grace_ms` after
    `has_more`.
    """
    while True:
        is_end = not has_more()
        message = _received(receive, grace_ms)
        if message is not None or is_end:
            return message


def _received(receive: Receive, timeout_ms: int) -> Message | None:
    try:
        return receive(timeout_ms)
    except Timeout:
        return None
