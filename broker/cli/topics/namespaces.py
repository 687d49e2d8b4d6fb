"""`tenants`, the verbs of `namespaces` except policies, and permissions of namespaces and topics.

ledgerfold tenants create acme
ledgerfold namespaces create acme/shop
ledgerfold namespaces grant-permission acme/shop --role billing --actions produce,consume
ledgerfold topics permissions acme/shop/orders
"""

from __future__ import annotations

import argparse

from ledgerfold.broker.cli.connecting import admin_of
from ledgerfold.broker.cli.output import ANSWER, print_answer, print_object
from ledgerfold.broker.cli.topics.policies import scope_of
from ledgerfold.broker.cli.verbs import Verbs, argument, repeated

NAMESPACES, TENANTS = Verbs(), Verbs()
_NAMESPACE = argument("namespace", "TENANT/NAMESPACE")
_TENANT = argument("tenant", "NAME")
_ADMIN_ROLES = repeated(
    "-r --admin-role", "a role that may administer the tenant", dest="admin_roles"
)


@TENANTS.verb("list", "list tenants", ANSWER)
def _list_tenants(options: argparse.Namespace) -> None:
    tenants = admin_of(options).list_tenants()
    print_answer(options, ({"tenant": each} for each in tenants), tenants)


@TENANTS.verb("create", "create a tenant", _TENANT)
@_ADMIN_ROLES
def _create_tenant(options: argparse.Namespace) -> None:
    admin_of(options).create_tenant(options.tenant, admin_roles=options.admin_roles)


@TENANTS.verb("update", "replace the roles that may administer a tenant", _TENANT)
@_ADMIN_ROLES
def _update_tenant(options: argparse.Namespace) -> None:
    admin_of(options).update_tenant(options.tenant, admin_roles=options.admin_roles)


@TENANTS.verb("delete", "delete a tenant without namespaces", _TENANT)
def _delete_tenant(options: argparse.Namespace) -> None:
    admin_of(options).delete_tenant(options.tenant)


@NAMESPACES.verb("list", "list namespaces", ANSWER)
@argument("tenant", "default: of all tenants", nargs="?", default="")
def _list(options: argparse.Namespace) -> None:
    namespaces = admin_of(options).list_namespaces(options.tenant)
    print_answer(options, ({"namespace": each} for each in namespaces), namespaces)


@NAMESPACES.verb("create", "create a namespace of an existing tenant", _NAMESPACE)
def _create(options: argparse.Namespace) -> None:
    admin_of(options).create_namespace(options.namespace)


@NAMESPACES.verb("delete", "delete a namespace without topics, and its policies", _NAMESPACE)
def _delete(options: argparse.Namespace) -> None:
    admin_of(options).delete_namespace(options.namespace)


PERMISSIONS = Verbs()
_ROLE = argument("--role ROLE", "the role of clients", required=True)


@PERMISSIONS.verb("permissions", "show the permissions of roles", ANSWER)
def _permissions(options: argparse.Namespace) -> None:
    permissions = admin_of(options).permissions(**scope_of(options))
    lines = (f"{role}  {', '.join(actions)}" for role, actions in sorted(permissions.items()))
    print_object(options, permissions, "\n".join(lines))


@PERMISSIONS.verb("grant-permission", "set the permissions of a role", _ROLE)
@argument("--actions ACTIONS", "produce, consume, or both with a comma", required=True)
def _grant(options: argparse.Namespace) -> None:
    actions = [each.strip() for each in options.actions.split(",")]
    admin_of(options).grant_permission(options.role, actions, **scope_of(options))


@PERMISSIONS.verb("revoke-permission", "remove the permissions of a role", _ROLE)
def _revoke(options: argparse.Namespace) -> None:
    admin_of(options).revoke_permission(options.role, **scope_of(options))
