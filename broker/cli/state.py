"""`reset` and `snapshot`: the whole state of a broker that allows it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ledgerfold.broker.cli.connecting import admin_of
from ledgerfold.broker.cli.output import ANSWER, ROWS, print_object, print_rows
from ledgerfold.broker.cli.tables import fields_of
from ledgerfold.broker.cli.verbs import Verbs, argument

if TYPE_CHECKING:
    from ledgerfold.v1.records_pb2 import Snapshot

COMMANDS = Verbs()


@COMMANDS.verb(
    "reset",
    "delete everything in a broker for tests",
    ANSWER,
    description="Deletes all topics, schemas, policies, namespaces and tenants of a broker that "
    "was started with --allow-reset or --test-clock, and ends all compactions.",
)
def _reset(options: argparse.Namespace) -> None:
    print_object(options, {"deleted_topics": admin_of(options).reset()})


SNAPSHOT = COMMANDS.command(
    "snapshot",
    "save and restore everything in a broker for tests",
    description="Saves and restores the whole state of a broker that was started with "
    "--allow-reset or --test-clock. Its clients reconnect, and compactions in progress are ended.",
)
_NAME = argument("name", "1 to 64 letters, digits, - and _")


@SNAPSHOT.verb("save", "save everything under a name", _NAME, ANSWER)
def _save(options: argparse.Namespace) -> None:
    print_object(options, _row(admin_of(options).save_snapshot(options.name)))


@SNAPSHOT.verb("list", "list the snapshots", ROWS)
def _list(options: argparse.Namespace) -> None:
    print_rows(options, map(_row, admin_of(options).list_snapshots()))


@SNAPSHOT.verb("restore", "replace everything in the broker by a snapshot", _NAME, ANSWER)
def _restore(options: argparse.Namespace) -> None:
    print_object(options, _row(admin_of(options).restore_snapshot(options.name)))


@SNAPSHOT.verb("delete", "delete a snapshot", _NAME)
def _delete(options: argparse.Namespace) -> None:
    admin_of(options).delete_snapshot(options.name)


def _row(snapshot: Snapshot) -> dict[str, Any]:
    return fields_of(snapshot, "name created_ms topics size_bytes")
