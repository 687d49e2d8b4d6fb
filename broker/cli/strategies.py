"""Strategies on the command line: options of `serve` and `compact`, verbs of topics and namespaces.

ledgerfold topics set-compaction-strategy prices keep-n --set n=3
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.connecting import add_name, admin_of
from ledgerfold.broker.cli.output import add_answer, print_object
from ledgerfold.storage.errors import InvalidRequest

if TYPE_CHECKING:
    from ledgerfold.strategies.allowed import AllowedStrategies
    from ledgerfold.v1.records_pb2 import CompactionStrategy

Commands = argparse._SubParsersAction
# Pulsar's names for two of them, as its own tool takes them.
_COMPACTOR_TYPES = ("PUBLISHING", "EVENT_TIME")


def add_strategy_options(
    group: argparse._ArgumentGroup, meaning: str, setting: str = "--set"
) -> None:
    """`meaning`: of the strategy that is named here. `setting`: the option for its settings."""
    either = group.add_mutually_exclusive_group()
    either.add_argument("--compaction-strategy", metavar="NAME", help=meaning)
    either.add_argument(
        "--compactor-type",
        dest="compaction_strategy",
        choices=_COMPACTOR_TYPES,
        help="the strategy, by the name that Pulsar's tool has for it",
    )
    _add_settings(group, setting)


def _add_settings(parser: argparse._ActionsContainer, option: str) -> None:
    parser.add_argument(
        option,
        dest="strategy_settings",
        action="append",
        default=[],
        metavar="FIELD=VALUE",
        help="one setting of the strategy is given; may be repeated",
    )


def add_allow_strategy(add: Callable[..., object]) -> None:
    add(
        "--allow-strategy",
        action="append",
        default=[],
        metavar="MODULE:CLASS",
        help="this strategy of your own may be loaded, beside the entry points of installed "
        "packages; may be repeated",
    )


def allowed_of(options: argparse.Namespace, *named: str) -> AllowedStrategies:
    """What the options allow, and `named`, which the same command line asks for.

    Raises InvalidRequest.
    """
    from ledgerfold.strategies.allowed import AllowedStrategies, parse_allowed

    return AllowedStrategies(tuple(map(parse_allowed, options.allow_strategy))).also(*named)


def strategy_of(options: argparse.Namespace) -> CompactionStrategy | None:
    """What the options name; None: nothing. Raises InvalidRequest, with the strategy's own words
    for a name or a setting that cannot be.
    """
    if options.compaction_strategy is None:
        if options.strategy_settings:
            raise InvalidRequest("Settings belong to a strategy: name it, too.")
        return None
    from ledgerfold.strategies.catalogue import checked
    from ledgerfold.v1.records_pb2 import CompactionStrategy

    settings = settings_of(options.strategy_settings)
    return checked(CompactionStrategy(name=options.compaction_strategy, settings=settings))


def strategy_and_service_of(
    options: argparse.Namespace,
) -> tuple[CompactionStrategy | None, str | None]:
    """As strategy_of, and the compaction service. Pulsar's names for services are strategies."""
    strategy, service = strategy_of(options), options.compaction_service
    if service is None:
        return strategy, None
    from ledgerfold.strategies.catalogue import ALIASES
    from ledgerfold.v1.records_pb2 import CompactionStrategy

    if service not in ALIASES:
        return strategy, service
    if strategy is not None:
        raise InvalidRequest(f"--compaction-service {service} names the strategy already.")
    return CompactionStrategy(name=ALIASES[service]), None


def settings_of(given: Iterable[str]) -> dict[str, str]:
    """From "FIELD=VALUE" each. Raises InvalidRequest.

    >>> settings_of(["property=a=b"])
    {'property': 'a=b'}
    """
    settings: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not (name and equals):
            raise InvalidRequest(f"{each!r} is no setting: write it as FIELD=VALUE.")
        if name in settings:
            raise InvalidRequest(f"Setting {name!r} is given twice.")
        settings[name] = value
    return settings


def add_strategy_verbs(verbs: Commands[argparse.ArgumentParser], of: str) -> None:
    change = verbs.add_parser("set-compaction-strategy", help="what a compaction keeps of a key")
    add_name(change, of)
    change.add_argument("strategy", help="publishing-order, event-time...: docs/STRATEGIES.md")
    _add_settings(change, "--set")
    change.set_defaults(run=_set, scope=of)
    get = verbs.add_parser("get-compaction-strategy", help="its name and its settings")
    add_name(get, of)
    get.add_argument("-ap", "--applied", action="store_true", help="as inherited")
    get.set_defaults(run=_get, scope=of)
    add_answer(get)
    remove = verbs.add_parser("remove-compaction-strategy", help="inherit it")
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
    """The topic and the namespace; one of them is empty."""
    name: str = getattr(options, options.scope)
    return (name, "") if options.scope == "topic" else ("", name)
