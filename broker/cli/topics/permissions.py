"""`grant-permission`, `revoke-permission` and `permissions`, of `namespaces` and `topics`.

ledgerfold namespaces grant-permission acme/shop --role billing --actions produce,consume
ledgerfold topics permissions acme/shop/orders
"""

from __future__ import annotations

import argparse
from typing import Any

from ledgerfold.broker.cli.connecting import admin_of
from ledgerfold.broker.cli.output import ANSWER, print_object
from ledgerfold.broker.cli.verbs import Verbs, argument

PERMISSIONS = Verbs()
_ROLE = argument("--role ROLE", "the role of clients", required=True)


def _scope(options: argparse.Namespace) -> dict[str, Any]:
    return {options.scope: getattr(options, options.scope)}


@PERMISSIONS.verb("permissions", "show what roles were granted", ANSWER)
def _permissions(options: argparse.Namespace) -> None:
    found = admin_of(options).permissions(**_scope(options))
    lines = (f"{role}  {', '.join(actions)}" for role, actions in sorted(found.items()))
    print_object(options, found, "\n".join(lines))


@PERMISSIONS.verb("grant-permission", "replace what a role may do", _ROLE)
@argument("--actions ACTIONS", "produce, consume, or both with a comma", required=True)
def _grant(options: argparse.Namespace) -> None:
    actions = [each.strip() for each in options.actions.split(",")]
    admin_of(options).grant_permission(options.role, actions, **_scope(options))


@PERMISSIONS.verb("revoke-permission", "remove what a role was granted", _ROLE)
def _revoke(options: argparse.Namespace) -> None:
    admin_of(options).revoke_permission(options.role, **_scope(options))
