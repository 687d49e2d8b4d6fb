"""`topics expire-messages`, `reset-cursor`, `skip` and `clear-backlog`: pulsar-admin's verbs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.connecting import add_name, admin_of
from ledgerfold.broker.cli.output import add_answer, print_object
from ledgerfold.broker.cli.start_positions import ID, parse_message_id, topic_of
from ledgerfold.broker.cli.units import parse_positive, parse_time_ms
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.message_ids import FORM
from ledgerfold.storage.text import counted

if TYPE_CHECKING:
    from ledgerfold.broker.client import MessageId

Commands = argparse._SubParsersAction


def add_cursor_verbs(verbs: Commands[argparse.ArgumentParser]) -> None:
    expire = _verb(verbs, "expire-messages", "expire messages older than a time")
    _add_age(expire)
    expire.set_defaults(run=_expire)
    add_answer(expire)
    every = verbs.add_parser(
        "expire-messages-all-subscriptions",
        help="expire messages older than a time, on every subscription",
    )
    add_name(every)
    _add_age(every)
    every.set_defaults(run=_expire, subscription="")
    add_answer(every)
    reset = _verb(verbs, "reset-cursor", "move a subscription to a message, or back to a time")
    to = reset.add_mutually_exclusive_group(required=True)
    to.add_argument("-t", "--time", type=parse_time_ms, metavar="TIME", help="to this time ago")
    to.add_argument("-m", "--message-id", metavar=f"earliest|latest|{ID}", help="to this message")
    reset.add_argument(
        "-e", "--exclude-reset-position", action="store_true", help="start after the message"
    )
    reset.set_defaults(run=_reset)
    skip = _verb(verbs, "skip", "skip entries of the backlog")
    skip.add_argument(
        "-n", "--count", type=parse_positive, required=True, help="the number of entries"
    )
    skip.set_defaults(run=_skip)
    add_answer(skip)
    clear = _verb(verbs, "clear-backlog", "skip the whole backlog")
    clear.set_defaults(run=_clear)
    add_answer(clear)


def _verb(
    verbs: Commands[argparse.ArgumentParser], name: str, text: str
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text)
    add_name(parser)
    parser.add_argument("-s", "--subscription", required=True, help="the subscription's name")
    return parser


def _add_age(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        *("-t", "--expire-time"),
        type=parse_time_ms,
        required=True,
        metavar="TIME",
        help="expire messages published longer ago: 100, 10m, 3d",
    )


def _expire(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    expired = admin.expire_messages(options.topic, options.subscription, options.expire_time)
    text = f"{counted(expired, 'entry', 'entries')} expired"
    print_object(options, {"entries_expired": expired}, text)


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


def _skip(options: argparse.Namespace) -> None:
    admin = admin_of(options)
    _print_skipped(options, admin.skip_messages(options.topic, options.subscription, options.count))


def _clear(options: argparse.Namespace) -> None:
    _print_skipped(options, admin_of(options).clear_backlog(options.topic, options.subscription))


def _print_skipped(options: argparse.Namespace, skipped: int) -> None:
    text = f"{counted(skipped, 'entry', 'entries')} skipped"
    print_object(options, {"entries_skipped": skipped}, text)
