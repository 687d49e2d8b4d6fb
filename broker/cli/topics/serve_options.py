"""The options that `serve` and `compact` share: strategies, and what the broker emulates."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from ledgerfold.broker.cli.units import settings_of
from ledgerfold.broker.cli.verbs import Argument, argument, one_of, repeated, together
from ledgerfold.storage.errors import InvalidRequest

if TYPE_CHECKING:
    from ledgerfold.strategies.allowed import AllowedStrategies
    from ledgerfold.v1.records_pb2 import CompactionStrategy, Emulation

PROFILE_NAMES = ("documented", "pulsar-4", "kafka-4.1")
# STRATEGIES of broker/schemas/compatibility.py, which `--help` need not load.
SCHEMA_STRATEGIES = (
    *("ALWAYS_INCOMPATIBLE", "ALWAYS_COMPATIBLE", "BACKWARD", "FORWARD", "FULL"),
    *("BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE"),
)
# The two types of Pulsar's compact-topic tool.
_COMPACTOR_TYPES = ("PUBLISHING", "EVENT_TIME")


def strategy_settings(option: str) -> Argument:
    return repeated(
        option,
        "a setting of the strategy; may be repeated",
        dest="strategy_settings",
        metavar="FIELD=VALUE",
    )


def strategy_options(meaning: str, setting: str = "--set") -> Argument:
    """Describes options that select a strategy. `meaning`: its help; `setting`: the option for its
    settings.
    """
    return together(
        one_of(
            argument("--compaction-strategy NAME", meaning),
            argument(
                "--compactor-type",
                "the strategy, by its name in Pulsar's tool",
                dest="compaction_strategy",
                choices=_COMPACTOR_TYPES,
            ),
        ),
        strategy_settings(setting),
    )


ALLOW_STRATEGY = repeated(
    "--allow-strategy MODULE:CLASS",
    "allow this user-defined strategy, in addition to the entry points of installed "
    "packages; may be repeated",
)
EMULATION_OPTIONS = together(
    repeated(
        "--profile",
        "emulate this version of Pulsar or Kafka; one of each may be given",
        choices=PROFILE_NAMES,
    ),
    repeated("--emulate FIELD=true|false", "change one field of the profile; may be repeated"),
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


def emulation_of(options: argparse.Namespace) -> Emulation:
    """Returns the emulation that the options of `serve` select. Raises InvalidRequest."""
    from ledgerfold.broker.policies.profiles import DOCUMENTED, changes_of, parse_settings

    first, *others = options.profile or [None]
    if others and (DOCUMENTED in options.profile or first in others or len(others) > 1):
        raise InvalidRequest(
            "Give at most one --profile of Pulsar and one of Kafka; documented cannot be combined."
        )
    others_changes = [change for each in others for change in changes_of(each)]
    return parse_settings(first, [*others_changes, *options.emulate])
