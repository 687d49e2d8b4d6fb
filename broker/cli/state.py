"""`reset`: the whole state of a broker that allows it."""

from __future__ import annotations

import argparse

from ledgerfold.broker.cli.connecting import admin_of
from ledgerfold.broker.cli.output import ANSWER, print_object
from ledgerfold.broker.cli.verbs import Verbs

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
