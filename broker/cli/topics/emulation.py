"""`set-emulation`, `get-emulation`, `remove-emulation` of namespaces and topics: docs/PROFILES.md.

ledgerfold namespaces set-emulation public/default --profile pulsar-4 exact_backlog=true
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.connecting import add_name, admin_of
from ledgerfold.broker.cli.output import add_answer, print_object

if TYPE_CHECKING:
    from ledgerfold.v1.records_pb2 import Emulation

Commands = argparse._SubParsersAction
PROFILE_NAMES = ("documented", "pulsar-4", "kafka-4.1")


def add_emulation_options(parser: argparse._ActionsContainer) -> None:
    """Adds the options of `serve` for the broker's level."""
    parser.add_argument(
        "--profile",
        action="append",
        default=[],
        choices=PROFILE_NAMES,
        help="emulate this version of Pulsar or Kafka; one of each may be given",
    )
    parser.add_argument(
        "--emulate",
        action="append",
        default=[],
        metavar="FIELD=true|false",
        help="change one field of the profile; may be repeated",
    )


def emulation_of(options: argparse.Namespace) -> Emulation:
    """Returns the emulation that the options of `serve` select. Raises InvalidRequest."""
    from ledgerfold.broker.policies.profiles import DOCUMENTED, changes_of, parse_settings
    from ledgerfold.storage.errors import InvalidRequest

    first, *others = options.profile or [None]
    if others and (DOCUMENTED in options.profile or first in others or len(others) > 1):
        raise InvalidRequest(
            "--profile takes one of Pulsar and one of Kafka; documented excludes the others."
        )
    others_changes = [change for each in others for change in changes_of(each)]
    return parse_settings(first, [*others_changes, *options.emulate])


def add_emulation_verbs(verbs: Commands[argparse.ArgumentParser], of: str) -> None:
    change = verbs.add_parser("set-emulation", help="set the version of Pulsar or Kafka to emulate")
    add_name(change, of)
    change.add_argument("--profile", choices=PROFILE_NAMES, help="reset to this profile")
    change.add_argument("fields", nargs="*", metavar="FIELD=true|false", help="as in PROFILES.md")
    change.set_defaults(run=_set, scope=of)
    get = verbs.add_parser("get-emulation", help="show the fields that are set")
    add_name(get, of)
    get.add_argument("-ap", "--applied", action="store_true", help="all effective fields")
    get.set_defaults(run=_get, scope=of)
    add_answer(get)
    remove = verbs.add_parser("remove-emulation", help="inherit fields")
    add_name(remove, of)
    remove.add_argument("fields", nargs="*", metavar="FIELD", help="default: all")
    remove.set_defaults(run=_remove, scope=of)


def _set(options: argparse.Namespace) -> None:
    from ledgerfold.broker.policies.profiles import parse_policies
    from ledgerfold.storage.errors import InvalidRequest

    if options.profile is None and not options.fields:
        raise InvalidRequest("Give a --profile, fields like exact_backlog=false, or both.")
    values = parse_policies(options.profile, options.fields)
    topic, namespace = _scope(options)
    admin_of(options).update_policies(topic=topic, namespace=namespace, values=values)


def _get(options: argparse.Namespace) -> None:
    topic, namespace = _scope(options)
    policies = admin_of(options).policies(topic=topic, namespace=namespace, applied=options.applied)
    document = {field.name: value for field, value in policies.emulation.ListFields()}
    if policies.HasField("retain_null_key"):
        document["retain_null_key"] = policies.retain_null_key
    print_object(options, document)


def _remove(options: argparse.Namespace) -> None:
    wanted = options.fields or ["emulation", "retain_null_key"]
    whole = ("emulation", "retain_null_key")
    remove = [name if name in whole else f"emulation.{name}" for name in wanted]
    topic, namespace = _scope(options)
    admin_of(options).update_policies(topic=topic, namespace=namespace, remove=remove)


def _scope(options: argparse.Namespace) -> tuple[str, str]:
    """Returns the topic and the namespace; one of them is empty."""
    name: str = getattr(options, options.scope)
    return (name, "") if options.scope == "topic" else ("", name)
