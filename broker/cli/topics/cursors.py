"""`topics expire-messages`, `reset-cursor`, `skip` and `clear-backlog`: pulsar-admin's verbs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.connecting import SUBSCRIPTION, TOPIC, admin_of
from ledgerfold.broker.cli.output import ANSWER, print_object
from ledgerfold.broker.cli.start_positions import ID, parse_message_id, topic_of
from ledgerfold.broker.cli.units import TIME, parse_positive
from ledgerfold.broker.cli.verbs import Verbs, argument, defaults, flag, one_of
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.message_ids import FORM
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client import MessageId

VERBS = Verbs()
_AGE = argument(
    "-t --expire-time", "expire messages published longer ago: 100, 10m, 3d", **TIME, required=True
)


# The lower decorator declares the first verb.
@VERBS.verb(
    "expire-messages-all-subscriptions",
    "expire messages older than a time, on every subscription",
    *(TOPIC, defaults(subscription=""), _AGE, ANSWER),
)
@VERBS.verb(
    "expire-messages", "expire messages older than a time", TOPIC, SUBSCRIPTION, _AGE, ANSWER
)
def _expire(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    expired = admin.expire_messages(options.topic, options.subscription, options.expire_time)
    text = f"{counted(expired, 'entry', 'entries')} expired"
    print_object(options, {"entries_expired": expired}, text)


@VERBS.verb(
    "reset-cursor", "move a subscription to a message, or back to a time", TOPIC, SUBSCRIPTION
)
@one_of(
    argument("-t --time", "to this time ago", **TIME),
    argument(f"-m --message-id earliest|latest|{ID}", "to this message"),
    required=True,
)
@flag("-e --exclude-reset-position", "start after the message")
def _reset(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    if options.time is not None:
        admin.reset_cursor(options.topic, options.subscription, ago_ms=options.time)
    else:
        message_id = _message_id(options.message_id)
        admin.reset_cursor(
            topic_of(options.topic, message_id),
            options.subscription,
            message_id,
            inclusive=not options.exclude_reset_position,
        )


def _message_id(text: str) -> MessageId:
    message_id = parse_message_id(text)
    if message_id is None:
        raise InvalidRequest(f"{text!r} is not a message id: expected earliest, latest or {FORM}.")
    return message_id


@VERBS.verb("skip", "skip entries of the backlog", TOPIC, SUBSCRIPTION)
@argument("-n --count", "the number of entries", type=parse_positive, required=True)
@ANSWER
def _skip(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    _print_skipped(options, admin.skip_messages(options.topic, options.subscription, options.count))


@VERBS.verb("clear-backlog", "skip the whole backlog", TOPIC, SUBSCRIPTION, ANSWER)
def _clear(options: argparse.Namespace) -> None:
    _print_skipped(options, admin_of(options).clear_backlog(options.topic, options.subscription))


def _print_skipped(options: argparse.Namespace, skipped: int) -> None:
    text = f"{counted(skipped, 'entry', 'entries')} skipped"
    print_object(options, {"entries_skipped": skipped}, text)
