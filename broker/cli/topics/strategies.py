"""Strategies on the command line: options of `serve` and `compact`, verbs of topics and namespaces.

ledgerfold topics set-compaction-strategy prices keep-n --set n=3
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.connecting import add_name, admin_of
from ledgerfold.broker.cli.output import add_answer, print_object
from ledgerfold.broker.cli.units import settings_of
from ledgerfold.storage.errors import InvalidRequest

if TYPE_CHECKING:
    from ledgerfold.strategies.allowed import AllowedStrategies
    from ledgerfold.v1.records_pb2 import CompactionStrategy

Commands = argparse._SubParsersAction
# The two types of Pulsar's compact-topic tool.
_COMPACTOR_TYPES = ("PUBLISHING", "EVENT_TIME")


def add_strategy_options(
    group: argparse._ArgumentGroup, meaning: str, setting: str = "--set"
) -> None:
    """Adds options that select a strategy. `meaning`: its help; `setting`: the option for its
    settings.
    """
    either = group.add_mutually_exclusive_group()
    either.add_argument("--compaction-strategy", metavar="NAME", help=meaning)
    either.add_argument(
        "--compactor-type",
        dest="compaction_strategy",
        choices=_COMPACTOR_TYPES,
        help="the strategy, by the name in Pulsar's tool",
    )
    _add_settings(group, setting)


def _add_settings(parser: argparse._ActionsContainer, option: str) -> None:
    parser.add_argument(
        option,
        dest="strategy_settings",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="a setting of the strategy; may be repeated",
    )


def add_allow_strategy(add: Callable[..., object]) -> None:
    add(
        "--allow-strategy",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="allow this user-defined strategy, in addition to the entry points of installed "
        "packages; may be repeated",
    )


def allowed_of(options: argparse.Namespace, *named: str) -> AllowedStrategies:
    """Returns the strategies that the options allow, and those in `named`.

    Raises InvalidRequest.
    """
    from ledgerfold.strategies.allowed import AllowedStrategies, parse_allowed

    return AllowedStrategies(tuple(map(parse_allowed, options.allow_strategy))).also(*named)


def strategy_of(options: argparse.Namespace) -> CompactionStrategy | None:
    """Returns the strategy that the options name, or None.

    Raises InvalidRequest for an unknown name or an invalid setting.
    """
    if options.compaction_strategy is None:
        if options.strategy_settings:
            raise InvalidRequest("Settings require --compaction-strategy.")
        return None
    from ledgerfold.strategies.catalogue import checked
    from ledgerfold.v1.records_pb2 import CompactionStrategy

    settings = settings_of(options.strategy_settings)
    return checked(CompactionStrategy(name=options.compaction_strategy, settings=settings))


def strategy_and_service_of(
    options: argparse.Namespace,
) -> tuple[CompactionStrategy | None, str | None]:
    """Returns the strategy, as strategy_of, and the compaction service.

    Pulsar's factory names select a strategy instead of a service.
    """
    strategy, service = strategy_of(options), options.compaction_service
    if service is None:
        return strategy, None
    from ledgerfold.strategies.catalogue import ALIASES
    from ledgerfold.v1.records_pb2 import CompactionStrategy

    if service not in ALIASES:
        return strategy, service
    if strategy is not None:
        raise InvalidRequest(f"--compaction-service {service} already selects a strategy.")
    return CompactionStrategy(name=ALIASES[service]), None


def add_strategy_verbs(verbs: Commands[argparse.ArgumentParser], of: str) -> None:
    change = verbs.add_parser(
        "set-compaction-strategy",
        help="set the strategy that decides what compaction keeps of a key",
    )
    add_name(change, of)
    change.add_argument("strategy", help="publishing-order, event-time...: docs/STRATEGIES.md")
    _add_settings(change, "--set")
    change.set_defaults(run=_set, scope=of)
    get = verbs.add_parser("get-compaction-strategy", help="show the strategy's name and settings")
    add_name(get, of)
    get.add_argument("-ap", "--applied", action="store_true", help="including an inherited one")
    get.set_defaults(run=_get, scope=of)
    add_answer(get)
    remove = verbs.add_parser("remove-compaction-strategy", help="inherit the strategy")
    add_name(remove, of)
    remove.set_defaults(run=_remove, scope=of)


def _set(options: argparse.Namespace) -> None:
    settings = settings_of(options.strategy_settings)
    topic, namespace = _scope(options)
    admin_of(options).set_compaction_strategy(
        options.strategy, settings, topic=topic, namespace=namespace
    )


def _get(options: argparse.Namespace) -> None:
    topic, namespace = _scope(options)
    found = admin_of(options).compaction_strategy(
        topic=topic, namespace=namespace, applied=options.applied
    )
    if found is None:
        print_object(options, {"name": None, "settings": {}}, "null")
    else:
        print_object(options, {"name": found.name, "settings": dict(found.settings)})


def _remove(options: argparse.Namespace) -> None:
    topic, namespace = _scope(options)
    admin_of(options).remove_compaction_strategy(topic=topic, namespace=namespace)


def _scope(options: argparse.Namespace) -> tuple[str, str]:
    """Returns the topic and the namespace; one of them is empty."""
    name: str = getattr(options, options.scope)
    return (name, "") if options.scope == "topic" else ("", name)
