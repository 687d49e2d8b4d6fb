"""Settings by Kafka's names: of a topic, of a running broker, and of a starting one.

ledgerfold topics create orders --cleanup-policy compact --config segment.ms=60000
ledgerfold topics set-config orders min.cleanable.dirty.ratio=0.1
ledgerfold cleaner set-config log.cleaner.threads=2
ledgerfold serve --data DIR --kafka-config server.properties --kafka-config log.roll.hours=1

Errors have Kafka's messages.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from ledgerfold.broker.cli.connecting import admin_of
from ledgerfold.broker.cli.output import ROWS, print_rows
from ledgerfold.broker.cli.settings_files import read_properties
from ledgerfold.broker.cli.units import kafka_settings_of
from ledgerfold.broker.cli.verbs import Argument, Verbs, argument, flag, one_of, repeated, together
from ledgerfold.storage.errors import InvalidRequest
from ledgerfold.storage.paths import absolute_path
from ledgerfold.storage.text import counted

_POLICY = "cleanup.policy"


# The options of `topics create` and `create-partitioned-topic`.
CREATION_OPTIONS = together(
    argument(
        "--cleanup-policy compact|delete|compact,delete", "create a Kafka topic (docs/KAFKA.md)"
    ),
    repeated("--config NAME=VALUE", "a Kafka topic's setting, by Kafka's name; may be repeated"),
)
# An option of `serve`.
KAFKA_CONFIG = repeated(
    "--kafka-config FILE|NAME=VALUE",
    "broker settings for Kafka topics: a server.properties file, or one setting; may be "
    "repeated, the last value is used",
)


def created_with(options: argparse.Namespace) -> dict[str, str] | None:
    """Returns the settings of the Kafka topic to create; None: a Pulsar topic."""
    config = kafka_settings_of(options.config)
    if options.cleanup_policy is None and not config:
        return None
    if (options.cleanup_policy is None) == (_POLICY not in config):
        raise InvalidRequest(
            "A Kafka topic needs one cleanup policy: --cleanup-policy compact, delete or "
            "compact,delete."
        )
    return config if options.cleanup_policy is None else {_POLICY: options.cleanup_policy, **config}


def config_verbs(subject: str, of: Argument) -> Verbs:
    """Returns the verbs for the settings of a topic, or of the broker (topic "")."""
    verbs = Verbs(of)
    verbs.verb("set-config", f"change {subject}, all or none")(_set)
    verbs.verb("get-config", f"show {subject}")(_get)
    verbs.verb("unset-config", f"reset {subject} to inherited values")(_unset)
    return verbs


@argument("pairs NAME=VALUE", "settings by Kafka's names", nargs="+")
def _set(options: argparse.Namespace) -> None:
    values = kafka_settings_of(options.pairs)
    if not options.topic:
        _check_known(values)
    admin_of(options).kafka.change_config(options.topic, values=values)


@argument("names NAME", "settings to reset", nargs="+")
def _unset(options: argparse.Namespace) -> None:
    _check_known(options.names, of_topic=bool(options.topic))
    admin_of(options).kafka.change_config(options.topic, unset=options.names)


@argument("name NAME", "show only this setting's value", nargs="?")
@one_of(
    flag("--all", "include the documentation of each setting"),
    flag("--set", "only settings of the topic itself, or of the broker itself"),
)
@ROWS
def _get(options: argparse.Namespace) -> None:
    config = admin_of(options).kafka.config(options.topic)
    own = "topic" if options.topic else "broker"
    if options.name is not None:
        if options.name not in config:
            raise InvalidRequest(f"Kafka has no {own} setting {options.name} for logs.")
        if options.output is None:
            print(config[options.name].value)
            return
        config = {options.name: config[options.name]}
    print_rows(
        options,
        (
            {"name": each.name, "value": each.value, "unit": each.unit, "source": each.source}
            | ({"meaning": each.doc} if options.all else {})
            for each in config.values()
            if each.source == own or not options.set
        ),
    )


def serve_config(options: argparse.Namespace) -> dict[str, str]:
    """Returns the settings of `serve` for logs. Raises InvalidRequest, KafkaError, OSError."""
    settings: dict[str, str] = {}
    for text in options.kafka_config:
        if "=" in text and not Path(text).is_file():
            pairs = kafka_settings_of([text])
            # A mistyped name of a log setting.
            _check_known([name for name in pairs if name.startswith("log.")])
            settings |= _about_logs(text, pairs)
        else:
            path = absolute_path(text)
            # Java reads property files in this encoding.
            settings |= _about_logs(path, read_properties(path.read_text("latin-1")))
    if settings:
        from ledgerfold.broker.kafka.config.config import BrokerConfig

        BrokerConfig.of(settings)
    return settings


def _about_logs(source: object, pairs: Mapping[str, str]) -> dict[str, str]:
    """Returns the settings of logs; prints how many others are ignored."""
    others = set(_others(pairs))
    if others:
        what = counted(len(others), "setting")
        # A mistyped name of a log setting should be noticed.
        named = ", ".join(sorted(name for name in others if name.startswith("log.")))
        ignored = f"ignored, {named} among them" if named else "ignored"
        print(f"{source}: {what} not about logs, {ignored}", file=sys.stderr)
    return {name: text for name, text in pairs.items() if name not in others}


def _check_known(names: Iterable[str], *, of_topic: bool = False) -> None:
    """Raises InvalidRequest for an unknown name."""
    for name in _others(names, of_topic=of_topic):
        of = "topic" if of_topic else "broker"
        raise InvalidRequest(f"Kafka has no {of} setting {name} for logs.")


def _others(names: Iterable[str], *, of_topic: bool = False) -> list[str]:
    from ledgerfold.broker.kafka.config.broker_settings import BROKER_SETTINGS
    from ledgerfold.broker.kafka.config.topic_settings import TOPIC_SETTINGS

    known = TOPIC_SETTINGS if of_topic else BROKER_SETTINGS
    return [name for name in names if name not in known]
