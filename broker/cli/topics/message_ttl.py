"""`set-message-ttl`, `get-message-ttl`, `remove-message-ttl`, of namespaces and topics."""

from __future__ import annotations

import argparse

from ledgerfold.broker.cli.connecting import add_name, admin_of
from ledgerfold.broker.cli.output import add_answer, print_object
from ledgerfold.broker.cli.units import parse_time_ms

Commands = argparse._SubParsersAction
_FIELD = "message_ttl_ms"


def add_message_ttl_verbs(verbs: Commands[argparse.ArgumentParser], of: str) -> None:
    change = verbs.add_parser("set-message-ttl", help="expire messages older than this")
    add_name(change, of)
    change.add_argument(
        *("-t", "-ttl", "--ttl", "--messageTTL"),
        dest="ttl",
        type=parse_time_ms,
        required=True,
        metavar="TIME",
        help="100, 10m, 3d; 0: never",
    )
    change.set_defaults(run=_set, scope=of)
    get = verbs.add_parser("get-message-ttl", help="show the message TTL in seconds")
    add_name(get, of)
    get.add_argument("-ap", "--applied", action="store_true", help="including an inherited one")
    get.set_defaults(run=_get, scope=of)
    add_answer(get)
    remove = verbs.add_parser("remove-message-ttl", help="inherit the message TTL")
    add_name(remove, of)
    remove.set_defaults(run=_remove, scope=of)


def _set(options: argparse.Namespace) -> None:
    from ledgerfold.v1.records_pb2 import Policies

    values = Policies(message_ttl_ms=options.ttl)
    topic, namespace = _scope(options)
    admin_of(options).update_policies(topic=topic, namespace=namespace, values=values)


def _get(options: argparse.Namespace) -> None:
    topic, namespace = _scope(options)
    policies = admin_of(options).policies(topic=topic, namespace=namespace, applied=options.applied)
    ttl_s = policies.message_ttl_ms / 1000 if policies.HasField(_FIELD) else None
    text = "null" if ttl_s is None else f"{ttl_s:g}"
    print_object(options, {"message_ttl_seconds": ttl_s}, text)


def _remove(options: argparse.Namespace) -> None:
    topic, namespace = _scope(options)
    admin_of(options).update_policies(topic=topic, namespace=namespace, remove=[_FIELD])


def _scope(options: argparse.Namespace) -> tuple[str, str]:
    """Returns the topic and the namespace; one of them is empty."""
    name: str = getattr(options, options.scope)
    return (name, "") if options.scope == "topic" else ("", name)
