"""`topics truncate` and `topics terminate`: pulsar-admin's verbs and messages."""

from __future__ import annotations

import argparse

from ledgerfold.broker.cli.connecting import add_name, admin_of
from ledgerfold.broker.cli.output import add_answer, message_id_text, print_object

Commands = argparse._SubParsersAction


def add_operation_verbs(verbs: Commands[argparse.ArgumentParser]) -> None:
    truncate = verbs.add_parser(
        "truncate", help="delete all data of a topic, and move subscriptions to the end"
    )
    add_name(truncate)
    truncate.set_defaults(run=_truncate)
    terminate = verbs.add_parser("terminate", help="permanently forbid publishing to a topic")
    add_name(terminate)
    terminate.set_defaults(run=_terminate)
    add_answer(terminate)


def _truncate(options: argparse.Namespace) -> None:
    admin_of(options).truncate(options.topic)


def _terminate(options: argparse.Namespace) -> None:
    last = admin_of(options).terminate(options.topic)
    last_id = message_id_text(last)
    print_object(options, {"id": last_id}, f"Topic successfully terminated at {last_id}")
